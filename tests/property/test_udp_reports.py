"""Reports read as columns are what they are read one by one, and reports taken in batches what they are taken one by one."""

import struct

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge_in_memory import SMALL, START
from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.limits import BrokerLimits
from milepost.broker.presence import PlausibilityRules, Presence
from milepost.broker.session import Session
from milepost.listeners.udp.connection import report_head
from milepost.listeners.udp.decryption import columns_of
from milepost.matching.matcher import Matcher
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import ReportSent
from milepost.vetting import OutsidePolicy, PreviousReports, ReportColumns, ReportLimits, vet_reports
from milepost.wire.datagrams import decode
from simulation.invariants import EVERYWHERE
from udp_edge_in_memory import HOME, UdpEdge

ANYTHING_GOES = ReportLimits(clock_ahead_s_max=0, clock_behind_s_max=0, speed_mps_max=0, move_mps_max=0, heading_error_deg_max=0)
USUAL_TAGS = b"\x19\x21\x29\x31"
odd_numbers = st.sampled_from([float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 90.0, 180.0, 360.0, 500.0, 5e-324, -5e-324])
doubles = st.floats() | odd_numbers
latitudes, longitudes = st.floats(-90, 90) | doubles, st.floats(-180, 180) | doubles
all_headings, all_speeds = st.floats(0, 360) | doubles, st.floats(0, 500) | doubles
moments = st.just(START) | st.integers(0, 2**64 - 1) | st.sampled_from([0, 1, 2**63 - 2, 2**63 - 1, 2**63, 2**64 - 1])


def tail_of(place: tuple[float, float], seen_at: int, heading: float, speed: float, tags: bytes = USUAL_TAGS) -> bytes:
    """A report after its beginning, the tag of the latitude; `tags` stand before each of the others."""
    parts = [struct.pack("<d", number) for number in (*place, heading, speed)]
    parts.insert(2, struct.pack("<Q", seen_at))
    return parts[0] + b"".join(tags[at : at + 1] + part for at, part in enumerate(parts[1:]))


def read(plain: bytes) -> Report | Reason:
    """What a datagram says, read by itself."""
    try:
        value = decode(plain)
    except Malformed as fault:
        return fault.reason
    assert isinstance(value, ReportSent)
    return value.report


@example(HOME.latitude, HOME.longitude, START, float("nan"), 1.0)
@example(HOME.latitude, HOME.longitude, START, 1.0, float("nan"))
@given(latitudes, longitudes, moments, all_headings, all_speeds)
def test_a_report_read_as_columns_is_what_it_is_read_by_itself_or_refused_for_the_same_reason(
    latitude: float, longitude: float, seen_at: int, heading: float, speed: float
) -> None:
    tail = tail_of((latitude, longitude), seen_at, heading, speed)
    batch, are_odd = columns_of([0], [tail])
    assert not are_odd.any()
    nothing = PreviousReports(np.zeros(1), np.zeros(1), np.zeros(1, np.int64))
    verdict = int(vet_reports(batch, nothing, ANYTHING_GOES, START)[0])
    value = read(report_head(bytes((1, *bytes(7))), "a") + tail)
    if isinstance(value, Reason):
        assert verdict == value
        return
    assert verdict == 0
    columns = [column[0] for column in (batch.latitudes, batch.longitudes, batch.seen_at, batch.headings, batch.speeds)]
    assert columns == [value.place.latitude, value.place.longitude, value.seen_at, value.heading_deg, value.speed_mps]


@given(st.permutations(USUAL_TAGS).map(bytes) | st.binary(min_size=4, max_size=4), st.floats(-80, 80), st.floats(0, 80))
def test_a_report_of_the_usual_length_put_otherwise_is_read_as_the_wire_says(tags: bytes, first: float, second: float) -> None:
    edge, twin = UdpEdge(is_sealed=False), UdpEdge(is_sealed=False)
    vehicle, _ = edge.vehicle("a"), twin.vehicle("a")
    plain = report_head(vehicle.token.to_bytes(8, "little"), "a") + tail_of((first, second), edge.now + 1, second, second, tags)
    value = read(plain)
    if isinstance(value, Reason):
        twin.broker.counts.refused[value] += 1
    else:
        twin.broker.report(twin.session("a"), value, twin.now)
    edge.receive((plain, vehicle.address))
    assert edge.broker.counts == twin.broker.counts
    assert edge.broker.place_of(edge.session("a")) == twin.broker.place_of(twin.session("a"))


class PresenceFixture:
    """A presence table with four sessions."""

    def __init__(self, limits: BrokerLimits, plausibility_rules: PlausibilityRules) -> None:
        self.counts = BrokerCounters()
        self.matcher = Matcher()
        self.presence = Presence(limits, self.matcher, self.counts)
        self.presence.plausibility_rules = plausibility_rules
        self.sessions = [Session(EndpointId(f"e{number}"), number) for number in range(4)]
        self.presence.limit_rates({3: 0.25})

    def known(self) -> list[object]:
        last_reports = self.presence.last_reports
        numbers = range(4)
        places = [
            (last_reports.find_place(number), last_reports.find_heading(number), last_reports.seen_at(number))
            for number in numbers
        ]
        counts = (self.counts.reports, self.counts.reports_outside, dict(self.counts.refused))
        return [
            places,
            counts,
            [last_reports.reports_of(n) for n in numbers],
            sorted(self.matcher.find_inside(EVERYWHERE).tolist()),
        ]


near = st.floats(-0.05, 0.05)
headings = st.none() | st.floats(0, 359.9)
speeds = st.none() | st.sampled_from([0.0, 20.0, 100.0])
ReportTuple = tuple[int, float, float, int, float | None, float | None]
"""Number of the session, degrees north and east, milliseconds from now, heading and speed."""
report_tuples = st.tuples(st.integers(0, 3), near, near, st.integers(-4_000, 4_000).filter(bool), headings, speeds)


def at(now: Instant, ms: int) -> Instant:
    return Instant(now + ms * SECOND_NS // 1_000)


@pytest.mark.parametrize("outside", OutsidePolicy)
@given(turns=st.lists(st.tuples(st.floats(-9, 9), st.lists(report_tuples, min_size=1, max_size=12)), max_size=4))
def test_a_batch_of_reports_has_the_same_result_as_single_reports(
    outside: OutsidePolicy, turns: list[tuple[float, list[ReportTuple]]]
) -> None:
    limits = BrokerLimits(sessions_max=SMALL.sessions_max, reports_per_s=2, reports_burst=5)
    plausibility_rules = PlausibilityRules(Circle(HOME, 3_000.0), ReportLimits(outside_coverage=outside))
    together, apart = PresenceFixture(limits, plausibility_rules), PresenceFixture(limits, plausibility_rules)
    now = START
    for step_s, turn in turns:
        now = Instant(now + int(step_s * SECOND_NS))
        values = [
            Report(EndpointId(f"e{number}"), Place(HOME.latitude + north, HOME.longitude + east), at(now, ms), heading, speed)
            for number, north, east, ms, heading, speed in turn
        ]
        batch = ReportColumns(
            np.array([one[0] for one in turn], np.int32),
            np.array([one.place.latitude for one in values]),
            np.array([one.place.longitude for one in values]),
            np.array([one.seen_at for one in values], np.int64),
            np.array([np.nan if one.heading_deg is None else one.heading_deg for one in values]),
            np.array([np.nan if one.speed_mps is None else one.speed_mps for one in values]),
        )
        verdicts = together.presence.process(batch, now).tolist()
        refused = [
            apart.presence.process_report(apart.sessions[one[0]], value, now) for one, value in zip(turn, values, strict=True)
        ]
        assert verdicts == [0 if one is None else one.reason for one in refused]
    assert together.known() == apart.known()
