"""Matching beside its peers: `make bench-matching` (QUICK=1: smaller, within a minute).

Each part runs in a process of its own, so that its memory can be told; peers answer the same questions in the same run.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from statistics import median
from typing import Unpack

import numpy as np
from bench.matching_workload import (
    NOW,
    NOWHERE,
    around_me,
    asking,
    circles,
    filtering,
    formulas,
    hazards_at,
    on_topic,
    scattered,
    tagged_messages,
    topic_filters,
    topics,
)
from numpy.typing import NDArray
from paho.mqtt.matcher import MQTTMatcher

from bench.harness import QUICK, Goal, Row, a_second, median_us, publish, resident_bytes, row
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
CHANGES_A_SECOND = 1_000
WORDS_DRAWN = {True: "words drawn evenly", False: "words drawn by Zipf's law"}

Searcher = RedisGeo | Tile38 | StrTree | Scan


def main() -> None:
    rows: list[Row] = []
    notes: list[str] = []
    parts: list[tuple[str, Callable[[], tuple[list[Row], list[str]]]]] = [
        ("who is in here", places),
        ("topic filters", topic_part),
        ("around me", around_part),
        *((f"{count:,} tag formulas, {WORDS_DRAWN[is_even]}", FormulaPart(count, is_even)) for count, is_even in FORMULAS),
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


def full(**goal: Unpack[Goal]) -> Goal:
    """A goal that is judged in the full run alone, because the quick one does less."""
    return Goal() if QUICK else goal


def places() -> tuple[list[Row], list[str]]:
    """Endpoints that move: who is in a circle, how fast positions are taken in."""
    latitudes, longitudes = scattered(ENDPOINTS)
    before = resident_bytes()
    engine = Matcher()
    everyone = np.arange(ENDPOINTS, dtype=np.int32)
    for first in range(0, ENDPOINTS, BATCH):
        some = slice(first, first + BATCH)
        engine.move(everyone[some], latitudes[some], longitudes[some])
    each = (resident_bytes() - before) / ENDPOINTS
    rows, notes = [], []
    with running_redis() as redises, running_tile38() as tile38:
        servers: list[Searcher] = [*redises, *([tile38] if tile38 else [])]
        notes += [] if redises else ["Redis is not installed: left out"]
        notes += [] if tile38 else ["Tile38 could not be had or built here: left out"]
        empty = redises[0].bytes_used() if redises else 0
        peers: list[Searcher] = [*servers, StrTree(), Scan()]
        for peer in peers:
            if peer not in redises[1:]:  # the second client asks the same server
                peer.load(latitudes, longitudes)
        redis_each = (redises[0].bytes_used() - empty) / ENDPOINTS if redises else None
        for share, ratio_min in ((0.001, 30.0), (0.01, 100.0)):
            rows += search_rows(engine, peers, share, ratio_min)
        rows += update_rows(engine, redises[-1] if redises else None, latitudes, longitudes)
    rows.append(row("memory an endpoint", "bytes", each, "Redis GEO", redis_each, less_is_better=True, ours_max=100))
    return rows, notes


def search_rows(engine: Matcher, peers: list[Searcher], share: float, ratio_min: float) -> list[Row]:
    """The same circles for all; we are asked again beside each peer, and the median of that stands in every row."""
    asked = circles(share, 40)
    found: dict[str, float] = {}
    ours = []
    for peer in peers:
        mine = sum(engine.who_is_in(circle).size for circle in asked[:5])
        theirs = sum(peer.inside(circle) for circle in asked[:5])
        assert abs(mine - theirs) <= peer.slack * mine, f"{peer.name} finds {theirs}, we find {mine}: not the same question"
        ours += [median_us(engine.who_is_in, asked) for _ in range(3)]
        found[peer.name] = median_us(peer.inside, asked)
        if isinstance(peer, RedisGeo):
            found["Redis, by the server's own count"] = peer.server_us(asked)
    work = f"who_is_in, {ENDPOINTS:,} endpoints, circle holding {share:.1%}"
    goals = {"Redis GEOSEARCH": full(ratio_min=ratio_min)}
    return [
        row(work, "µs", median(ours), name, value, less_is_better=True, **goals.get(name, Goal()))
        for name, value in found.items()
    ]


def update_rows(
    engine: Matcher, redis_geo: RedisGeo | None, latitudes: NDArray[np.float64], longitudes: NDArray[np.float64]
) -> list[Row]:
    """Reports of vehicles that go up to 30 m/s, in any order, a thousand at a time; and searches between two batches."""
    random = np.random.default_rng(6)
    work = f"position updates, batches of {BATCH:,}"
    rates: list[float] = []
    reports: list[tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]] = []
    for _ in range(3):
        latitudes = latitudes + random.uniform(-3e-4, 3e-4, latitudes.size)
        order = random.permutation(ENDPOINTS).astype(np.int32)
        batches = [order[first : first + BATCH] for first in range(0, ENDPOINTS, BATCH)]
        reports = [(who, latitudes[who], longitudes[who]) for who in batches]
        rates.append(a_second(lambda report: engine.move(*report), reports, rounds=1) * BATCH)
    ours = max(rates)
    rows = []
    if redis_geo is not None:
        theirs = a_second(lambda report: redis_geo.move(*report), reports[:20], rounds=3) * BATCH
        rows.append(row(work, "updates/s", ours, "Redis GEOADD", theirs, **full(ours_min=5e6)))
    tree = a_second(lambda _: StrTree().load(latitudes, longitudes), [None], rounds=1) * ENDPOINTS
    rows.append(row(work, "updates/s", ours, "shapely STRtree, built again", tree))
    asked = circles(0.001, 300, seed=7)
    at_rest = median_us(engine.who_is_in, asked)
    taken = []
    for circle, report in zip(asked, reports * 3, strict=False):
        engine.move(*report)
        started = time.perf_counter()
        engine.who_is_in(circle)
        taken.append((time.perf_counter() - started) * 1e6)
    between = median(taken)
    name = "who_is_in (0.1%) between two batches of updates"
    rows.append(row(name, "µs", between, "ours, nothing moving", at_rest, less_is_better=True, ratio_min=0.5))
    return rows


def topic_part() -> tuple[list[Row], list[str]]:
    """Topic filters with wildcards, one match a message, every topic a new one."""
    before = resident_bytes()
    engine = Matcher()
    for number, topic_filter in enumerate(topic_filters(MANY)):
        engine.add(number, filtering(topic_filter))
    each = (resident_bytes() - before) / MANY
    asked = [on_topic(topic) for topic in topics(20_000, MANY)]
    assert all(len(engine.who_wants(message, NOW)) == 1 for message in asked[:1000]), "each topic passes one filter"
    ours = a_second(lambda message: engine.who_wants(message, NOW), asked)
    before = resident_bytes()
    trie = MQTTMatcher()  # type: ignore[no-untyped-call]
    for number, topic_filter in enumerate(topic_filters(MANY)):
        trie[topic_filter] = number
    trie_each = (resident_bytes() - before) / MANY
    theirs = a_second(lambda message: list(trie.iter_match(message.topic)), asked)  # type: ignore[no-untyped-call]
    work = f"topic filters with wildcards, {MANY:,}, one match each"
    memory = f"memory a subscription, {MANY:,} topic filters"
    return [
        row(work, "messages/s", ours, "paho's matcher", theirs, **full(ours_min=100_000)),
        row(memory, "bytes", each, "paho's matcher", trie_each, less_is_better=True, **full(ours_max=300)),
    ], []


def around_part() -> tuple[list[Row], list[str]]:
    """Everyone asks for the same within some distance of themselves: only the place of the message tells them apart."""
    engine, scan = Matcher(), Scan()
    latitudes, longitudes = scattered(MANY)
    engine.move(np.arange(MANY), latitudes, longitudes)
    scan.load(latitudes, longitudes)
    wish = around_me(800.0)
    for number in range(MANY):
        engine.add(number, wish)
    asked = hazards_at(circles(0.0001, 300))
    for message in asked[:20]:
        assert message.place is not None
        assert len(engine.who_wants(message, NOW)) == scan.inside(Circle(message.place, 800.0))
    ours = a_second(lambda message: engine.who_wants(message, NOW), asked)
    theirs = a_second(lambda message: scan.inside(Circle(message.place or NOWHERE, 800.0)), asked[:20])
    work = f"one formula, {MANY:,} times, each within 800 m of its owner"
    return [row(work, "messages/s", ours, "plain scan", theirs)], []


@dataclass(frozen=True)
class FormulaPart:
    """Subscriptions by formula: how fast messages are matched, at rest and while subscriptions come and go."""

    count: int
    is_even: bool

    def __call__(self) -> tuple[list[Row], list[str]]:
        before = resident_bytes()
        engine = Matcher()
        for number, query in enumerate(formulas(self.count, is_even=self.is_even)):
            engine.add(number, asking(query))
        each = (resident_bytes() - before) / self.count
        asked = tagged_messages(500, is_even=self.is_even)
        takers = float(np.mean([len(engine.who_wants(message, NOW)) for message in asked]))
        ours = a_second(lambda message: engine.who_wants(message, NOW), asked)
        scan = FormulaScan(formulas(self.count, is_even=self.is_even))
        for message in asked[:20]:
            assert scan.matching(message.tags).tolist() == sorted(engine.who_wants(message, NOW).owners.tolist())
        theirs = a_second(lambda message: scan.matching(message.tags), asked[:10])
        how = f"{self.count:,} formulas, {WORDS_DRAWN[self.is_even]}"
        work = f"{how}, {takers:,.1f} takers a message"
        rows = [row(work, "messages/s", ours, "plain scan", theirs, ours_min=FORMULAS_GOAL[self.count])]
        if self.count == FORMULAS_MAX:
            rows.append(row(f"memory a subscription, {how}", "bytes", each, ours_max=300))
            rows += churn_rows(engine, self.count, how, is_even=self.is_even)
        return rows, []


def churn_rows(engine: Matcher, count: int, how: str, *, is_even: bool) -> list[Row]:
    """Match without pause while a thousand times a second a subscription is removed or another one added.

    Slices with and without changes take turns, so that what else the machine does falls on both alike.
    """
    asked = tagged_messages(500, is_even=is_even, seed=8)
    slices = round(CHURN_S / SLICE_S)
    a_slice = round(CHANGES_A_SECOND * SLICE_S)
    coming = [asking(query) for query in islice(formulas(slices * a_slice, is_even=is_even, seed=9), slices * a_slice)]
    leaving = np.random.default_rng(10).permutation(count)[: slices * a_slice].tolist()
    at_rest, churning = Pace(), Pace()
    for number in range(slices):
        some = slice(number * a_slice, (number + 1) * a_slice)
        match_for_a_slice(engine, asked, [], [], at_rest)
        match_for_a_slice(engine, asked, coming[some], leaving[some], churning)
    work = f"{CHANGES_A_SECOND:,} changes/s at {how}"
    return [
        row(f"rate, {work}", "messages/s", median(churning.rates), "ours, without changes", median(at_rest.rates), ratio_min=0.8),
        row(f"longest change, {work}", "ms", churning.longest_change_s * 1e3, ours_max=10),
        row(
            f"longest wait for an answer, {work}",
            "ms",
            churning.longest_wait_s * 1e3,
            "ours, without changes",
            at_rest.longest_wait_s * 1e3,
            less_is_better=True,
        ),
    ]


@dataclass
class Pace:
    """How fast messages were matched, slice by slice; how long the longest change and the longest wait took."""

    rates: list[float] = field(default_factory=list)
    longest_change_s: float = 0.0
    longest_wait_s: float = 0.0


def match_for_a_slice(engine: Matcher, asked: list[Message], coming: list[Subscription], leaving: list[int], pace: Pace) -> None:
    """Match without pause, making the changes that are due before each message; a wait has both in it."""
    started = now = time.perf_counter()
    matched = changed = 0
    while now - started < SLICE_S:
        due = min(len(coming), int((now - started) * CHANGES_A_SECOND))
        while changed < due:
            began = time.perf_counter()
            if changed % 2:
                engine.add(changed, coming[changed])
            else:
                engine.remove(leaving[changed])
            changed += 1
            pace.longest_change_s = max(pace.longest_change_s, time.perf_counter() - began)
        engine.who_wants(asked[matched % len(asked)], NOW)
        matched += 1
        after = time.perf_counter()
        pace.longest_wait_s, now = max(pace.longest_wait_s, after - now), after
    pace.rates.append(matched / (now - started))


if __name__ == "__main__":
    main()
