"""Subscriptions combine content, location and time (T3); a notice of a match has no content (T5: the type only)."""

from dataclasses import fields
from typing import Any

import pytest

from milepost.model.areas import Around, Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.queries import parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.subscriptions import (
    SHARE_NAME_CHARACTERS_MAX,
    SUBSCRIPTION_ID_MAX,
    Notice,
    Subscription,
    SubscriptionId,
    notice_of,
)
from milepost.model.tags import Tag
from milepost.model.time_windows import ALWAYS, TimeWindow

BUS = EndpointId("bus-3")
ICE = parse_query("ice")
HERE = Place(40.0, -111.0)
USUAL: dict[str, Any] = {
    "subscription": SubscriptionId(1),
    "message": MessageId(2),
    "source": BUS,
    "topic": "Collision",
    "tags": frozenset([Tag("ice")]),
    "place": HERE,
    "seen_at": Instant(5),
}


def refused(**changes: Any) -> Reason:
    with pytest.raises(Malformed) as caught:
        Subscription(**({"owner": BUS, "query": ICE} | changes))
    return caught.value.reason


def test_the_defaults_of_a_subscription_are_everywhere_always_and_not_shared() -> None:
    plain = Subscription(BUS, ICE)
    assert (plain.area, plain.time_window, plain.share, plain.qos, plain.id) == (None, ALWAYS, None, 1, 0)


def test_t3_a_subscription_combines_content_location_and_time() -> None:
    subscription = Subscription(BUS, ICE, Circle(HERE, 500.0), TimeWindow(Instant(5), Instant(9)), SubscriptionId(7), 2)
    assert (subscription.query, subscription.area, subscription.time_window) == (
        ICE,
        Circle(HERE, 500.0),
        TimeWindow(Instant(5), Instant(9)),
    )
    assert Subscription(BUS, ICE, Around(500.0)) != Subscription(BUS, ICE, Circle(HERE, 500.0))


@pytest.mark.parametrize("number", [-1, SUBSCRIPTION_ID_MAX + 1, 10**400])
def test_an_id_has_32_bits(number: int) -> None:
    assert refused(id=number) is Reason.FIELD_RANGE
    assert Subscription(BUS, ICE, id=SubscriptionId(SUBSCRIPTION_ID_MAX)).id == 2**32 - 1


@pytest.mark.parametrize("qos", [-1, 3, None, "1"])
def test_qos_is_0_1_or_2(qos: Any) -> None:
    assert refused(qos=qos) is Reason.FIELD_RANGE
    assert [Subscription(BUS, ICE, qos=good).qos for good in (0, 1, 2)] == [0, 1, 2]


@pytest.mark.parametrize("share", ["", "a/b", "+", "a#", "x" * (SHARE_NAME_CHARACTERS_MAX + 1)])
def test_a_share_name_is_valid_in_mqtt(share: str) -> None:
    assert refused(share=share) is Reason.SHARE_NAME
    assert Subscription(BUS, ICE, share="x" * SHARE_NAME_CHARACTERS_MAX).share


def test_a_subscription_has_a_named_owner() -> None:
    assert refused(owner="") is Reason.ENDPOINT_ID


def test_t5_a_notice_has_all_metadata_of_the_message_and_none_of_its_content() -> None:
    content = {"secret": "key-content"}
    message = Message(
        MessageId(2), BUS, "Collision", Instant(5), frozenset([Tag("ice")]), place=HERE, fields=content, body=b"body-content"
    )
    notice = notice_of(message, SubscriptionId(1), b"a first line")
    assert notice == Notice(**USUAL, summary=b"a first line")
    assert "content" not in repr(notice)
    assert not {field.name for field in fields(Notice)} & {"body", "fields"}


def test_a_summary_is_only_what_the_publisher_chose() -> None:
    assert notice_of(Message(MessageId(2), BUS, "a", Instant(5), body=b"x"), SubscriptionId(1)).summary == b""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"subscription": -1}, Reason.FIELD_RANGE),
        ({"subscription": SUBSCRIPTION_ID_MAX + 1}, Reason.FIELD_RANGE),
        ({"message": 2**64}, Reason.FIELD_RANGE),
        ({"message": True}, Reason.FIELD_RANGE),
        ({"source": ""}, Reason.ENDPOINT_ID),
        ({"topic": "a/#"}, Reason.TOPIC_CHARACTER),
        ({"topic": ""}, Reason.TOPIC_EMPTY),
        ({"tags": frozenset([" "])}, Reason.TAG_CHARACTER),
        ({"tags": frozenset(f"t{number}" for number in range(33))}, Reason.TOO_MANY_TAGS),
        ({"seen_at": FOREVER}, Reason.TIME_RANGE),
        ({"seen_at": -1}, Reason.TIME_RANGE),
    ],
)
def test_a_notice_with_an_invalid_message_id_is_refused(changes: dict[str, Any], reason: Reason) -> None:
    with pytest.raises(Malformed) as caught:
        Notice(**(USUAL | changes))
    assert caught.value.reason is reason
