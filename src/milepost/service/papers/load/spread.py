"""DPSMD's test (D13): publishers at one edge, subscribers there, at another edge of the site, or at another site."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from milepost.service.papers.load.programs import loading
from milepost.service.papers.load.times import Times
from milepost.service.papers.load.towns import Plan, Shares, Town
from milepost.service.site_settings import Backbone

GAP_MS: Final = 50
WARM_PACKETS: Final = 10
MOST: Final = (20, 100)
"""Subscribers and publishers of the largest case."""
PAPER_MS: Final = 21.5
"""The mean that the paper gives for it (D14)."""


@dataclass(frozen=True, slots=True)
class Column:
    """One way from publishers to subscribers; `publish_at` and `subscribe_at` count the town's edges."""

    key: str
    title: str
    plan: Plan
    publish_at: int = 0
    subscribe_at: int = 0


COLUMNS: Final = (
    Column("within", "within an edge", Plan((2,))),
    Column("edges-embedded", "across edges, embedded", Plan((2,)), subscribe_at=1),
    Column("edges-kafka", "across edges, Kafka", Plan((2,), Backbone.KAFKA), subscribe_at=1),
    Column("sites-embedded", "across sites, embedded", Plan((1, 1)), subscribe_at=1),
    Column("sites-kafka", "across sites, Kafka", Plan((1, 1), Backbone.KAFKA), subscribe_at=1),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One column at one size; `lost` deliveries never came, `wrong` ones came twice or overtook; shares of a core, by process."""

    column: str
    qos: int
    subscribers: int
    publishers: int
    times: Times
    lost: int
    wrong: int
    late_p99_ms: float
    shares: dict[str, float]
    each_us: dict[str, float]
    """Processor time for each message, by process: less than the times it depends on who else works on the machine."""


def measure_sizes(
    town: Town, column: Column, *, qos: int, subscribers: int, publishers: Sequence[int], packets: int
) -> list[Cell]:
    """All numbers of publishers, one after the other; each publisher sends so many packets, one every 50 ms."""
    ports = town.ports[column.publish_at], town.ports[column.subscribe_at]
    with loading("spread", *ports, qos, subscribers) as load:
        load.ask(publishers[0], WARM_PACKETS, GAP_MS)
        cells = []
        for count in publishers:
            watch = Shares(town)
            said = load.ask(count, packets, GAP_MS)
            cells.append(_cell(column, (qos, subscribers, count), said, watch))
            town.check()
    return cells


def _cell(column: Column, size: tuple[int, int, int], said: dict[str, Any], watch: Shares) -> Cell:
    cpu_s, took_s = watch.since_then()
    return Cell(
        column.key,
        *size,
        times=Times.of(said["taken"]),
        lost=said["expected"] - said["received"] - said["wrong"],
        wrong=said["wrong"],
        late_p99_ms=said["late_p99_us"] / 1e3,
        shares={name: used_s / took_s for name, used_s in cpu_s.items()} | {"load": said["share"]},
        each_us={name: used_s / said["sent"] * 1e6 for name, used_s in cpu_s.items()},
    )
