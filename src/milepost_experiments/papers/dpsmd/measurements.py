"""The measurements of DPSMD's evaluation: latency by size (D13, D14), and messages to endpoints that move (D8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from milepost.config.site_settings import LogType
from milepost_experiments.papers.load.programs import LatencyStatistics, running_load
from milepost_experiments.papers.load.testbed import CpuUsage, Kafka, Testbed, Topology, running_testbed

GAP_MS: Final = 50
WARM_PACKETS: Final = 10
LARGEST: Final = (20, 100)
"""Subscribers and publishers of the largest case."""
PAPER_MS: Final = 21.5
"""The paper's mean for the largest case (D14)."""
RATE: Final = 2_000

_AWAY_MS: Final = 20
_COUNTS: Final = (
    "moves",
    "sent",
    "lost",
    "duplicated",
    "marked_duplicates",
    "reordered",
    "sessions_not_present",
    "refused",
    "disconnects",
)


@dataclass(frozen=True, slots=True)
class MessagePath:
    """One path from publishers to subscribers; `publish_at` and `subscribe_at` are indexes of the testbed's edges."""

    key: str
    title: str
    topology: Topology
    publish_at: int = 0
    subscribe_at: int = 0


PATHS: Final = (
    MessagePath("within", "within an edge", Topology((2,))),
    MessagePath("edges-embedded", "across edges, embedded", Topology((2,)), subscribe_at=1),
    MessagePath("edges-kafka", "across edges, Kafka", Topology((2,), LogType.KAFKA), subscribe_at=1),
    MessagePath("sites-embedded", "across sites, embedded", Topology((1, 1)), subscribe_at=1),
    MessagePath("sites-kafka", "across sites, Kafka", Topology((1, 1), LogType.KAFKA), subscribe_at=1),
)


@dataclass(frozen=True, slots=True)
class LatencyCell:
    """One path at one size; `wrong` deliveries were duplicates or out of order; `shares` of a core, by process."""

    path: str
    qos: int
    subscribers: int
    publishers: int
    times: LatencyStatistics
    lost: int
    wrong: int
    late_p99_ms: float
    shares: dict[str, float]
    cpu_us_per_message: dict[str, float]
    """CPU time per message, by process: less sensitive than `times` to other work on the machine."""


def measure_sizes(
    testbed: Testbed, path: MessagePath, *, qos: int, subscribers: int, publishers: Sequence[int], packets: int
) -> list[LatencyCell]:
    """Measure each number of publishers in turn; each publisher sends *packets* packets, one every 50 ms."""
    ports = testbed.ports[path.publish_at], testbed.ports[path.subscribe_at]
    with running_load("latency", *ports, qos, subscribers) as load:
        load.request(publishers[0], WARM_PACKETS, GAP_MS)
        cells = []
        for count in publishers:
            usage = CpuUsage(testbed)
            answer = load.request(count, packets, GAP_MS)
            cells.append(_cell(path, (qos, subscribers, count), answer, usage))
            testbed.check()
    return cells


def _cell(path: MessagePath, size: tuple[int, int, int], answer: dict[str, Any], usage: CpuUsage) -> LatencyCell:
    cpu_s, took_s = usage.since_start()
    return LatencyCell(
        path.key,
        *size,
        times=LatencyStatistics.of(answer["latency"]),
        lost=answer["expected"] - answer["received"] - answer["wrong"],
        wrong=answer["wrong"],
        late_p99_ms=answer["late_p99_us"] / 1e3,
        shares={name: used_s / took_s for name, used_s in cpu_s.items()} | {"load": answer["share"]},
        cpu_us_per_message={name: used_s / answer["sent"] * 1e6 for name, used_s in cpu_s.items()},
    )


@dataclass(frozen=True, slots=True)
class MoveSeries:
    """A series of moves: the number of endpoints, their moves, and the period."""

    key: str
    title: str
    topology: Topology
    endpoints: int
    moves: int
    period_ms: int


@dataclass(frozen=True, slots=True)
class RoamingResult:
    """The result of a series of moves; duplicates with the DUP flag are `marked_duplicates`, others `duplicated`."""

    series: str
    moves: int
    sent: int
    unacknowledged: int
    lost: int
    duplicated: int
    marked_duplicates: int
    reordered: int
    sessions_not_present: int
    refused: int
    disconnects: int
    connack: LatencyStatistics
    silence: LatencyStatistics
    delay: LatencyStatistics
    latency: LatencyStatistics
    examples: tuple[str, ...]
    """Examples of lost messages."""
    shares: dict[str, float]


def move_series(*, is_quick: bool) -> tuple[MoveSeries, ...]:
    """Return the measured series of moves, on both logs."""
    within, across = ((100, 2, 1_000), (50, 2, 1_000)) if is_quick else ((100, 10, 2_000), (50, 4, 2_000))
    return (
        MoveSeries("edges-embedded", "between edges, embedded", Topology((2,)), *within),
        MoveSeries("edges-kafka", "between edges, Kafka", Topology((2,), LogType.KAFKA), *within),
        MoveSeries("sites-embedded", "between sites, embedded", Topology((1, 1)), *across),
        MoveSeries("sites-kafka", "between sites, Kafka", Topology((1, 1), LogType.KAFKA), *across),
    )


def measure_moves(series: MoveSeries, kafka: Kafka | None) -> RoamingResult:
    """Measure one series of moves, in a fresh testbed."""
    with (
        running_testbed(series.topology, kafka) as testbed,
        running_load("roaming", *testbed.ports, series.endpoints, RATE, series.moves, series.period_ms, _AWAY_MS) as load,
    ):
        usage = CpuUsage(testbed)
        answer = load.read_answer()
        cpu_s, took_s = usage.since_start()
        shares = {name: used_s / took_s for name, used_s in cpu_s.items()} | {"load": answer["share"]}
        testbed.check()
    return RoamingResult(
        series=series.key,
        unacknowledged=answer["sent"] - answer["acked"],
        connack=LatencyStatistics.of(answer["connack"]),
        silence=LatencyStatistics.of(answer["silence"]),
        delay=LatencyStatistics.of(answer["delay"]),
        latency=LatencyStatistics.of(answer["latency"]),
        examples=tuple(answer["examples"]),
        shares=shares,
        **{name: answer[name] for name in _COUNTS},
    )
