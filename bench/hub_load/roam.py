"""Endpoints that move with their sessions while messages are sent to them: what is lost, what comes twice, how long is quiet."""

import time
from dataclasses import dataclass

from bench.edge_load.generator import LoadFailed
from bench.harness import QUICK
from bench.hub_load.generator import Times, loading
from bench.hub_load.towns import Kafka, Plan, Shares, standing
from milepost.service.site_settings import Backbone

RATE = 2_000
PERIOD_MS, AWAY_MS = (1_000, 20) if QUICK else (2_000, 20)


COUNTS = ("moves", "sent", "lost", "doubled", "repeated", "overtaken", "absent_sessions", "refused", "cut")


@dataclass(frozen=True, slots=True)
class Trip:
    """Who moves between what, how often."""

    key: str
    title: str
    plan: Plan
    endpoints: int
    moves: int


WITHIN = (100, 2) if QUICK else (100, 10)
ACROSS = (50, 2) if QUICK else (50, 4)
TRIPS = (
    Trip("edges-embedded", "between edges, embedded", Plan((2,)), *WITHIN),
    Trip("edges-kafka", "between edges, Kafka", Plan((2,), Backbone.KAFKA), *WITHIN),
    Trip("sites-embedded", "between sites, embedded", Plan((1, 1)), *ACROSS),
    Trip("sites-kafka", "between sites, Kafka", Plan((1, 1), Backbone.KAFKA), *ACROSS),
)


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


def measure_trip(trip: Trip, kafka: Kafka | None) -> Roamed:
    """All moves of one trip, in a fresh town."""
    with (
        standing(trip.plan, kafka) as town,
        loading("roam", *town.ports, trip.endpoints, RATE, trip.moves, PERIOD_MS, AWAY_MS) as load,
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
        **{name: said[name] for name in COUNTS},
    )


def measure_all(trips: list[Trip], kafka: Kafka | None) -> tuple[list[Roamed], list[str]]:
    """Every trip; faults become notes."""
    found: list[Roamed] = []
    notes: list[str] = []
    for trip in trips:
        began = time.monotonic()
        try:
            found.append(measure_trip(trip, kafka))
        except (LoadFailed, OSError) as fault:
            notes.append(f"{trip.title}: {fault}")
            print(f"  {notes[-1]}", flush=True)
            continue
        tell(trip, found[-1], time.monotonic() - began)
    return found, notes


def tell(trip: Trip, found: Roamed, took_s: float) -> None:
    """One line of progress."""
    counts = f"lost {found.lost}, doubled {found.doubled}, repeated {found.repeated}, overtaken {found.overtaken}"
    strange = f", sessions absent {found.absent_sessions}, refused {found.refused}, cut {found.cut}"
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found.shares.items())
    print(f"  {trip.title:24} {found.moves} moves: {counts}{strange}", flush=True)
    print(f"  {'':24} greeted {found.greeted}, silence {found.silence}, wait {found.waited} ms", flush=True)
    for example in found.examples:
        print(f"  {'':24} lost: {example}", flush=True)
    print(f"  {'':24} {shares}  [{took_s:.0f} s]", flush=True)
