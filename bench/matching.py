"""Matching compared with its peers: `make bench-matching` (QUICK=1: smaller, within a minute).

Each part runs in its own process, so that its memory can be measured; peers answer the same queries in the same run.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from statistics import median
from typing import Unpack

import numpy as np
from numpy.typing import NDArray
from paho.mqtt.matcher import MQTTMatcher

from bench.harness import QUICK, Goal, Row, median_us, per_second, publish, resident_bytes, row
from bench.matching_workload import (
    NOW,
    ORIGIN,
    around_me,
    circles,
    formulas,
    hazards_at,
    on_topic,
    scattered,
    subscription_for,
    subscription_to_topic,
    tagged_messages,
    topic_filters,
    topics,
)
from bench.peers import FormulaScan, RedisGeo, Scan, StrTree, Tile38, running_redis, running_tile38
from milepost.matching import Matcher
from milepost.model import Circle, Message, Subscription

ENDPOINTS = 200_000 if QUICK else 1_000_000
MANY = 100_000 if QUICK else 1_000_000
FORMULAS = [(count, is_even) for count in (10_000, 100_000, 1_000_000) for is_even in (True, False)][: 3 if QUICK else 6]
FORMULAS_MAX = max(count for count, _ in FORMULAS)
FORMULAS_GOAL = {10_000: 25_000.0, 100_000: 5_000.0, 1_000_000: 800.0}
BATCH = 1_000
CHURN_S = 1.0 if QUICK else 10.0
SLICE_S = 0.5
CHANGES_PER_S = 1_000
TAG_DISTRIBUTION = {True: "uniform tags", False: "Zipf-distributed tags"}

Searcher = RedisGeo | Tile38 | StrTree | Scan


def main() -> None:
    rows: list[Row] = []
    notes: list[str] = []
    parts: list[tuple[str, Callable[[], tuple[list[Row], list[str]]]]] = [
        ("endpoints in an area", places),
        ("topic filters", topic_part),
        ("around me", around_part),
        *((f"{count:,} tag formulas, {TAG_DISTRIBUTION[is_even]}", FormulaPart(count, is_even)) for count, is_even in FORMULAS),
    ]
    for name, part in parts:
        started = time.monotonic()
        print(f"{name} ...", end=" ", flush=True)
        with get_context("spawn").Pool(1) as process:
            found, remarks = process.apply(part)
        rows += found
        notes += remarks
        print(f"{time.monotonic() - started:.0f} s", flush=True)
    publish("matching", rows, notes)


def full_run_goal(**goal: Unpack[Goal]) -> Goal:
    """Return a goal that applies only to the full run, because the quick one does less."""
    return Goal() if QUICK else goal


def places() -> tuple[list[Row], list[str]]:
    """Measure moving endpoints: queries for a circle, and position updates."""
    latitudes, longitudes = scattered(ENDPOINTS)
    before = resident_bytes()
    engine = Matcher()
    endpoints = np.arange(ENDPOINTS, dtype=np.int32)
    for first in range(0, ENDPOINTS, BATCH):
        some = slice(first, first + BATCH)
        engine.move(endpoints[some], latitudes[some], longitudes[some])
    each = (resident_bytes() - before) / ENDPOINTS
    rows, notes = [], []
    with running_redis() as redises, running_tile38() as tile38:
        servers: list[Searcher] = [*redises, *([tile38] if tile38 else [])]
        notes += [] if redises else ["Redis is not installed: omitted"]
        notes += [] if tile38 else ["Tile38 is not available: omitted"]
        empty = redises[0].bytes_used() if redises else 0
        peers: list[Searcher] = [*servers, StrTree(), Scan()]
        for peer in peers:
            if peer not in redises[1:]:  # the second client uses the same server
                peer.load(latitudes, longitudes)
        redis_each = (redises[0].bytes_used() - empty) / ENDPOINTS if redises else None
        for share, ratio_min in ((0.001, 30.0), (0.01, 100.0)):
            rows += search_rows(engine, peers, share, ratio_min)
        rows += update_rows(engine, redises[-1] if redises else None, latitudes, longitudes)
    rows.append(row("memory per endpoint", "bytes", each, "Redis GEO", redis_each, less_is_better=True, ours_max=100))
    return rows, notes


def search_rows(engine: Matcher, peers: list[Searcher], share: float, ratio_min: float) -> list[Row]:
    """Query the same circles with all peers; Milepost is measured again with each peer, and every row has the median."""
    queries = circles(share, 40)
    found: dict[str, float] = {}
    ours = []
    for peer in peers:
        ours_found = sum(engine.find_inside(circle).size for circle in queries[:5])
        theirs = sum(peer.inside(circle) for circle in queries[:5])
        assert abs(ours_found - theirs) <= peer.slack * ours_found, (
            f"{peer.name} finds {theirs}, Milepost finds {ours_found}: not the same query"
        )
        ours += [median_us(engine.find_inside, queries) for _ in range(3)]
        found[peer.name] = median_us(peer.inside, queries)
        if isinstance(peer, RedisGeo):
            found["Redis, server time only"] = peer.server_us(queries)
    workload = f"area query, {ENDPOINTS:,} endpoints, circle with {share:.1%}"
    goals = {"Redis GEOSEARCH": full_run_goal(ratio_min=ratio_min)}
    return [
        row(workload, "µs", median(ours), name, value, less_is_better=True, **goals.get(name, Goal()))
        for name, value in found.items()
    ]


def update_rows(
    engine: Matcher, redis_geo: RedisGeo | None, latitudes: NDArray[np.float64], longitudes: NDArray[np.float64]
) -> list[Row]:
    """Measure reports of vehicles at up to 30 m/s, in random order, a thousand per batch; and queries between two batches."""
    random = np.random.default_rng(6)
    workload = f"position updates, batches of {BATCH:,}"
    rates: list[float] = []
    reports: list[tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]] = []
    for _ in range(3):
        latitudes = latitudes + random.uniform(-3e-4, 3e-4, latitudes.size)
        order = random.permutation(ENDPOINTS).astype(np.int32)
        batches = [order[first : first + BATCH] for first in range(0, ENDPOINTS, BATCH)]
        reports = [(numbers, latitudes[numbers], longitudes[numbers]) for numbers in batches]
        rates.append(per_second(lambda report: engine.move(*report), reports, rounds=1) * BATCH)
    ours = max(rates)
    rows = []
    if redis_geo is not None:
        theirs = per_second(lambda report: redis_geo.move(*report), reports[:20], rounds=3) * BATCH
        rows.append(row(workload, "updates/s", ours, "Redis GEOADD", theirs, **full_run_goal(ours_min=5e6)))
    tree = per_second(lambda _: StrTree().load(latitudes, longitudes), [None], rounds=1) * ENDPOINTS
    rows.append(row(workload, "updates/s", ours, "shapely STRtree, rebuilt", tree))
    queries = circles(0.001, 300, seed=7)
    at_rest = median_us(engine.find_inside, queries)
    times_us = []
    for circle, report in zip(queries, reports * 3, strict=False):
        engine.move(*report)
        started = time.perf_counter()
        engine.find_inside(circle)
        times_us.append((time.perf_counter() - started) * 1e6)
    between = median(times_us)
    name = "area query (0.1%) between two batches of updates"
    rows.append(row(name, "µs", between, "Milepost, without updates", at_rest, less_is_better=True, ratio_min=0.5))
    return rows


def topic_part() -> tuple[list[Row], list[str]]:
    """Measure topic filters with wildcards, one match per message, every topic new."""
    before = resident_bytes()
    engine = Matcher()
    for number, topic_filter in enumerate(topic_filters(MANY)):
        engine.add(number, subscription_to_topic(topic_filter))
    each = (resident_bytes() - before) / MANY
    queries = [on_topic(topic) for topic in topics(20_000, MANY)]
    assert all(len(engine.find_receivers(message, NOW)) == 1 for message in queries[:1000]), "each topic matches one filter"
    ours = per_second(lambda message: engine.find_receivers(message, NOW), queries)
    before = resident_bytes()
    trie = MQTTMatcher()  # type: ignore[no-untyped-call]
    for number, topic_filter in enumerate(topic_filters(MANY)):
        trie[topic_filter] = number
    trie_each = (resident_bytes() - before) / MANY
    theirs = per_second(lambda message: list(trie.iter_match(message.topic)), queries)  # type: ignore[no-untyped-call]
    workload = f"topic filters with wildcards, {MANY:,}, one match each"
    memory = f"memory per subscription, {MANY:,} topic filters"
    return [
        row(workload, "messages/s", ours, "paho's matcher", theirs, **full_run_goal(ours_min=100_000)),
        row(memory, "bytes", each, "paho's matcher", trie_each, less_is_better=True, **full_run_goal(ours_max=300)),
    ], []


def around_part() -> tuple[list[Row], list[str]]:
    """Measure equal subscriptions within a distance of each endpoint: only the place of the message separates them."""
    engine, scan = Matcher(), Scan()
    latitudes, longitudes = scattered(MANY)
    engine.move(np.arange(MANY), latitudes, longitudes)
    scan.load(latitudes, longitudes)
    subscription = around_me(800.0)
    for number in range(MANY):
        engine.add(number, subscription)
    queries = hazards_at(circles(0.0001, 300))
    for message in queries[:20]:
        assert message.place is not None
        assert len(engine.find_receivers(message, NOW)) == scan.inside(Circle(message.place, 800.0))
    ours = per_second(lambda message: engine.find_receivers(message, NOW), queries)
    theirs = per_second(lambda message: scan.inside(Circle(message.place or ORIGIN, 800.0)), queries[:20])
    workload = f"one formula, {MANY:,} times, each within 800 m of its owner"
    return [row(workload, "messages/s", ours, "plain scan", theirs)], []


@dataclass(frozen=True)
class FormulaPart:
    """Subscriptions by formula: messages matched per second, with and without changes of subscriptions."""

    count: int
    is_even: bool

    def __call__(self) -> tuple[list[Row], list[str]]:
        before = resident_bytes()
        engine = Matcher()
        for number, query in enumerate(formulas(self.count, is_even=self.is_even)):
            engine.add(number, subscription_for(query))
        each = (resident_bytes() - before) / self.count
        queries = tagged_messages(500, is_even=self.is_even)
        receivers = float(np.mean([len(engine.find_receivers(message, NOW)) for message in queries]))
        ours = per_second(lambda message: engine.find_receivers(message, NOW), queries)
        scan = FormulaScan(formulas(self.count, is_even=self.is_even))
        for message in queries[:20]:
            assert scan.matching(message.tags).tolist() == sorted(engine.find_receivers(message, NOW).owners.tolist())
        theirs = per_second(lambda message: scan.matching(message.tags), queries[:10])
        setup = f"{self.count:,} formulas, {TAG_DISTRIBUTION[self.is_even]}"
        workload = f"{setup}, {receivers:,.1f} receivers per message"
        rows = [row(workload, "messages/s", ours, "plain scan", theirs, ours_min=FORMULAS_GOAL[self.count])]
        if self.count == FORMULAS_MAX:
            rows.append(row(f"memory per subscription, {setup}", "bytes", each, ours_max=300))
            rows += churn_rows(engine, self.count, setup, is_even=self.is_even)
        return rows, []


def churn_rows(engine: Matcher, count: int, setup: str, *, is_even: bool) -> list[Row]:
    """Match continuously while a thousand times per second a subscription is removed or added.

    Slices with and without changes alternate, so that other load affects both equally.
    """
    queries = tagged_messages(500, is_even=is_even, seed=8)
    slices = round(CHURN_S / SLICE_S)
    changes_per_slice = round(CHANGES_PER_S * SLICE_S)
    added = [
        subscription_for(query)
        for query in islice(formulas(slices * changes_per_slice, is_even=is_even, seed=9), slices * changes_per_slice)
    ]
    removed = np.random.default_rng(10).permutation(count)[: slices * changes_per_slice].tolist()
    at_rest, churning = MatchRates(), MatchRates()
    for number in range(slices):
        some = slice(number * changes_per_slice, (number + 1) * changes_per_slice)
        match_for_one_slice(engine, queries, [], [], at_rest)
        match_for_one_slice(engine, queries, added[some], removed[some], churning)
    workload = f"{CHANGES_PER_S:,} changes/s at {setup}"
    return [
        row(
            f"rate, {workload}",
            "messages/s",
            median(churning.rates),
            "Milepost, without changes",
            median(at_rest.rates),
            ratio_min=0.8,
        ),
        row(f"longest change, {workload}", "ms", churning.longest_change_s * 1e3, ours_max=10),
        row(
            f"longest response time, {workload}",
            "ms",
            churning.longest_wait_s * 1e3,
            "Milepost, without changes",
            at_rest.longest_wait_s * 1e3,
            less_is_better=True,
        ),
    ]


@dataclass
class MatchRates:
    """Messages matched per second by slice; the longest change and the longest response time."""

    rates: list[float] = field(default_factory=list)
    longest_change_s: float = 0.0
    longest_wait_s: float = 0.0


def match_for_one_slice(
    engine: Matcher, queries: list[Message], added: list[Subscription], removed: list[int], rates: MatchRates
) -> None:
    """Match continuously, and make the changes that are due before each message; a response time includes both."""
    started = now = time.perf_counter()
    matched = changed = 0
    while now - started < SLICE_S:
        due = min(len(added), int((now - started) * CHANGES_PER_S))
        while changed < due:
            began = time.perf_counter()
            if changed % 2:
                engine.add(changed, added[changed])
            else:
                engine.remove(removed[changed])
            changed += 1
            rates.longest_change_s = max(rates.longest_change_s, time.perf_counter() - began)
        engine.find_receivers(queries[matched % len(queries)], NOW)
        matched += 1
        after = time.perf_counter()
        rates.longest_wait_s, now = max(rates.longest_wait_s, after - now), after
    rates.rates.append(matched / (now - started))


if __name__ == "__main__":
    main()
