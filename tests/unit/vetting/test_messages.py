"""Messages: nobody speaks for another, from the future, too much at once or to where nobody is (M27, M28)."""

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
    verdict = vet_message(message, EndpointId(sender), limits or MessageLimits(), NOON, size=size, coverage=COVERAGE)
    return None if verdict is None else verdict.reason


def test_a_message_in_the_own_name_is_let_in() -> None:
    assert reason() is None
    assert reason(sender="truck-8") is Reason.SOURCE_FORGED


def test_a_message_may_come_from_the_past_but_not_from_the_future() -> None:
    assert reason(seen_s=-86_400) is None
    assert reason(seen_s=2) is None
    assert reason(seen_s=2.000_001) is Reason.CLOCK_AHEAD
    assert reason(seen_s=86_400, limits=MessageLimits(clock_ahead_s_max=0)) is None


def test_a_message_has_a_size_at_most() -> None:
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


def test_without_a_coverage_every_area_is_within_reach() -> None:
    message = Message(MessageId(1), TRUCK, "a", NOON, address=ToArea(FAR))
    assert vet_message(message, TRUCK, MessageLimits(), NOON, size=1) is None


def test_the_first_fault_of_the_chain_is_told_and_every_link_can_tell_one() -> None:
    reasons = []
    faults: list[dict[str, Any]] = [{"size": 10**6}, {"sender": "x"}, {"seen_s": 9.0}, {"address": ToArea(FAR)}]
    for first in range(len(faults)):
        given: dict[str, Any] = {}
        for fault in faults[first:]:
            given |= fault
        reasons.append(reason(**given))
    assert reasons == [check.reason for check in CHAIN]


def test_a_refusal_says_what_exactly_is_wrong() -> None:
    message = Message(MessageId(1), TRUCK, "a", Instant(NOON + 3 * SECOND_NS))
    details = []
    for sender, size in (("truck-8", 100), (TRUCK, 64_001), (TRUCK, 100)):
        verdict = vet_message(message, EndpointId(sender), MessageLimits(), NOON, size=size)
        assert verdict is not None
        details.append(verdict.detail)
    assert details == [
        "'truck-8' sent it as 'truck-7'",
        "the message has 64001 bytes, 64000 are allowed",
        "it was seen 3.0 s from now, 2 s are allowed",
    ]


@pytest.mark.parametrize(("bytes_max", "clock_ahead_s_max"), [(0, 2.0), (-1, 2.0), (100, -1.0), (100, nan), (100, inf)])
def test_limits_that_are_none_are_refused(bytes_max: int, clock_ahead_s_max: float) -> None:
    with pytest.raises(ValueError, match=r"bytes_max|clock_ahead_s_max"):
        MessageLimits(bytes_max, clock_ahead_s_max)
