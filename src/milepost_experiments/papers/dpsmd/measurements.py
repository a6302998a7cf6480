"""The measurements of DPSMD's evaluation: latency by size (D13, D14), and messages to endpoints that move (D8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from milepost.config.site_settings import Backbone
from milepost_experiments.papers.load.programs import Times, loading
from milepost_experiments.papers.load.testbed import Kafka, Plan, Shares, Town, standing

GAP_MS: Final = 50
WARM_PACKETS: Final = 10
MOST: Final = (20, 100)
"""Subscribers and publishers of the largest case."""
PAPER_MS: Final = 21.5
"""The paper's mean for the largest case (D14)."""
RATE: Final = 2_000

_AWAY_MS: Final = 20
_COUNTS: Final = ("moves", "sent", "lost", "doubled", "repeated", "overtaken", "absent_sessions", "refused", "cut")


@dataclass(frozen=True, slots=True)
class Column:
    """One path from publishers to subscribers; `publish_at` and `subscribe_at` are indexes of the town's edges."""

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
    """One column at one size; `wrong` deliveries were duplicates or out of order; `shares` of a core, by process."""

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
    """CPU time per message, by process: less sensitive than `times` to other work on the machine."""


def measure_sizes(
    town: Town, column: Column, *, qos: int, subscribers: int, publishers: Sequence[int], packets: int
) -> list[Cell]:
    """Measure each number of publishers in turn; each publisher sends *packets* packets, one every 50 ms."""
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


@dataclass(frozen=True, slots=True)
class Trip:
    """A series of moves: the number of endpoints, their moves, and the period."""

    key: str
    title: str
    plan: Plan
    endpoints: int
    moves: int
    period_ms: int


@dataclass(frozen=True, slots=True)
class Roamed:
    """The result of a trip; `repeated` messages were duplicates marked as such, `doubled` ones were not marked."""

    trip: str
    moves: int
    sent: int
    unacknowledged: int
    lost: int
    doubled: int
    repeated: int
    overtaken: int
    absent_sessions: int
    refused: int
    cut: int
    greeted: Times
    silence: Times
    waited: Times
    taken: Times
    examples: tuple[str, ...]
    """Examples of lost messages."""
    shares: dict[str, float]


def trips(*, is_quick: bool) -> tuple[Trip, ...]:
    """Return the measured trips, on both logs."""
    within, across = ((100, 2, 1_000), (50, 2, 1_000)) if is_quick else ((100, 10, 2_000), (50, 4, 2_000))
    return (
        Trip("edges-embedded", "between edges, embedded", Plan((2,)), *within),
        Trip("edges-kafka", "between edges, Kafka", Plan((2,), Backbone.KAFKA), *within),
        Trip("sites-embedded", "between sites, embedded", Plan((1, 1)), *across),
        Trip("sites-kafka", "between sites, Kafka", Plan((1, 1), Backbone.KAFKA), *across),
    )


def measure_trip(trip: Trip, kafka: Kafka | None) -> Roamed:
    """Measure all moves of one trip, in a fresh town."""
    with (
        standing(trip.plan, kafka) as town,
        loading("roam", *town.ports, trip.endpoints, RATE, trip.moves, trip.period_ms, _AWAY_MS) as load,
    ):
        watch = Shares(town)
        said = load.answer()
        cpu_s, took_s = watch.since_then()
        shares = {name: used_s / took_s for name, used_s in cpu_s.items()} | {"load": said["share"]}
        town.check()
    return Roamed(
        trip=trip.key,
        unacknowledged=said["sent"] - said["acked"],
        greeted=Times.of(said["greeted"]),
        silence=Times.of(said["silence"]),
        waited=Times.of(said["waited"]),
        taken=Times.of(said["taken"]),
        examples=tuple(said["examples"]),
        shares=shares,
        **{name: said[name] for name in _COUNTS},
    )
