"""Event kinds: Mercury's own (M21), and refused ones."""

import pytest

from milepost.model.incidents import EVENT_KINDS, BadPredicate, EventKind, fields_of
from milepost.model.incidents.kinds import MercuryKind
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed
from unit.incidents.events import HOME, Event, after, incidents_from


def test_m21_every_kind_of_mercurys_has_rules_but_the_query() -> None:
    assert [kind.topic for kind in EVENT_KINDS] == [
        kind.value.topic for kind in MercuryKind if kind is not MercuryKind.AREA_QUERY
    ]
    assert len({kind.name for kind in EVENT_KINDS}) == 6


def test_m22_an_emergency_is_hot_with_one_report_and_raised_by_edges_only() -> None:
    emergency = next(kind for kind in EVENT_KINDS if kind.name == "Emergency")
    others = [kind for kind in EVENT_KINDS if kind is not emergency]
    assert emergency.predicate == "reports >= 1"
    assert emergency.alert is None
    assert emergency.interval_s <= 1
    assert all(kind.alert for kind in others)
    assert all(kind.interval_s > emergency.interval_s for kind in others)


@pytest.mark.parametrize(
    ("speeds", "is_one"),
    [
        ([0.0] * 10, True),
        ([3.0] * 10, True),
        ([12.0] * 10, False),
        ([None] * 10, True),
        ([None] * 10 + [12.0] * 2, False),
        ([None] * 10 + [2.0] * 2, True),
        ([None] * 9, False),
    ],
)
def test_congestion_needs_low_speeds_or_without_reported_speeds_congestion_reports(
    speeds: list[float | None], *, is_one: bool
) -> None:
    congestion = next(kind for kind in EVENT_KINDS if kind.name == "Congestion")
    fields: list[dict[str, float]] = [{} if speed is None else {"speed_mps": speed} for speed in speeds]
    found = [Event(f"car-{number % 5}", HOME, after(1.0), some) for number, some in enumerate(fields)]
    changes = incidents_from(congestion, found).advance(after(31))
    assert bool(changes) == is_one
    assert congestion.from_reports
    assert fields_of(congestion.condition) == {"speed_mps"}


def test_priority_and_validity_are_those_of_the_kind() -> None:
    collision = next(kind for kind in EVENT_KINDS if kind.name == "Collision")
    assert (collision.priority, collision.valid_s) == (Priority.SAFETY, 600)


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "a-b"},
        {"name": "9a"},
        {"name": "x" * 33},
        {"alert": "t"},
        {"side_m": 1.0},
        {"side_m": 60_000.0},
        {"interval_s": 0.0},
        {"slots": 0},
        {"slots": 1_001},
        {"radius_m_min": 0.0},
        {"margin_m": -1.0},
        {"clear_after_s": -1.0},
        {"valid_s": 0.0},
        {"valid_s": float("nan")},
    ],
)
def test_rules_out_of_range_are_refused(options: dict[str, object]) -> None:
    rules: dict[str, object] = {"name": "Ice", "topic": "t", "predicate": "reports > 1", "alert": "Alert/t"}
    with pytest.raises(ValueError, match=str(next(iter(options))).removesuffix("_s") if "alert" not in options else "themselves"):
        EventKind(**{**rules, **options})  # type: ignore[arg-type]


def test_an_invalid_topic_or_predicate_is_refused() -> None:
    with pytest.raises(Malformed):
        EventKind("Ice", "a/#", "reports > 1", None)
    with pytest.raises(Malformed):
        EventKind("Ice", "t", "reports > 1", "a/+")
    with pytest.raises(BadPredicate):
        EventKind("Ice", "t", "reports >", None)
