"""The lookout: where endpoints are and where they drive, for the register, for other edges and for those they will reach (D8).

sessions, some at each tick ─▶ places: the register hears of those that moved
                            ├▶ strays: squares outside the coverage where there are endpoints, so that areas find them (M15)
                            ├▶ ahead:  the edge in whose coverage an endpoint will be is told what it asks for (`Prepare`)
                            └▶ beyond: who is in another edge's coverage and still connected here is sent there (`Redirect`)
"""

from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from milepost.edge.actions import Redirect
from milepost.edge.sessions import Session
from milepost.edge.site.handing import held_of
from milepost.edge.site.outbox import PASSING, Append
from milepost.edge.site.roaming import Roaming
from milepost.edge.site.state import SiteState
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved, vectors
from milepost.model.sites import (
    CROSS_HUB,
    STRAY_SIDE_DEG,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeInfo,
    EdgeRef,
    Held,
    Places,
    Prepare,
    Wanted,
    Whereabouts,
    edge_key,
    wanted_key,
)
from milepost.wire.records import to_record

SESSIONS_A_TICK: Final = 2_000
STRAYS_MAX: Final = 200
"""More squares than this, and the edge counts as covering everything."""
SPEED_MIN_MPS: Final = 1.0
AGAIN_NS: Final = 300 * SECOND_NS
"""Who was told to go to an edge and is here all the same is told again after so long: it may be unable to."""
REDIRECTED_MAX: Final = 100_000
"""So many are remembered as told; then nobody else is."""


class Beyond(NamedTuple):
    """An endpoint that was seen in another edge's coverage."""

    edge: EdgeRef
    seen_at: Instant
    appended: int
    """What the log had taken by then."""


class Lookout:
    """Looks at endpoints, a part of them each time."""

    def __init__(self, state: SiteState, roaming: Roaming, address: str) -> None:
        self._state = state
        self._roaming = roaming
        self._address = address
        self._round: list[EndpointId] = []
        self._next_round_at = Instant(0)
        self._said_at: dict[EndpointId, int] = {}
        self._strays: set[tuple[int, int]] = set()
        self._found: set[tuple[int, int]] = set()
        self._announced: dict[EndpointId, tuple[EdgeRef, Instant]] = {}
        self._expected: dict[EndpointId, tuple[Instant, tuple[Held, ...]]] = {}
        self._beyond: dict[EndpointId, Beyond] = {}
        self._redirected: dict[tuple[EndpointId, EdgeRef], Instant] = {}

    def introduce(self) -> None:
        """Say what this edge covers."""
        state = self._state
        coverage = state.corridor.watch.ground.coverage
        is_everywhere = coverage is None or len(self._strays) > STRAYS_MAX
        info = EdgeInfo(
            state.me,
            None if is_everywhere else coverage,
            () if is_everywhere else tuple(sorted(self._strays)),
            self._address,
        )
        state.outbox.say(SUBSCRIPTION_INFO, edge_key(state.me), to_record(info))

    def tick(self, now: Instant) -> None:
        """Look at some endpoints; forget who was expected and did not come."""
        self._forget_expected(now)
        limits = self._state.limits
        if not self._state.is_ready or not limits.places_s:
            return
        if not self._round:
            if now < self._next_round_at:
                return
            self._next_round_at = Instant(now + int(limits.places_s * SECOND_NS))
            self._round = list(self._roaming.stays)
            self._found = set()
        names, self._round = self._round[:SESSIONS_A_TICK], self._round[SESSIONS_A_TICK:]
        self._look_at([session for name in names if (session := self._known(name)) is not None], now)
        if not self._round:
            self._end_round(now)

    def _known(self, name: EndpointId) -> Session | None:
        session = self._state.corridor.sessions.maybe(name)
        return session if session is not None and self._state.corridor.watch.tracks.is_known(session.number) else None

    def _end_round(self, now: Instant) -> None:
        if self._found != self._strays:
            self._strays = self._found
            self.introduce()
        stays = self._roaming.stays
        self._said_at = {name: at for name, at in self._said_at.items() if name in stays}
        self._announced = {name: told for name, told in self._announced.items() if name in stays}
        self._beyond = {name: beyond for name, beyond in self._beyond.items() if name in stays}
        self._redirected = {who: at for who, at in self._redirected.items() if now - at < AGAIN_NS}

    def _look_at(self, sessions: list[Session], now: Instant) -> None:
        if not sessions:
            return
        whereabouts = [self._whereabouts(session) for session in sessions]
        fresh = [one for one in whereabouts if one.seen_at != self._said_at.get(one.endpoint)]
        if fresh:
            self._said_at |= {one.endpoint: one.seen_at for one in fresh}
            state = self._state
            said = Append(PASSING, VEHICLE_INFO, edge_key(state.me), to_record(Places(state.me, tuple(fresh))))
            state.outbox.let_pass(said)
        coverage = self._state.corridor.watch.ground.coverage
        if coverage is None:
            return
        here = coverage.contains(vectors(*_columns([one.place for one in whereabouts])))
        outside = [whereabouts[at] for at in np.flatnonzero(~here).tolist()]
        self._found |= {_square(one.place) for one in outside}
        self._look_ahead(whereabouts, now)
        before = {one.endpoint: self._beyond.pop(one.endpoint, None) for one in whereabouts}
        for one, info in self._look_beyond(outside, now):
            self._note_beyond(one, info, before[one.endpoint], now)

    def _whereabouts(self, session: Session) -> Whereabouts:
        tracks = self._state.corridor.watch.tracks
        place = tracks.maybe_place(session.number)
        assert place is not None, "who is looked at was seen"
        heading, speed = tracks.maybe_heading(session.number), tracks.maybe_speed(session.number)
        return Whereabouts(session.name, place, heading, speed, Instant(tracks.seen_at(session.number)))

    def _look_ahead(self, whereabouts: list[Whereabouts], now: Instant) -> None:
        ahead_s, coverage = self._state.limits.ahead_s, self._state.corridor.watch.ground.coverage
        moving = [one for one in whereabouts if one.heading_deg is not None and (one.speed_mps or 0.0) >= SPEED_MIN_MPS]
        if not ahead_s or not moving or coverage is None:
            return
        places = [moved(one.place, one.heading_deg or 0.0, (one.speed_mps or 0.0) * ahead_s) for one in moving]
        leaves = ~coverage.contains(vectors(*_columns(places)))
        for at in np.flatnonzero(leaves).tolist():
            edge = self._edge_at(places[at])
            if edge is not None:
                self._prepare(moving[at].endpoint, edge, now)

    def _edge_at(self, place: Place) -> EdgeRef | None:
        point = place.vector.reshape(1, 3)
        infos = self._state.edges.values()
        return next((info.edge for info in infos if info.coverage is not None and info.coverage.contains(point)[0]), None)

    def _look_beyond(self, outside: list[Whereabouts], now: Instant) -> list[tuple[Whereabouts, EdgeInfo]]:
        """Who is in the coverage of an edge that it can be sent to."""
        state, found = self._state, dict[int, EdgeInfo]()
        points = vectors(*_columns([one.place for one in outside]))
        for info in state.edges.values() if outside else ():
            is_joined = info.edge.site == state.me.site or state.is_centre_there(now)
            if info.coverage is not None and info.address and is_joined:
                for at in np.flatnonzero(info.coverage.contains(points)).tolist():
                    if self._can_go(outside[at].endpoint, info.address):
                        found.setdefault(at, info)
        return [(outside[at], info) for at, info in found.items()]

    def _can_go(self, endpoint: EndpointId, address: str) -> bool:
        session = self._state.corridor.sessions.maybe(endpoint)
        return session is not None and bool(session.link.scheme) and address.startswith(f"{session.link.scheme}://")

    def _note_beyond(self, one: Whereabouts, info: EdgeInfo, before: Beyond | None, now: Instant) -> None:
        """Two reports, of two rounds, make sure of it; and unless the log takes records, its session could not follow."""
        appended = self._state.outbox.appended
        if before is None or before.edge != info.edge:
            self._beyond[one.endpoint] = Beyond(info.edge, one.seen_at, appended)
            self._prepare(one.endpoint, info.edge, now)
        elif one.seen_at <= before.seen_at or appended == before.appended or not self._redirect(one.endpoint, info, now):
            self._beyond[one.endpoint] = before

    def _redirect(self, endpoint: EndpointId, info: EdgeInfo, now: Instant) -> bool:
        state, session = self._state, self._state.corridor.sessions.maybe(endpoint)
        told_at = self._redirected.get((endpoint, info.edge))
        is_told = told_at is not None and now - told_at < AGAIN_NS
        if session is None or is_told or len(self._redirected) >= REDIRECTED_MAX:
            return False
        self._prepare(endpoint, info.edge, now)
        self._redirected[endpoint, info.edge] = now
        state.corridor.deliveries.actions.append(Redirect(session.link, info.address))
        state.counts["redirected"] += 1
        return True

    def _prepare(self, endpoint: EndpointId, edge: EdgeRef, now: Instant) -> None:
        state, told = self._state, self._announced.get(endpoint)
        again_ns = int(state.limits.prepared_s * SECOND_NS) // 2
        stay, session = self._roaming.stays.get(endpoint), state.corridor.sessions.maybe(endpoint)
        if stay is None or session is None or (told is not None and told[0] == edge and now - told[1] < again_ns):
            return
        self._announced[endpoint] = (edge, now)
        prepare = to_record(Prepare(endpoint, state.me, stay.epoch, held_of(session)))
        if state.outbox.let_pass(Append(PASSING, CROSS_HUB, str(edge), prepare)):
            state.counts["prepared"] += 1

    def on_prepare(self, prepare: Prepare, now: Instant) -> None:
        """An endpoint is on its way here: ask for what it will ask for."""
        state = self._state
        if prepare.endpoint in self._roaming.stays:
            return
        until = Instant(now + int(state.limits.prepared_s * SECOND_NS))
        self._expected[prepare.endpoint] = (until, prepare.subscriptions)
        for held in prepare.subscriptions:
            wanted = to_record(Wanted(state.me, held.subscription))
            state.outbox.say(SUBSCRIPTION_INFO, wanted_key(state.me, prepare.endpoint, held.name), wanted)
        state.counts["expected"] += 1

    def _forget_expected(self, now: Instant) -> None:
        state = self._state
        for endpoint, (until, held) in list(islice(self._expected.items(), SESSIONS_A_TICK)):
            if until > now:
                continue
            del self._expected[endpoint]
            session = state.corridor.sessions.maybe(endpoint)
            for one in held:
                if session is None or one.name not in session.subscriptions:
                    state.outbox.say(SUBSCRIPTION_INFO, wanted_key(state.me, endpoint, one.name), None)


def _columns(places: list[Place]) -> tuple[list[float], list[float]]:
    return [place.latitude for place in places], [place.longitude for place in places]


def _square(place: Place) -> tuple[int, int]:
    return int(place.latitude // STRAY_SIDE_DEG), int(place.longitude // STRAY_SIDE_DEG)
