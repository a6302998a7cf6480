"""Messages: nobody speaks for another, from the future, too much at once or to where nobody is (M27, M28)."""

from math import inf, nan
from typing import Any

import pytest

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place, moved
from milepost.model.reasons import Reason
from milepost.vetting import MessageLimits, Stand, vet_message
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
    place: Place | None = None,
    stand: Stand | None = None,
) -> Reason | None:
    seen_at = Instant(NOON + round(seen_s * SECOND_NS))
    message = Message(MessageId(1), TRUCK, "a", seen_at, place=place, address=address or ToContent())
    limits = limits or MessageLimits()
    verdict = vet_message(message, EndpointId(sender), limits, NOON, size=size, coverage=COVERAGE, stand=stand)
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
    faults.append({"place": Place(51.0, 8.0), "stand": Stand(500.0, Place(50.0, 8.0), NOON)})
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


@pytest.mark.parametrize(
    ("north_m", "seen_s", "expected"),
    [
        (499, 0, None),
        (501, 0, Reason.PLACE_NOT_SEEN),
        (1_699, -10, None),  # 10 s at 120 m/s it may have gone since
        (1_701, -10, Reason.PLACE_NOT_SEEN),
        (739, 2, None),  # or in between
        (741, 2, Reason.PLACE_NOT_SEEN),
    ],
)
def test_who_must_be_near_cannot_speak_of_what_it_cannot_have_seen(
    north_m: float, seen_s: float, expected: Reason | None
) -> None:
    # M27
    here = Place(50.0, 8.0)
    assert reason(place=moved(here, 0.0, north_m), seen_s=seen_s, stand=Stand(500.0, here, NOON)) is expected
    assert reason(place=moved(here, 0.0, north_m), seen_s=seen_s) is None


def test_who_must_be_near_says_first_where_it_is_unless_it_names_no_place() -> None:
    nowhere = Stand(500.0, None, Instant(0))
    assert reason(place=Place(50.0, 8.0), stand=nowhere) is Reason.PLACE_NOT_SEEN
    assert reason(stand=nowhere) is None


def test_where_any_speed_is_believed_everybody_may_have_been_anywhere() -> None:
    limits, stand = MessageLimits(move_mps_max=0), Stand(500.0, Place(50.0, 8.0), NOON)
    assert reason(place=Place(51.0, 8.0), stand=stand, limits=limits) is None


@pytest.mark.parametrize(("bytes_max", "clock_ahead_s_max"), [(0, 2.0), (-1, 2.0), (100, -1.0), (100, nan), (100, inf)])
def test_limits_that_are_none_are_refused(bytes_max: int, clock_ahead_s_max: float) -> None:
    with pytest.raises(ValueError, match=r"bytes_max|clock_ahead_s_max"):
        MessageLimits(bytes_max, clock_ahead_s_max)
    with pytest.raises(ValueError, match="move_mps_max"):
        MessageLimits(move_mps_max=-1.0)
