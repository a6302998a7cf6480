"""Time to reach, measured: who is told in time under overload, beside plain priority with deadlines, on the same traffic.

`python -m bench.time_to_reach` drives SUMO's cars through a real town and lets a hazard happen every few seconds. Each goes to who
will reach it within three minutes, all in one class. A car takes one message at a time and needs some seconds for each, so
that more waits for it than it can take. The edge is the real one, in virtual time; it runs twice, once without
knowing where anybody is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from bench.road_load.warning_accuracy import Traffic, drive
from numpy.typing import NDArray

from bench.harness import QUICK, Row, publish, row
from milepost.broker.broker import Broker, Opened
from milepost.broker.effects import Deliver
from milepost.broker.limits import Limits
from milepost.broker.publication import EDGE_ITSELF, Publication
from milepost.broker.session import Link, Session
from milepost.model.addresses import ToArea
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.roads import Network, Placing, Reach, Spot, maybe_upstream
from milepost.roads.sumo import read_sumo
from milepost.vetting import Batch
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED

NET = "tools/game/DRT/osm.net.xml"
LENGTH_S, PERIOD_S = (500, 1.5) if QUICK else (900, 1.0)
SINCE_S = 150
WITHIN_S = 180
EVERY_S = 3
"""A hazard happens so often."""
IN_TIME_S = 5
"""Who is told so long before it gets there can do something about it."""
PACES_S = (2, 6, 12)
"""So long a car needs for a message."""
START = Instant(1_900_000_000 * SECOND_NS)


@dataclass(frozen=True, slots=True)
class Hazard:
    """One, and when each car gets there."""

    at_s: int
    publication: Publication
    reached_s: dict[int, int]


@dataclass(slots=True)
class Told:
    """What came of a run."""

    at_s: dict[tuple[int, int], int] = field(default_factory=dict)
    """By car and hazard."""
    in_flight: list[tuple[int, Session, int]] = field(default_factory=list)
    """Until when, for whom, under which number."""


def main() -> None:
    spec = find_spec("sumo")
    assert spec is not None, "SUMO is in the group bench"
    assert spec.origin is not None, "it is a package"
    net = Path(spec.origin).parent / NET
    with TemporaryDirectory() as folder:
        network = read_sumo(BytesIO(net.read_bytes()))
        traffic = drive(net, network, Path(folder), seed=1, length_s=LENGTH_S, period_s=PERIOD_S, origin=None)
    rows, notes = list[Row](), list[str]()
    for pace_s in PACES_S[1:2] if QUICK else PACES_S:
        found = list(_hazards(traffic, network))
        ours, wasted = _shares(found, _run(traffic, found, pace_s, is_reaching=True))
        found = list(_hazards(traffic, network))
        plain, wasted_plain = _shares(found, _run(traffic, found, pace_s, is_reaching=False))
        work = f"one message in {pace_s} s"
        rows.append(row(f"told {IN_TIME_S} s before they get there, {work}", "share", ours, "class and deadline", plain))
        rows.append(
            row(f"told when they have passed, {work}", "share", wasted, "class and deadline", wasted_plain, less_is_better=True)
        )
    notes.append(
        f"{len(set(traffic.cars.tolist()))} cars, {LENGTH_S} s, a hazard every {EVERY_S} s, told within {WITHIN_S} s of it"
    )
    publish("reaching", rows, notes)


def _hazards(traffic: Traffic, network: Network) -> Iterator[Hazard]:
    rng, placing = np.random.default_rng(2), Placing(network)
    for number, at_s in enumerate(range(SINCE_S, LENGTH_S - WITHIN_S, EVERY_S), start=1):
        moving = np.flatnonzero((traffic.seconds == at_s) & (traffic.roads >= 0) & (traffic.going.speeds_mps > 3))
        one = int(rng.choice(moving))
        here = placing.place([traffic.latitudes[one]], [traffic.longitudes[one]], traffic.going.only(np.array([one])))
        spots = [Spot(int(here.roads[0]), float(here.offsets_m[0]))] if here.roads[0] >= 0 else []
        area = maybe_upstream(network, spots, Reach(seconds=WITHIN_S)) if spots else None
        if area is None:
            continue
        at = Instant(START + at_s * SECOND_NS)
        until = Instant(at + WITHIN_S * SECOND_NS)
        publication = Publication("Alert", b"", at, source=EndpointId("desk"), origin=EDGE_ITSELF, qos=1, valid_until=until)
        publication.address, publication.priority, publication.id = ToArea(area), Priority.SAFETY, number
        yield Hazard(at_s, publication, _reached(traffic, one, at_s))


def _reached(traffic: Traffic, one: int, at_s: int) -> dict[int, int]:
    """When each car that drives by passes the place, after it happened."""
    past = (traffic.roads == traffic.roads[one]) & (traffic.pos_m >= traffic.pos_m[one])
    rows = np.flatnonzero(past & (traffic.seconds > at_s) & (traffic.seconds <= at_s + WITHIN_S))
    was_there = set(traffic.cars[past & (traffic.seconds == at_s)].tolist())
    found: dict[int, int] = {}
    for car, second in zip(traffic.cars[rows].tolist(), traffic.seconds[rows].tolist(), strict=True):
        if car not in was_there:
            found.setdefault(car, second)
    return found


def _run(traffic: Traffic, found: list[Hazard], pace_s: int, *, is_reaching: bool) -> Told:
    broker, told, sessions = Broker(Limits(sessions_max=20_000)), Told(), dict[int, Session]()
    if not is_reaching:
        broker.deliveries.reaching = None
    by_second = {hazard.at_s: hazard for hazard in found}
    order = np.argsort(traffic.seconds, kind="stable")
    ends = np.searchsorted(traffic.seconds[order], np.arange(LENGTH_S + 1))
    for second in range(LENGTH_S):
        now = Instant(START + second * SECOND_NS)
        rows = order[ends[second] : ends[second + 1]]
        _follow(broker, sessions, set(traffic.cars[rows].tolist()), now)
        broker.watch.take(_batch(traffic, rows, sessions, now), now)
        if second in by_second:
            broker.accept(by_second[second].publication, None, now)
        _acknowledge(broker, told, second, now)
        broker.tick(now)
        for action in broker.take_actions():
            if isinstance(action, Deliver):
                for session in action.sessions:
                    told.at_s[int(session.name), action.delivery.publication.id] = second
                    told.in_flight.append((second + pace_s, session, action.number))
        broker.take_changes()
    return told


def _follow(broker: Broker, sessions: dict[int, Session], here: set[int], now: Instant) -> None:
    for car in sessions.keys() - here:
        broker.disconnect(sessions.pop(car), now, is_willed=False)
    for car in sorted(here - sessions.keys()):
        who = ClientIdentity(EndpointId(str(car)))
        opened = broker.connect(
            EndpointId(str(car)),
            link=Link(),
            who=who,
            rates=UNLIMITED,
            is_fresh=True,
            expiry_ns=0,
            window=1,
            encoding=1,
            will=None,
            now=now,
        )
        assert isinstance(opened, Opened), "there is room"
        sessions[car] = opened.session


def _acknowledge(broker: Broker, told: Told, second: int, now: Instant) -> None:
    due = [one for one in told.in_flight if one[0] <= second]
    told.in_flight = [one for one in told.in_flight if one[0] > second]
    for _, session, number in due:
        if broker.sessions.maybe(session.name) is session:
            broker.deliveries.acknowledge(session, number)
            broker.deliveries.resume(session, now, 1)


def _batch(traffic: Traffic, rows: NDArray[np.intp], sessions: dict[int, Session], now: Instant) -> Batch:
    return Batch(
        np.array([sessions[car].number for car in traffic.cars[rows].tolist()], np.int32),
        traffic.latitudes[rows],
        traffic.longitudes[rows],
        np.full(len(rows), now, np.int64),
        traffic.going.headings_deg[rows].astype(np.float64),
        traffic.going.speeds_mps[rows].astype(np.float64),
    )


def _shares(found: list[Hazard], told: Told) -> tuple[float, float]:
    """Of those who got there, later than they can be told at all: told in time; of what was told to them: told too late."""
    could = in_time = late = 0
    for hazard in found:
        for car, reached_s in hazard.reached_s.items():
            if reached_s - hazard.at_s <= IN_TIME_S:
                continue
            could += 1
            at_s = told.at_s.get((car, hazard.publication.id))
            in_time += at_s is not None and at_s <= reached_s - IN_TIME_S
            late += at_s is not None and at_s > reached_s
    return in_time / could, late / could


if __name__ == "__main__":
    main()
