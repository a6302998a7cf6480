"""Delivery by time to reach: the share of vehicles warned in time under overload, compared with plain priority and deadlines.

`python -m bench.time_to_reach` drives SUMO cars through a real city, with a hazard every few seconds. Each alert goes to the cars
that will reach the hazard within three minutes; all have the same priority. A car receives one message at a time and needs some
seconds for each, so that messages queue up. The edge is the production code in virtual time; it runs twice, once without known
positions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from bench.harness import QUICK, Row, publish, row
from bench.road_load.warning_accuracy import Traffic, drive
from milepost.broker.broker import Broker, ConnectResult
from milepost.broker.effects import Deliver
from milepost.broker.limits import BrokerLimits
from milepost.broker.publication import EDGE_ITSELF, Publication
from milepost.broker.session import Connection, Session
from milepost.model.addresses import ToArea
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.roads import MapMatcher, RoadNetwork, RoadPosition, UpstreamExtent, find_upstream_area
from milepost.roads.sumo import read_sumo
from milepost.vetting import ReportColumns
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED

NET = "tools/game/DRT/osm.net.xml"
LENGTH_S, PERIOD_S = (500, 1.5) if QUICK else (900, 1.0)
WARMUP_S = 150
WITHIN_S = 180
HAZARD_INTERVAL_S = 3
"""Interval between hazards."""
IN_TIME_S = 5
"""Minimum time from the warning to the hazard for the warning to be useful."""
MESSAGE_S = (2, 6, 12)
"""Time that a car needs for a message."""
START = Instant(1_900_000_000 * SECOND_NS)


@dataclass(frozen=True, slots=True)
class Hazard:
    """A hazard, and when each car reaches it."""

    at_s: int
    publication: Publication
    reached_s: dict[int, int]


@dataclass(slots=True)
class WarningTimes:
    """The result of a run."""

    at_s: dict[tuple[int, int], int] = field(default_factory=dict)
    """By car and hazard."""
    in_flight: list[tuple[int, Session, int]] = field(default_factory=list)
    """Messages in flight: the end of their processing, the session, the packet id."""


def main() -> None:
    spec = find_spec("sumo")
    assert spec is not None, "SUMO is installed with the group bench"
    assert spec.origin is not None, "it is a package"
    net = Path(spec.origin).parent / NET
    with TemporaryDirectory() as folder:
        network = read_sumo(BytesIO(net.read_bytes()))
        traffic = drive(net, network, Path(folder), seed=1, length_s=LENGTH_S, period_s=PERIOD_S, origin=None)
    rows, notes = list[Row](), list[str]()
    for message_s in MESSAGE_S[1:2] if QUICK else MESSAGE_S:
        hazards = list(_hazards(traffic, network))
        ours, late_share = _shares(hazards, _run(traffic, hazards, message_s, by_time_to_reach=True))
        hazards = list(_hazards(traffic, network))
        baseline, late_baseline = _shares(hazards, _run(traffic, hazards, message_s, by_time_to_reach=False))
        workload = f"one message per {message_s} s"
        rows.append(row(f"warned {IN_TIME_S} s before the hazard, {workload}", "share", ours, "priority and deadline", baseline))
        rows.append(
            row(
                f"warned after the hazard, {workload}",
                "share",
                late_share,
                "priority and deadline",
                late_baseline,
                less_is_better=True,
            )
        )
    notes.append(
        f"{len(set(traffic.cars.tolist()))} cars, {LENGTH_S} s, a hazard every {HAZARD_INTERVAL_S} s; cars within {WITHIN_S} s"
    )
    publish("time_to_reach", rows, notes)


def _hazards(traffic: Traffic, network: RoadNetwork) -> Iterator[Hazard]:
    rng, map_matcher = np.random.default_rng(2), MapMatcher(network)
    for number, at_s in enumerate(range(WARMUP_S, LENGTH_S - WITHIN_S, HAZARD_INTERVAL_S), start=1):
        moving = np.flatnonzero((traffic.seconds == at_s) & (traffic.roads >= 0) & (traffic.motion.speeds_mps > 3))
        one = int(rng.choice(moving))
        here = map_matcher.match([traffic.latitudes[one]], [traffic.longitudes[one]], traffic.motion.only(np.array([one])))
        spots = [RoadPosition(int(here.roads[0]), float(here.offsets_m[0]))] if here.roads[0] >= 0 else []
        area = find_upstream_area(network, spots, UpstreamExtent(seconds=WITHIN_S)) if spots else None
        if area is None:
            continue
        at = Instant(START + at_s * SECOND_NS)
        until = Instant(at + WITHIN_S * SECOND_NS)
        publication = Publication("Alert", b"", at, source=EndpointId("incidents"), origin=EDGE_ITSELF, qos=1, valid_until=until)
        publication.address, publication.priority, publication.id = ToArea(area), Priority.SAFETY, number
        yield Hazard(at_s, publication, _reached(traffic, one, at_s))


def _reached(traffic: Traffic, one: int, at_s: int) -> dict[int, int]:
    """Return when each car passes the place after the hazard began."""
    past = (traffic.roads == traffic.roads[one]) & (traffic.pos_m >= traffic.pos_m[one])
    rows = np.flatnonzero(past & (traffic.seconds > at_s) & (traffic.seconds <= at_s + WITHIN_S))
    already_there = set(traffic.cars[past & (traffic.seconds == at_s)].tolist())
    reached_s: dict[int, int] = {}
    for car, second in zip(traffic.cars[rows].tolist(), traffic.seconds[rows].tolist(), strict=True):
        if car not in already_there:
            reached_s.setdefault(car, second)
    return reached_s


def _run(traffic: Traffic, hazards: list[Hazard], message_s: int, *, by_time_to_reach: bool) -> WarningTimes:
    broker, warnings, sessions = Broker(BrokerLimits(sessions_max=20_000)), WarningTimes(), dict[int, Session]()
    if not by_time_to_reach:
        broker.deliveries.arrivals = None
    by_second = {hazard.at_s: hazard for hazard in hazards}
    order = np.argsort(traffic.seconds, kind="stable")
    ends = np.searchsorted(traffic.seconds[order], np.arange(LENGTH_S + 1))
    for second in range(LENGTH_S):
        now = Instant(START + second * SECOND_NS)
        rows = order[ends[second] : ends[second + 1]]
        _connect_and_disconnect(broker, sessions, set(traffic.cars[rows].tolist()), now)
        broker.presence.process(_batch(traffic, rows, sessions, now), now)
        if second in by_second:
            broker.accept(by_second[second].publication, None, now)
        _acknowledge(broker, warnings, second, now)
        broker.tick(now)
        for action in broker.take_actions():
            if isinstance(action, Deliver):
                for session in action.sessions:
                    warnings.at_s[int(session.name), action.delivery.publication.id] = second
                    warnings.in_flight.append((second + message_s, session, action.packet_id))
        broker.take_changes()
    return warnings


def _connect_and_disconnect(broker: Broker, sessions: dict[int, Session], here: set[int], now: Instant) -> None:
    for car in sessions.keys() - here:
        broker.disconnect(sessions.pop(car), now, publishes_will=False)
    for car in sorted(here - sessions.keys()):
        identity = ClientIdentity(EndpointId(str(car)))
        opened = broker.connect(
            EndpointId(str(car)),
            connection=Connection(),
            identity=identity,
            rates=UNLIMITED,
            clean_start=True,
            expiry_ns=0,
            window=1,
            encoding=1,
            will=None,
            now=now,
        )
        assert isinstance(opened, ConnectResult), "the session limit is not reached"
        sessions[car] = opened.session


def _acknowledge(broker: Broker, warnings: WarningTimes, second: int, now: Instant) -> None:
    due = [one for one in warnings.in_flight if one[0] <= second]
    warnings.in_flight = [one for one in warnings.in_flight if one[0] > second]
    for _, session, number in due:
        if broker.sessions.find(session.name) is session:
            broker.deliveries.acknowledge(session, number)
            broker.deliveries.drain(session, now, 1)


def _batch(traffic: Traffic, rows: NDArray[np.intp], sessions: dict[int, Session], now: Instant) -> ReportColumns:
    return ReportColumns(
        np.array([sessions[car].number for car in traffic.cars[rows].tolist()], np.int32),
        traffic.latitudes[rows],
        traffic.longitudes[rows],
        np.full(len(rows), now, np.int64),
        traffic.motion.headings_deg[rows].astype(np.float64),
        traffic.motion.speeds_mps[rows].astype(np.float64),
    )


def _shares(hazards: list[Hazard], warnings: WarningTimes) -> tuple[float, float]:
    """Return the shares of cars warned in time and too late, of those that reached the hazard after `IN_TIME_S`."""
    reachable = in_time = late = 0
    for hazard in hazards:
        for car, reached_s in hazard.reached_s.items():
            if reached_s - hazard.at_s <= IN_TIME_S:
                continue
            reachable += 1
            at_s = warnings.at_s.get((car, hazard.publication.id))
            in_time += at_s is not None and at_s <= reached_s - IN_TIME_S
            late += at_s is not None and at_s > reached_s
    return in_time / reachable, late / reachable


if __name__ == "__main__":
    main()
