"""The reference model of positions, in plain Python, report by report."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from milepost.model.incidents import Grid
from milepost.model.places import Place
from milepost.pipelines.positions import HOLES_TOPIC, SIDE_M, SLOT_S, SPEEDS_TOPIC

GAP_S_MAX = 3_600.0
"""Maximum time between two edges in a handover; a return after that is another journey."""
_SLOT_US = SLOT_S * 1_000_000


@dataclass(frozen=True)
class PositionReport:
    """An accepted report."""

    seen_at_us: int
    edge: str
    latitude: float
    longitude: float
    heading_deg: float | None = None
    speed_mps: float | None = None
    endpoint: str = "car-1"
    covered: int = 0


def last_places(position_reports: Iterable[PositionReport]) -> dict[tuple[str, str], PositionReport]:
    """Return the last position by edge and endpoint."""
    return {(one.edge, one.endpoint): one for one in sorted(position_reports, key=lambda one: one.seen_at_us)}


@dataclass(frozen=True)
class Stay:
    """The reports of an endpoint to an edge in one slot; places are in whole 1e-7 degrees."""

    slot: int
    edge: str
    endpoint: str
    reports: int
    first_at_us: int
    first: tuple[float, float]
    last_at_us: int
    last: tuple[float, float]


def stays(position_reports: Iterable[PositionReport]) -> list[Stay]:
    """Return the stays, ordered by slot, edge and endpoint."""
    gathered: dict[tuple[int, str, str], list[PositionReport]] = {}
    for one in sorted(position_reports, key=lambda one: one.seen_at_us):
        gathered.setdefault((one.seen_at_us // _SLOT_US, one.edge, one.endpoint), []).append(one)
    return [
        Stay(*key, len(some), some[0].seen_at_us, _spot(some[0]), some[-1].seen_at_us, _spot(some[-1]))
        for key, some in sorted(gathered.items())
    ]


def _spot(one: PositionReport) -> tuple[float, float]:
    latitude, longitude = int((one.latitude + 90) * 1e7), int((one.longitude + 180) * 1e7)
    return round(latitude / 1e7 - 90, 7), round(longitude / 1e7 - 180, 7)


Handover = tuple[str, str, str, int, float]
"""Endpoint, from, to, time and gap."""


def handovers(position_reports: Iterable[PositionReport]) -> list[Handover]:
    """Return the handovers, report by report."""
    each = (
        Stay(0, one.edge, one.endpoint, 1, one.seen_at_us, _spot(one), one.seen_at_us, _spot(one)) for one in position_reports
    )
    return handovers_between(each)


def handovers_between(some_stays: Iterable[Stay]) -> list[Handover]:
    """Return the handovers between stays, as docs/reference/positions.md derives them."""
    found, before = [], dict[str, Stay]()
    for one in sorted(some_stays, key=lambda stay: stay.first_at_us):
        previous = before.get(one.endpoint)
        if previous is not None and previous.edge != one.edge:
            gap_s = (one.first_at_us - previous.last_at_us) / 1e6
            if gap_s <= GAP_S_MAX:
                found.append((one.endpoint, previous.edge, one.edge, one.first_at_us, gap_s))
        before[one.endpoint] = one
    return sorted(found)


def slots(position_reports: Iterable[PositionReport]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return, by topic and key: reports, endpoints, and for speeds the mean, minimum and maximum."""
    gathered: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for one in position_reports:
        row, column = Grid(SIDE_M).locate(Place(one.latitude, one.longitude)).square
        slot = one.seen_at_us // _SLOT_US
        octant = "-" if one.heading_deg is None else str(int((one.heading_deg + 22.5) // 45) % 8)
        if one.speed_mps is not None:
            speed = (one.endpoint, int(one.speed_mps * 1000))
            gathered.setdefault((SPEEDS_TOPIC, f"{slot}/{row}/{column}/{octant}"), []).append(speed)
        if one.covered == 2:
            gathered.setdefault((HOLES_TOPIC, f"{slot}/{row}/{column}"), []).append((one.endpoint, 0))
    found: dict[tuple[str, str], tuple[Any, ...]] = {}
    for key, parts in gathered.items():
        speeds = [speed for _, speed in parts]
        statistics = (sum(speeds) / len(speeds) / 1000, min(speeds) / 1000, max(speeds) / 1000) if key[0] == SPEEDS_TOPIC else ()
        found[key] = (len(parts), len({endpoint for endpoint, _ in parts}), *statistics)
    return found
