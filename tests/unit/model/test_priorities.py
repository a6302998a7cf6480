"""Priority classes: emergency before the rest, sooner due the earlier the class (M29)."""

from itertools import pairwise

from milepost.model.instants import SECOND_NS
from milepost.model.priorities import DEADLINE_NS, Priority


def test_m29_sorted_by_class_an_emergency_comes_first() -> None:
    order = sorted([Priority.CONVENIENCE, Priority.TRAFFIC, Priority.EMERGENCY, Priority.SAFETY])
    assert order == [Priority.EMERGENCY, Priority.SAFETY, Priority.TRAFFIC, Priority.CONVENIENCE]


def test_every_class_has_a_deadline_and_a_lower_class_a_later_one() -> None:
    assert set(DEADLINE_NS) == set(Priority)
    assert all(DEADLINE_NS[one] < DEADLINE_NS[other] for one, other in pairwise(sorted(Priority)))


def test_an_emergency_is_due_within_the_budget_of_50_ms() -> None:
    assert DEADLINE_NS[Priority.EMERGENCY] == SECOND_NS // 20
