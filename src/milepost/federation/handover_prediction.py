"""Handover prediction: the positions of endpoints, for the registry, for other edges, and for redirects (D8).

sessions, some at each tick ─▶ positions: the registry gets those that moved
                            ├▶ squares outside the coverage with endpoints, so that messages to areas reach them (M15)
                            ├▶ prediction: the edge whose coverage it will enter gets its subscriptions (`PrepareHandover`)
                            └▶ redirect: an endpoint in another edge's coverage, still connected here, is redirected (`Redirect`)
"""

from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from milepost.broker.session import Session
from milepost.federation.member_state import SiteState
from milepost.federation.outbox import TRANSIENT, Append
from milepost.federation.roaming import Roaming
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved, vectors
from milepost.model.site_records import (
    CROSS_HUB,
    OUTSIDE_SQUARE_DEG,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeInfo,
    EdgeRef,
    EndpointPosition,
    EndpointPositions,
    HeldSubscription,
    Interest,
    PrepareHandover,
    edge_key,
    interest_key,
)
from milepost.wire.records import to_record

SESSIONS_A_TICK: Final = 2_000
OUTSIDE_SQUARES_MAX: Final = 200
"""Maximum squares; with more, the edge counts as covering everything."""
SPEED_MIN_MPS: Final = 1.0
REDIRECT_AGAIN_NS: Final = 300 * SECOND_NS
"""Time after which an endpoint that did not follow a redirect is redirected again."""
REDIRECTED_MAX: Final = 100_000
"""Maximum redirects remembered; then no further endpoint is redirected."""


class OutsideSighting(NamedTuple):
    """An endpoint that was seen in the coverage of another edge."""

    edge: EdgeRef
    seen_at: Instant
    appended: int
    """Number of records that the log had confirmed by then."""


class HandoverPrediction:
    """Evaluation of the positions of endpoints, some at each tick."""

    def __init__(self, state: SiteState, roaming: Roaming, address: str) -> None:
        self._state = state
        self._roaming = roaming
        self._address = address
        self._round: list[EndpointId] = []
        self._next_round_at = Instant(0)
        self._sent_at: dict[EndpointId, int] = {}
        self._outside_squares: set[tuple[int, int]] = set()
        self._found_squares: set[tuple[int, int]] = set()
        self._announced: dict[EndpointId, tuple[EdgeRef, Instant]] = {}
        self._expected: dict[EndpointId, tuple[Instant, tuple[HeldSubscription, ...]]] = {}
        self._sightings: dict[EndpointId, OutsideSighting] = {}
        self._redirected: dict[tuple[EndpointId, EdgeRef], Instant] = {}

    def announce_edge(self) -> None:
        """Announce the coverage of this edge."""
        state = self._state
        coverage = state.broker.coverage
        is_everywhere = coverage is None or len(self._outside_squares) > OUTSIDE_SQUARES_MAX
        info = EdgeInfo(
            state.edge,
            None if is_everywhere else coverage,
            () if is_everywhere else tuple(sorted(self._outside_squares)),
            self._address,
        )
        state.outbox.announce(SUBSCRIPTION_INFO, edge_key(state.edge), to_record(info))

    def tick(self, now: Instant) -> None:
        """Evaluate some endpoints; forget expected ones that did not come."""
        self._forget_expected(now)
        limits = self._state.limits
        if not self._state.is_ready or not limits.position_interval_s:
            return
        if not self._round:
            if now < self._next_round_at:
                return
            self._next_round_at = Instant(now + int(limits.position_interval_s * SECOND_NS))
            self._round = list(self._roaming.residencies)
            self._found_squares = set()
        names, self._round = self._round[:SESSIONS_A_TICK], self._round[SESSIONS_A_TICK:]
        self._evaluate([session for name in names if (session := self._state.broker.find_session(name)) is not None], now)
        if not self._round:
            self._end_round(now)

    def _end_round(self, now: Instant) -> None:
        if self._found_squares != self._outside_squares:
            self._outside_squares = self._found_squares
            self.announce_edge()
        residencies = self._roaming.residencies
        self._sent_at = {name: at for name, at in self._sent_at.items() if name in residencies}
        self._announced = {name: announced for name, announced in self._announced.items() if name in residencies}
        self._sightings = {name: sighting for name, sighting in self._sightings.items() if name in residencies}
        self._redirected = {key: at for key, at in self._redirected.items() if now - at < REDIRECT_AGAIN_NS}

    def _evaluate(self, sessions: list[Session], now: Instant) -> None:
        positions = [one for session in sessions if (one := self._state.broker.last_position_of(session)) is not None]
        if not positions:
            return
        fresh = [one for one in positions if one.seen_at != self._sent_at.get(one.endpoint)]
        if fresh:
            self._sent_at |= {one.endpoint: one.seen_at for one in fresh}
            state = self._state
            positions_record = Append(
                TRANSIENT, VEHICLE_INFO, edge_key(state.edge), to_record(EndpointPositions(state.edge, tuple(fresh)))
            )
            state.outbox.add_transient(positions_record)
        coverage = self._state.broker.coverage
        if coverage is None:
            return
        here = coverage.contains(vectors(*_columns([one.place for one in positions])))
        outside = [positions[at] for at in np.flatnonzero(~here).tolist()]
        self._found_squares |= {_square(one.place) for one in outside}
        self._predict(positions, now)
        before = {one.endpoint: self._sightings.pop(one.endpoint, None) for one in positions}
        for one, info in self._find_outside(outside, now):
            self._note_outside(one, info, before[one.endpoint], now)

    def _predict(self, positions: list[EndpointPosition], now: Instant) -> None:
        prediction_s, coverage = self._state.limits.prediction_s, self._state.broker.coverage
        moving = [one for one in positions if one.heading_deg is not None and (one.speed_mps or 0.0) >= SPEED_MIN_MPS]
        if not prediction_s or not moving or coverage is None:
            return
        places = [moved(one.place, one.heading_deg or 0.0, (one.speed_mps or 0.0) * prediction_s) for one in moving]
        leaves = ~coverage.contains(vectors(*_columns(places)))
        for at in np.flatnonzero(leaves).tolist():
            edge = self._edge_at(places[at])
            if edge is not None:
                self._prepare(moving[at].endpoint, edge, now)

    def _edge_at(self, place: Place) -> EdgeRef | None:
        point = place.vector.reshape(1, 3)
        infos = self._state.edges.values()
        return next((info.edge for info in infos if info.coverage is not None and info.coverage.contains(point)[0]), None)

    def _find_outside(self, outside: list[EndpointPosition], now: Instant) -> list[tuple[EndpointPosition, EdgeInfo]]:
        """Return the endpoints that are in the coverage of an edge to which they can be redirected."""
        state, found = self._state, dict[int, EdgeInfo]()
        points = vectors(*_columns([one.place for one in outside]))
        for info in state.edges.values() if outside else ():
            is_reachable = info.edge.site == state.edge.site or state.is_hub_available(now)
            if info.coverage is not None and info.address and is_reachable:
                for at in np.flatnonzero(info.coverage.contains(points)).tolist():
                    if self._can_redirect(outside[at].endpoint, info.address):
                        found.setdefault(at, info)
        return [(outside[at], info) for at, info in found.items()]

    def _can_redirect(self, endpoint: EndpointId, address: str) -> bool:
        session = self._state.broker.find_session(endpoint)
        return session is not None and self._state.broker.can_redirect(session, address)

    def _note_outside(self, one: EndpointPosition, info: EdgeInfo, before: OutsideSighting | None, now: Instant) -> None:
        """Redirect after reports in two rounds, and only while the log accepts records: else the session could not follow."""
        appended = self._state.outbox.appended
        if before is None or before.edge != info.edge:
            self._sightings[one.endpoint] = OutsideSighting(info.edge, one.seen_at, appended)
            self._prepare(one.endpoint, info.edge, now)
        elif one.seen_at <= before.seen_at or appended == before.appended or not self._redirect(one.endpoint, info, now):
            self._sightings[one.endpoint] = before

    def _redirect(self, endpoint: EndpointId, info: EdgeInfo, now: Instant) -> bool:
        state, session = self._state, self._state.broker.find_session(endpoint)
        redirected_at = self._redirected.get((endpoint, info.edge))
        is_recent = redirected_at is not None and now - redirected_at < REDIRECT_AGAIN_NS
        if session is None or is_recent or len(self._redirected) >= REDIRECTED_MAX:
            return False
        self._prepare(endpoint, info.edge, now)
        self._redirected[endpoint, info.edge] = now
        state.broker.redirect(session, info.address)
        state.counts["redirected"] += 1
        return True

    def _prepare(self, endpoint: EndpointId, edge: EdgeRef, now: Instant) -> None:
        state, announced = self._state, self._announced.get(endpoint)
        again_ns = int(state.limits.prepared_s * SECOND_NS) // 2
        residency, session = self._roaming.residencies.get(endpoint), state.broker.find_session(endpoint)
        if (
            residency is None
            or session is None
            or (announced is not None and announced[0] == edge and now - announced[1] < again_ns)
        ):
            return
        self._announced[endpoint] = (edge, now)
        prepare = to_record(PrepareHandover(endpoint, state.edge, residency.epoch, state.broker.subscriptions_of(session)))
        if state.outbox.add_transient(Append(TRANSIENT, CROSS_HUB, str(edge), prepare)):
            state.counts["prepared"] += 1

    def on_prepare(self, prepare: PrepareHandover, now: Instant) -> None:
        """Announce the subscriptions of an endpoint that is expected here."""
        state = self._state
        if prepare.endpoint in self._roaming.residencies:
            return
        until = Instant(now + int(state.limits.prepared_s * SECOND_NS))
        self._expected[prepare.endpoint] = (until, prepare.subscriptions)
        for held in prepare.subscriptions:
            interest = to_record(Interest(state.edge, held.subscription))
            state.outbox.announce(SUBSCRIPTION_INFO, interest_key(state.edge, prepare.endpoint, held.name), interest)
        state.counts["expected"] += 1

    def _forget_expected(self, now: Instant) -> None:
        state = self._state
        for endpoint, (until, held) in list(islice(self._expected.items(), SESSIONS_A_TICK)):
            if until > now:
                continue
            del self._expected[endpoint]
            session = state.broker.find_session(endpoint)
            for one in held:
                if session is None or one.name not in session.subscriptions:
                    state.outbox.announce(SUBSCRIPTION_INFO, interest_key(state.edge, endpoint, one.name), None)


def _columns(places: list[Place]) -> tuple[list[float], list[float]]:
    return [place.latitude for place in places], [place.longitude for place in places]


def _square(place: Place) -> tuple[int, int]:
    return int(place.latitude // OUTSIDE_SQUARE_DEG), int(place.longitude // OUTSIDE_SQUARE_DEG)
