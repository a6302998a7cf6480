"""Endpoints that move with their sessions while messages are sent to them (D8): what is lost or doubled, how long is quiet."""

from dataclasses import dataclass
from typing import Final

from milepost.service.papers.load.programs import loading
from milepost.service.papers.load.times import Times
from milepost.service.papers.load.towns import Kafka, Plan, Shares, standing
from milepost.service.site_settings import Backbone

RATE: Final = 2_000

_AWAY_MS: Final = 20
_COUNTS: Final = ("moves", "sent", "lost", "doubled", "repeated", "overtaken", "absent_sessions", "refused", "cut")


@dataclass(frozen=True, slots=True)
class Trip:
    """Who moves between what, how often."""

    key: str
    title: str
    plan: Plan
    endpoints: int
    moves: int
    period_ms: int


@dataclass(frozen=True, slots=True)
class Roamed:
    """What came of it; `repeated` ones were marked as repetitions, `doubled` ones were not."""

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
    """Some of those that were lost."""
    shares: dict[str, float]


def trips(*, is_quick: bool) -> tuple[Trip, ...]:
    """The moves that are measured, on both logs."""
    within, across = ((100, 2, 1_000), (50, 2, 1_000)) if is_quick else ((100, 10, 2_000), (50, 4, 2_000))
    return (
        Trip("edges-embedded", "between edges, embedded", Plan((2,)), *within),
        Trip("edges-kafka", "between edges, Kafka", Plan((2,), Backbone.KAFKA), *within),
        Trip("sites-embedded", "between sites, embedded", Plan((1, 1)), *across),
        Trip("sites-kafka", "between sites, Kafka", Plan((1, 1), Backbone.KAFKA), *across),
    )


def measure_trip(trip: Trip, kafka: Kafka | None) -> Roamed:
    """All moves of one trip, in a fresh town."""
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
