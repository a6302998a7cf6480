from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved
from milepost.pipelines.backtest import ReplayedIncident, counts, page, pairs, row

HOME = Place(40.7608, -111.891)


def life(name: str, raised_s: int, cleared_s: int | None, *, north_m: float = 0.0, kind: str = "Collision") -> ReplayedIncident:
    cleared_at = None if cleared_s is None else Instant(cleared_s * SECOND_NS)
    return ReplayedIncident(name, kind, Instant(raised_s * SECOND_NS), cleared_at, moved(HOME, 0.0, north_m), 100.0, 5, 3)


def told(a: list[ReplayedIncident], b: list[ReplayedIncident]) -> list[tuple[str | None, str | None]]:
    return [(pair.a.id if pair.a else None, pair.b.id if pair.b else None) for pair in pairs(a, b)]


def test_the_same_thing_by_two_rules_stands_in_one_line() -> None:
    assert told([life("a", 10, 50)], [life("b", 20, None, north_m=150.0)]) == [("a", "b")]


def test_another_time_another_place_or_another_kind_is_another_thing() -> None:
    b = [life("after", 51, 90), life("far", 10, 50, north_m=250.0), life("other", 10, 50, kind="Obstacle")]
    assert told([life("a", 10, 50)], b) == [("a", None), (None, "far"), (None, "other"), (None, "after")]


def test_of_several_those_raised_nearest_to_each_other_go_together_and_each_once() -> None:
    a = [life("a1", 10, None), life("a2", 40, None)]
    assert told(a, [life("b", 35, None)]) == [("a1", None), ("a2", "b")]
    assert told([life("b", 35, None)], a) == [(None, "a1"), ("b", "a2")]


def test_what_is_shown_of_a_comparison_counts_and_colours_it() -> None:
    found = pairs([life("a", 10, 50), life("both", 100, 200)], [life("both", 100, 200), life("b", 300, None)])
    assert counts(found) == "3 incidents: 1 only in A, 1 only in B, 1 in both"
    assert row(found[0])[:5] == ("A", "Collision", "1970-01-01T00:00:10Z", "-", "1970-01-01T00:00:50Z")
    drawn = page("rules", found)
    assert [drawn.count(f'class="{sort}"><circle') for sort in ("bad", "other", "good")] == [1, 1, 1]
