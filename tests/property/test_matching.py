"""The engine against the definition: after any additions, moves, expiries and removals both find the same (T4, T13)."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from milepost.matching import Matcher, MatcherLimits
from milepost.model import (
    ALWAYS,
    BEGINNING,
    FOREVER,
    Area,
    Around,
    Box,
    Circle,
    Corridor,
    EndpointId,
    Instant,
    Malformed,
    Message,
    MessageId,
    Place,
    Polygon,
    Reason,
    Subscription,
    SubscriptionId,
    Tag,
    TimeWindow,
    ToContent,
    Union,
)
from milepost.model.queries import And, HasTag, Not, OnTopic, Or, Query
from oracle import Oracle

CENTRES = ((50.0, 7.0), (0.0, 180.0), (-17.0, -179.999), (89.9, 30.0), (-90.0, 0.0), (0.0, 0.0))
TAGS = [Tag(text) for text in "abcdefgh"]
LEVELS = ["city", "7", "parking", "", "$sys"]
ENDPOINTS = 60
REFUSED = {Reason.QUERY_TOO_COMPLEX, Reason.QUERY_NEVER_TRUE, Reason.NEGATED_ONLY_FULL}
TURNS = examples(fast=400, full=1_500)
"""Number of changes of a long run."""


class Chance:
    """Random values from one seed, close enough to each other to match."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def place(self) -> Place:
        latitude, longitude = self.random.choice(CENTRES)
        spread = self.random.choice((0.0, 0.001, 0.1, 3.0))
        latitude = max(-90.0, min(90.0, latitude + self.random.uniform(-spread, spread)))
        longitude = longitude + self.random.uniform(-spread, spread) * self.random.choice((1, 1, 60))
        return Place(latitude, (longitude + 180.0) % 360.0 - 180.0)

    def distance_m(self) -> float:
        return self.random.choice((5.0, 120.0, 8_000.0, 300_000.0)) * self.random.uniform(0.5, 2.0)

    def area(self) -> Area:
        at = self.place()
        match self.random.randrange(6):
            case 0 | 1:
                return Circle(at, self.distance_m() if self.random.random() < 0.95 else 19_000_000.0)
            case 2:
                south, height = min(at.latitude, 85.0), self.random.choice((0.002, 0.5, 4.0))
                return Box(south, at.longitude, south + height, (at.longitude + 3 * height + 180.0) % 360.0 - 180.0)
            case 3:
                return self.diamond(at)
            case 4:
                latitude = max(-89.0, min(89.0, at.latitude))
                east = (at.longitude + self.random.uniform(0.5, 2.0) + 180.0) % 360.0 - 180.0
                path = (Place(latitude, at.longitude), Place(latitude * 0.99, east))
                return Corridor(path, self.distance_m())
            case _:
                return Union((Circle(at, self.distance_m()), self.diamond(self.place())))

    def diamond(self, at: Place) -> Polygon:
        latitude, half = max(-85.0, min(85.0, at.latitude)), self.random.choice((0.001, 0.4, 3.0))
        west, east = ((at.longitude + step + 180.0) % 360.0 - 180.0 for step in (-half, half))
        north = Place(latitude + half, at.longitude)
        return Polygon((north, Place(latitude, east), Place(latitude - half, at.longitude), Place(latitude, west), north))

    def topic(self) -> str:
        return "/".join(self.random.choices(LEVELS, k=self.random.randint(1, 4))) or "city"

    def topic_filter(self) -> str:
        levels = self.random.choices([*LEVELS, "+", "+"], k=self.random.randint(1, 4))
        return "/".join([*levels, "#"] if self.random.random() < 0.3 else levels) or "#"

    def query(self, depth: int = 3) -> Query:
        choice = self.random.random()
        if depth == 0 or choice < 0.35:
            return HasTag(self.random.choice(TAGS)) if self.random.random() < 0.7 else OnTopic(self.topic_filter())
        if choice < 0.5:
            return Not(self.query(depth - 1))
        parts = tuple(self.query(depth - 1) for _ in range(self.random.randint(2, 3)))
        return And(parts) if choice < 0.8 else Or(parts)

    def time_window(self, now: int) -> TimeWindow:
        start = self.random.choice((BEGINNING, max(0, now - self.random.randrange(10**11))))
        end = self.random.choice((FOREVER, now + self.random.randrange(10**11)))
        return ALWAYS if self.random.random() < 0.6 else TimeWindow(Instant(start), Instant(end))

    def subscription(self, now: int) -> Subscription:
        area = self.random.choice((None, None, self.area(), Around(self.distance_m())))
        share = self.random.choice((None, None, None, "g", "h"))
        query = self.shared_query() if share else self.query()
        label, qos = SubscriptionId(self.random.randrange(9)), self.random.randrange(3)
        return Subscription(EndpointId("x"), query, area, self.time_window(now), label, qos, share)

    def shared_query(self) -> Query:
        """Return one of a few queries, in either order, so that shares have members."""
        one, other = self.random.choice(((TAGS[0], TAGS[1]), (TAGS[1], TAGS[0]), (TAGS[0], TAGS[0])))
        return HasTag(one) if one == other else self.random.choice((And, Or))((HasTag(one), HasTag(other)))

    def message(self, now: int) -> Message:
        seen_at = Instant(max(0, now - self.random.randrange(10**10)))
        valid_until = Instant(self.random.choice((FOREVER, seen_at + self.random.randrange(10**11))))
        return Message(
            MessageId(1),
            EndpointId("x"),
            self.topic(),
            seen_at,
            frozenset(self.random.sample(TAGS, self.random.randint(0, 6))),
            ToContent(self.area()) if self.random.random() < 0.2 else ToContent(),
            self.place() if self.random.random() < 0.8 else None,
            valid_until,
        )


class Pair:
    """The engine and the definition, with the same inputs."""

    def __init__(self, seed: int) -> None:
        self.chance = Chance(seed)
        self.engine = Matcher(MatcherLimits(subscriptions_max=4096, endpoints_max=ENDPOINTS, atoms_max=4096))
        self.oracle = Oracle()
        self.now = 10**12
        self.choices = 0
        """How often a share had more than one member to choose from."""

    def change(self) -> None:
        random = self.chance.random
        rows = list(self.oracle.rows)
        match random.randrange(10):
            case 0 | 1 | 2 | 3:
                self.add()
            case 4 if rows:
                row = random.choice(rows)
                self.engine.remove(row)
                del self.oracle.rows[row]
            case 5 if rows:
                self.relocate(random.choice(rows))
            case 6:
                self.now += random.randrange(2 * 10**10)
                self.expire()
            case 7:
                gone = random.sample(range(ENDPOINTS), 3)
                self.engine.forget(gone)
                self.oracle.forget(gone)
            case _:
                self.move()

    def add(self) -> None:
        owner = self.chance.random.randrange(ENDPOINTS)
        try:
            asked = self.chance.subscription(self.now)
            row = self.engine.add(owner, asked)
        except Malformed as fault:
            if fault.reason in REFUSED:  # and nothing has changed
                return
            raise
        assert row not in self.oracle.rows
        self.oracle.rows[row] = (owner, asked)

    def relocate(self, row: int) -> None:
        owner, asked = self.oracle.rows[row]
        area = self.chance.random.choice((None, self.chance.area(), Around(self.chance.distance_m())))
        self.engine.relocate(row, area)
        self.oracle.rows[row] = (owner, replace(asked, area=area))

    def expire(self) -> None:
        over = {row for row, (_, asked) in self.oracle.rows.items() if asked.time_window.is_over(Instant(self.now))}
        assert set(self.engine.expire(Instant(self.now))) <= over
        while self.engine.expire(Instant(self.now)):
            pass
        for row in over:
            del self.oracle.rows[row]
        assert len(self.engine) == len(self.oracle.rows)

    def move(self) -> None:
        who = [self.chance.random.randrange(ENDPOINTS) for _ in range(self.chance.random.randint(1, 20))]
        where = [self.chance.place() for _ in who]
        self.engine.move(who, [place.latitude for place in where], [place.longitude for place in where])
        self.oracle.places.update(zip(who, where, strict=True))

    def compare(self) -> int:
        """Compare both; return the number of matching rows, so that a test can check that the comparison was not empty."""
        message = self.chance.message(self.now)
        wanted = self.oracle.matching_rows(message, Instant(self.now))
        receivers = self.engine.find_receivers(message, Instant(self.now))
        taken = set(receivers.rows.tolist())
        assert len(taken) == receivers.rows.size
        self.choices += self.oracle.check_taken(taken, wanted)
        owners = receivers.owners.tolist()
        assert len(owners) == len(set(owners))
        for index, owner in enumerate(owners):
            rows = set(receivers.rows_of(index).tolist())
            assert rows == {row for row in taken if self.oracle.rows[row][0] == owner}
            assert int(self.engine.qos_of(receivers)[index]) == max(self.oracle.rows[row][1].qos for row in rows)
        assert self.engine.subscription_ids_of(receivers.rows).tolist() == [
            self.oracle.rows[row][1].id for row in receivers.rows.tolist()
        ]
        area = self.chance.area()
        assert sorted(self.engine.find_inside(area).tolist()) == sorted(self.oracle.find_inside(area))
        return len(wanted)


@settings(max_examples=examples(fast=10, full=60))
@given(seed=st.integers(0, 2**32))
def test_the_engine_agrees_with_the_definition_after_any_changes(seed: int) -> None:
    pair = Pair(seed)
    for _ in range(40):
        pair.change()
        pair.compare()


@pytest.mark.parametrize("direct_max", [0, 2_000])
def test_the_engine_agrees_with_the_definition_over_many_changes(direct_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # T4
    monkeypatch.setattr("milepost.matching.area_index.DIRECT_MAX", direct_max)  # 0: always by place, else mostly by query
    monkeypatch.setattr("milepost.matching.points.MANY_LEAVES", direct_max)  # 0: see of each leaf whether it lies in the cap
    monkeypatch.setattr("milepost.matching.query_index.SINGLE_MAX", 3)  # so that pairs of tags are indexed too
    pair = Pair(7)
    matched = 0
    for _ in range(200):
        pair.add()
    for _ in range(TURNS):
        pair.change()
        matched += pair.compare()
    assert matched > TURNS, "the comparison must not be empty"
    assert pair.choices > TURNS / 2, "shares must have had members to choose from"


def test_removing_everything_leaves_no_state() -> None:
    pair = Pair(11)
    for _ in range(600):
        pair.add()
    assert len(pair.engine) > 300
    for row in list(pair.oracle.rows):
        pair.engine.remove(row)
    assert len(pair.engine) == len(pair.engine._queries) == len(pair.engine._queries._vocabulary) == 0
    assert not any(pair.engine._queries._vocabulary._cells)
    assert not any(size.around or len(size.fixed) for size in pair.engine._areas._size_classes.values())
    assert not pair.engine._queries._clauses_by_pair
    assert pair.engine._groups.count == 0


@given(seed=st.integers(0, 2**32), count=st.integers(1, 3000))
@settings(max_examples=examples(fast=8, full=30))
def test_points_are_found_at_their_last_position(seed: int, count: int) -> None:
    chance = Chance(seed)
    engine = Matcher(MatcherLimits(subscriptions_max=1, endpoints_max=3000, atoms_max=1))
    oracle = Oracle()
    random = np.random.default_rng(seed)
    for turn in range(6):
        who = random.integers(0, 3000, count)
        spread = random.choice([0.0001, 0.1, 5.0])
        latitudes = np.clip(CENTRES[turn][0] + random.uniform(-spread, spread, count), -90, 90)
        longitudes = (CENTRES[turn][1] + random.uniform(-spread, spread, count) + 180) % 360 - 180
        engine.move(who, latitudes, longitudes)
        oracle.places.update(
            (int(one), Place(float(lat), float(lon))) for one, lat, lon in zip(who, latitudes, longitudes, strict=True)
        )
        gone = random.integers(0, 3000, 200)
        engine.forget(gone)
        oracle.forget(gone.tolist())
        assert len(engine._endpoints) == len(oracle.places)
        at = Place(float(latitudes[0]), float(longitudes[0]))
        for area in (Circle(at, chance.distance_m()), chance.area()):
            assert set(engine.find_inside(area).tolist()) == oracle.find_inside(area)
