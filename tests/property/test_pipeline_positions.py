"""Handovers derived from stays, for arbitrary journeys between edges."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.pipelines.positions import SLOT_S
from unit.pipelines.positions_oracle import GAP_S_MAX, PositionReport, handovers, handovers_between, stays

START_US = 1_900_000_800_000_000
EDGES = ("north/e1", "north/e2", "south/e1")


def report(at_us: int, edge: str, endpoint: str = "car-1") -> PositionReport:
    return PositionReport(START_US + at_us, edge, 52.0, 13.0, endpoint=endpoint)


@st.composite
def journeys(draw: st.DrawFn) -> list[PositionReport]:
    """Return reports, in any order, of endpoints that return to an edge in a later slot at the earliest."""
    found = []
    for endpoint in ("car-1", "bus-3"):
        period_us = draw(st.integers(SLOT_S * 500_000, SLOT_S * 2_000_000))
        times = draw(st.sets(st.integers(0, 20 * SLOT_S * 1_000_000), max_size=30))
        found += [report(at_us, EDGES[at_us // period_us % len(EDGES)], endpoint) for at_us in times]
    return draw(st.permutations(found))


@given(position_reports=journeys())
def test_handovers_between_stays_equal_those_of_the_reports(position_reports: list[PositionReport]) -> None:
    assert handovers_between(stays(position_reports)) == handovers(position_reports)


def test_a_return_to_an_edge_within_a_slot_shows_as_a_negative_gap() -> None:
    bounced = [report(0, "north/e1"), report(2_000_000, "north/e2"), report(4_000_000, "north/e1")]
    assert handovers_between(stays(bounced)) == [("car-1", "north/e1", "north/e2", START_US + 2_000_000, -2.0)]


def test_a_return_after_an_hour_is_no_handover() -> None:
    away_us = int(GAP_S_MAX * 1e6) + 1
    assert handovers_between(stays([report(0, "north/e1"), report(away_us, "north/e2")])) == []
