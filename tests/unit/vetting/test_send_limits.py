"""Limits of the rights of a message: class, validity, area and distance (M27, M29)."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from milepost.model.areas import Area, Box, Circle
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import Place, moved
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.vetting import AccessAction, AccessList, AccessRule, ClientIdentity, MessageLimits, SendCase, vet_limits
from milepost.vetting.access import SendRight
from milepost.vetting.send_limits import LIMIT_CHECKS, UNKNOWN_POSITION, SenderPosition

NOON = Instant(1_893_499_200 * SECOND_NS)
HERE = Place(50.0, 8.0)
LIMITS = MessageLimits()
KNOWN = SenderPosition(HERE, NOON, 60.0)


def north(distance_m: float) -> Place:
    return moved(HERE, 0.0, distance_m)


def case(
    *,
    priority: Priority = Priority.CONVENIENCE,
    own: Priority = Priority.CONVENIENCE,
    valid_s: float = 60.0,
    seen_s: float = 0.0,
    place: Place | None = None,
    area: Area | None = None,
    position: SenderPosition = KNOWN,
    limits: MessageLimits = LIMITS,
) -> SendCase:
    valid_until = FOREVER if valid_s == inf else Instant(NOON + round(valid_s * SECOND_NS))
    seen_at = Instant(NOON + round(seen_s * SECOND_NS))
    return SendCase(priority, own, valid_until, seen_at, NOON, place, area, position, limits)


def right(action: AccessAction = AccessAction.GEOCAST, **limits: Any) -> SendRight:
    return SendRight(action, "rule 1", AccessRule(True, action, "#", **limits))


def reason(one: SendRight, **given: Any) -> Reason | None:
    refused = vet_limits((one,), case(**given))
    return None if refused is None else refused.reason


@pytest.mark.parametrize(
    ("rule_class", "own", "stated", "expected"),
    [
        (Priority.SAFETY, Priority.CONVENIENCE, Priority.SAFETY, None),
        (Priority.SAFETY, Priority.CONVENIENCE, Priority.EMERGENCY, Reason.PRIORITY_TOO_HIGH),
        (Priority.SAFETY, Priority.EMERGENCY, Priority.EMERGENCY, None),  # the topic's own class
        (Priority.TRAFFIC, Priority.CONVENIENCE, Priority.SAFETY, Reason.PRIORITY_TOO_HIGH),
        (Priority.EMERGENCY, Priority.CONVENIENCE, Priority.EMERGENCY, None),
    ],
)
def test_a_message_may_state_the_class_of_its_topic_and_that_of_the_rule(
    rule_class: Priority, own: Priority, stated: Priority, expected: Reason | None
) -> None:
    assert reason(right(AccessAction.PUBLISH, priority=rule_class), priority=stated, own=own) is expected


def test_the_class_of_a_topic_does_not_lift_the_limit_of_a_geocast() -> None:
    urgent = {"priority": Priority.EMERGENCY, "own": Priority.EMERGENCY}
    for action in (AccessAction.GEOCAST, AccessAction.SEND):
        geocast = SendRight(AccessAction.GEOCAST, "rule 1", AccessRule(True, action, "#", priority=Priority.TRAFFIC))
        assert reason(geocast, **urgent) is Reason.PRIORITY_TOO_HIGH


@pytest.mark.parametrize(
    ("valid_s", "expected"), [(60.0, None), (62.0, None), (62.1, Reason.VALIDITY_TOO_LONG), (inf, Reason.VALIDITY_TOO_LONG)]
)
def test_the_validity_is_limited_from_now_on_with_room_for_a_clock_ahead(valid_s: float, expected: Reason | None) -> None:
    assert reason(right(valid_s=60.0), valid_s=valid_s) is expected
    assert reason(right(), valid_s=valid_s) is None


@pytest.mark.parametrize(
    ("area", "expected"),
    [
        (Circle(HERE, 1_000.0), None),
        (Circle(HERE, 1_001.0), Reason.AREA_OVER_LIMIT),
        (Box(49.0, 7.0, 51.0, 9.0), Reason.AREA_OVER_LIMIT),
        (None, None),
    ],
)
def test_the_area_is_limited_by_the_circle_around_it(area: Area | None, expected: Reason | None) -> None:
    assert reason(right(radius_m=1_000.0), area=area) is expected


@pytest.mark.parametrize(
    ("centre_m", "radius_m", "expected"),
    [
        (0.0, 4_990.0, None),
        (4_000.0, 990.0, None),
        (4_000.0, 1_010.0, Reason.PLACE_NOT_SEEN),  # a part of it is too far away
        (500_000.0, 10.0, Reason.PLACE_NOT_SEEN),
        (0.0, 20_000_000.0, Reason.PLACE_NOT_SEEN),
    ],
)
def test_an_area_must_be_wholly_near_the_sender(centre_m: float, radius_m: float, expected: Reason | None) -> None:
    assert reason(right(within_m=5_000.0), area=Circle(north(centre_m), radius_m)) is expected


@pytest.mark.parametrize(
    ("north_m", "seen_s", "expected"),
    [
        (499, 0, None),
        (501, 0, Reason.PLACE_NOT_SEEN),
        (1_699, -10, None),  # it may have moved for 10 s at 120 m/s since
        (1_701, -10, Reason.PLACE_NOT_SEEN),
        (739, 2, None),  # or before
        (741, 2, Reason.PLACE_NOT_SEEN),
        (7_699, -60, None),
        (7_701, -61, Reason.PLACE_NOT_SEEN),  # but not for longer than a message may be old
        (8_152_000, -172_800, Reason.PLACE_NOT_SEEN),
    ],
)
def test_a_sender_cannot_name_a_place_that_it_cannot_have_been_near(
    north_m: float, seen_s: float, expected: Reason | None
) -> None:
    # M27
    near = right(AccessAction.PUBLISH, within_m=500.0)
    assert reason(near, place=north(north_m), seen_s=seen_s) is expected
    assert reason(right(AccessAction.PUBLISH), place=north(north_m), seen_s=seen_s) is None


def test_movement_is_limited_where_old_messages_are_not() -> None:
    any_age = MessageLimits(clock_behind_s_max=0)
    long_ago = {"position": KNOWN._replace(seen_at=Instant(1)), "limits": any_age}
    assert reason(right(within_m=500.0), place=north(7_699.0), **long_ago) is None
    assert reason(right(within_m=500.0), place=north(7_701.0), **long_ago) is Reason.PLACE_NOT_SEEN


def test_without_a_speed_no_movement_is_allowed_for() -> None:
    still = MessageLimits(move_mps_max=0)
    assert reason(right(within_m=500.0), place=north(501.0), seen_s=-10, limits=still) is Reason.PLACE_NOT_SEEN


def test_a_sender_without_a_report_may_name_no_place_and_no_area() -> None:
    near = right(within_m=500.0)
    assert reason(near, place=HERE, position=UNKNOWN_POSITION) is Reason.PLACE_NOT_SEEN
    assert reason(near, area=Circle(HERE, 1.0), position=UNKNOWN_POSITION) is Reason.PLACE_NOT_SEEN
    assert reason(near, position=UNKNOWN_POSITION) is None


@pytest.mark.parametrize(("history_s", "expected"), [(0.0, Reason.POSITION_TOO_NEW), (4.9, Reason.POSITION_TOO_NEW), (5.0, None)])
def test_a_position_counts_once_the_reports_reach_back(history_s: float, expected: Reason | None) -> None:
    position = KNOWN._replace(history_s=history_s)
    assert reason(right(within_m=500.0), place=HERE, position=position) is expected
    assert reason(right(), place=HERE, position=position) is None
    assert reason(right(within_m=500.0), place=HERE, position=position, limits=MessageLimits(rights_after_s=0)) is None


def test_the_limits_of_all_rights_hold_and_the_refusal_names_the_rule() -> None:
    wide, narrow = right(AccessAction.PUBLISH), replace(right(radius_m=10.0), decided_by="rule 2")
    for rights in ((wide, narrow), (narrow, wide)):
        refused = vet_limits(rights, case(area=Circle(HERE, 50.0)))
        assert refused is not None
        assert refused.detail == "the area has a radius of 50 m, at most 10 m are allowed (rule 2)"


def test_every_check_can_fail_and_the_first_gives_the_reason() -> None:
    tight = right(within_m=10.0, radius_m=10.0, valid_s=10.0, priority=Priority.TRAFFIC)
    given: dict[str, Any] = {"priority": Priority.SAFETY, "valid_s": inf, "area": Circle(north(100.0), 50.0)}
    given["position"] = UNKNOWN_POSITION
    found = []
    for repaired in (
        {"priority": Priority.TRAFFIC},
        {"valid_s": 10.0},
        {"area": Circle(north(100.0), 5.0)},
        {"position": KNOWN._replace(history_s=0.0)},
        {"position": KNOWN},
        {},
    ):
        found.append(reason(tight, **given))
        given |= repaired
    assert found == [check.reason for check in LIMIT_CHECKS]


def test_a_default_geocast_is_near_not_urgent_and_not_for_long() -> None:
    default = AccessList().right(ClientIdentity("a", "ada"), AccessAction.GEOCAST, "a")
    near = Circle(HERE, 1_000.0)
    assert reason(default, area=near, priority=Priority.TRAFFIC, valid_s=3_600.0) is None
    assert reason(default, area=near, priority=Priority.SAFETY) is Reason.PRIORITY_TOO_HIGH
    assert reason(default, area=near, valid_s=inf) is Reason.VALIDITY_TOO_LONG
    assert reason(default, area=Circle(HERE, 5_001.0)) is Reason.PLACE_NOT_SEEN
