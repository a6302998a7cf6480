from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved
from milepost.pipelines.backtest import ReplayedIncident, page, pair_incidents, summary, table_row

HOME = Place(40.7608, -111.891)


def incident(
    name: str, raised_s: int, cleared_s: int | None, *, north_m: float = 0.0, kind: str = "Collision"
) -> ReplayedIncident:
    cleared_at = None if cleared_s is None else Instant(cleared_s * SECOND_NS)
    return ReplayedIncident(name, kind, Instant(raised_s * SECOND_NS), cleared_at, moved(HOME, 0.0, north_m), 100.0, 5, 3)


def paired_ids(a: list[ReplayedIncident], b: list[ReplayedIncident]) -> list[tuple[str | None, str | None]]:
    return [(pair.a.id if pair.a else None, pair.b.id if pair.b else None) for pair in pair_incidents(a, b)]


def test_the_same_incident_by_two_rules_is_one_pair() -> None:
    assert paired_ids([incident("a", 10, 50)], [incident("b", 20, None, north_m=150.0)]) == [("a", "b")]


def test_incidents_of_another_time_place_or_kind_are_not_paired() -> None:
    b = [incident("after", 51, 90), incident("far", 10, 50, north_m=250.0), incident("other", 10, 50, kind="Obstacle")]
    assert paired_ids([incident("a", 10, 50)], b) == [("a", None), (None, "far"), (None, "other"), (None, "after")]


def test_of_several_candidates_those_raised_nearest_in_time_are_paired_once() -> None:
    a = [incident("a1", 10, None), incident("a2", 40, None)]
    assert paired_ids(a, [incident("b", 35, None)]) == [("a1", None), ("a2", "b")]
    assert paired_ids([incident("b", 35, None)], a) == [(None, "a1"), ("b", "a2")]


def test_a_comparison_is_shown_with_counts_and_colours() -> None:
    found = pair_incidents(
        [incident("a", 10, 50), incident("both", 100, 200)], [incident("both", 100, 200), incident("b", 300, None)]
    )
    assert summary(found) == "3 incidents: 1 only in A, 1 only in B, 1 in both"
    assert table_row(found[0])[:5] == ("A", "Collision", "1970-01-01T00:00:10Z", "-", "1970-01-01T00:00:50Z")
    drawn = page("rules", found)
    assert [drawn.count(f'class="{style}"><circle') for style in ("bad", "other", "good")] == [1, 1, 1]
