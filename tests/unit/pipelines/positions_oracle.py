"""The reference model of positions, in plain Python, report by report."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from milepost.model.incidents import Grid
from milepost.model.places import Place
from milepost.pipelines.positions import FORGET_S, HOLES_TOPIC, SIDE_M, SLOT_S, SPEEDS_TOPIC


@dataclass(frozen=True, order=True)
class PositionReport:
    """An accepted report, ordered as positions are compared."""

    seen_at_us: int
    edge: str
    latitude: float
    longitude: float
    heading_deg: float | None = None
    speed_mps: float | None = None
    endpoint: str = "car-1"
    covered: int = 0

    @property
    def rank(self) -> tuple[Any, ...]:
        """The sort key: unknown headings and speeds come last."""
        unknown = [(one is None, one or 0.0) for one in (self.heading_deg, self.speed_mps)]
        return self.seen_at_us, self.edge, self.latitude, self.longitude, *unknown


def last_places(position_reports: Iterable[PositionReport]) -> dict[str, PositionReport]:
    found: dict[str, PositionReport] = {}
    for one in position_reports:
        if one.endpoint not in found or one.rank > found[one.endpoint].rank:
            found[one.endpoint] = one
    return found


def handovers(position_reports: Iterable[PositionReport]) -> list[tuple[str, str, str, int, float]]:
    """Return endpoint, from, to, time and gap of each handover, of reports in order of `seen_at`."""
    found, last = [], dict[str, PositionReport]()
    for one in sorted(position_reports, key=lambda one: one.rank):
        before = last.get(one.endpoint)
        if before is not None and before.edge != one.edge:
            gap_s = (one.seen_at_us - before.seen_at_us) / 1e6
            if gap_s <= FORGET_S:
                found.append((one.endpoint, before.edge, one.edge, one.seen_at_us, gap_s))
        last[one.endpoint] = one
    return sorted(found)


def slots(position_reports: Iterable[PositionReport]) -> dict[tuple[str, str], tuple[Any, ...]]:
    """Return, by topic and key: reports, endpoints, and for speeds the mean, minimum and maximum."""
    gathered: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for one in position_reports:
        row, column = Grid(SIDE_M).locate(Place(one.latitude, one.longitude)).square
        slot = one.seen_at_us // (SLOT_S * 1_000_000)
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
