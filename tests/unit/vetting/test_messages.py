"""Plausibility of messages: source, time, size and area (M27, M28)."""

from math import inf, nan
from typing import Any

import pytest

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.reasons import Reason
from milepost.vetting import MessageLimits, vet_message
from milepost.vetting.messages import CHAIN

NOON = Instant(1_893_499_200 * SECOND_NS)
TRUCK = EndpointId("truck-7")
COVERAGE = Circle(Place(50.0, 8.0), 5_000)
NEAR = Circle(Place(50.05, 8.0), 1_000)
FAR = Circle(Place(50.1, 8.0), 1_000)


def reason(
    address: Address | None = None,
    *,
    seen_s: float = 0,
    sender: str = TRUCK,
    size: int = 100,
    limits: MessageLimits | None = None,
) -> Reason | None:
    seen_at = Instant(NOON + round(seen_s * SECOND_NS))
    message = Message(MessageId(1), TRUCK, "a", seen_at, address=address or ToContent())
    limits = limits or MessageLimits()
    verdict = vet_message(message, EndpointId(sender), limits, NOON, size=size, coverage=COVERAGE)
    return None if verdict is None else verdict.reason


def test_a_message_with_the_senders_own_name_is_accepted() -> None:
    assert reason() is None
    assert reason(sender="truck-8") is Reason.SOURCE_FORGED


def test_the_time_of_a_message_has_the_bounds_of_reports() -> None:
    assert reason(seen_s=-60) is None
    assert reason(seen_s=-60.000_001) is Reason.CLOCK_BEHIND
    assert reason(seen_s=-86_400, limits=MessageLimits(clock_behind_s_max=0)) is None
    assert reason(seen_s=2) is None
    assert reason(seen_s=2.000_001) is Reason.CLOCK_AHEAD
    assert reason(seen_s=86_400, limits=MessageLimits(clock_ahead_s_max=0)) is None


def test_the_size_of_a_message_is_limited() -> None:
    limits = MessageLimits(bytes_max=200)
    assert reason(size=200, limits=limits) is None
    assert reason(size=201, limits=limits) is Reason.MESSAGE_TOO_LARGE


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (ToArea(NEAR), None),
        (ToArea(FAR), Reason.AREA_NOT_COVERED),
        (ToContent(NEAR), None),
        (ToContent(FAR), Reason.AREA_NOT_COVERED),
        (ToEndpoint(TRUCK), None),
        (ToEveryone(), None),
    ],
)
def test_an_area_must_touch_the_coverage(address: Address, expected: Reason | None) -> None:
    assert reason(address) is expected


def test_without_a_coverage_every_area_is_accepted() -> None:
    message = Message(MessageId(1), TRUCK, "a", NOON, address=ToArea(FAR))
    assert vet_message(message, TRUCK, MessageLimits(), NOON, size=1) is None


def test_the_first_failing_check_gives_the_reason_and_every_check_can_fail() -> None:
    reasons = []
    faults: list[dict[str, Any]] = [
        {"size": 10**6},
        {"sender": "x"},
        {"seen_s": 9.0},
        {"seen_s": -61.0},
        {"address": ToArea(FAR)},
    ]
    for first in range(len(faults)):
        given: dict[str, Any] = {}
        for fault in reversed(faults[first:]):
            given |= fault
        reasons.append(reason(**given))
    assert reasons == [check.reason for check in CHAIN]


def test_a_refusal_carries_a_precise_detail() -> None:
    message = Message(MessageId(1), TRUCK, "a", Instant(NOON + 3 * SECOND_NS))
    details = []
    for sender, size in (("truck-8", 100), (TRUCK, 64_001), (TRUCK, 100)):
        verdict = vet_message(message, EndpointId(sender), MessageLimits(), NOON, size=size)
        assert verdict is not None
        details.append(verdict.detail)
    assert details == [
        "the source is 'truck-7', but the sender is 'truck-8'",
        "the message has 64001 bytes, at most 64000 are allowed",
        "seen_at is 3.0 s in the future, at most 2 s are allowed",
    ]


@pytest.mark.parametrize(("bytes_max", "clock_ahead_s_max"), [(0, 2.0), (-1, 2.0), (100, -1.0), (100, nan), (100, inf)])
def test_invalid_limits_are_refused(bytes_max: int, clock_ahead_s_max: float) -> None:
    with pytest.raises(ValueError, match=r"bytes_max|clock_ahead_s_max"):
        MessageLimits(bytes_max, clock_ahead_s_max)
    with pytest.raises(ValueError, match="move_mps_max"):
        MessageLimits(move_mps_max=-1.0)
