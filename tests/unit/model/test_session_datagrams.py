"""Session messages: tokens, causes and refusals within their ranges (M10, M12)."""

import pytest

from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.session_datagrams import (
    DETAIL_CHARACTERS_MAX,
    MATCHES_MAX,
    REPORTING_INTERVAL_NS_MAX,
    AcknowledgeDatagram,
    Heartbeat,
    MessageName,
    PublishDatagram,
    Refusal,
    SessionToken,
    SubscriptionName,
    refusal_of,
)
from milepost.model.subscriptions import SubscriptionId

EDGE = EndpointId("edge-west")
TOKEN = SessionToken(1)
MESSAGE = Message(MessageId(1), EDGE, "a", Instant(0))


@pytest.mark.parametrize("token", [0, -1, 2**64, True])
def test_a_token_is_64_bits_and_never_zero(token: int) -> None:
    with pytest.raises(Malformed) as found:
        Heartbeat(SessionToken(token))
    assert found.value.reason is Reason.FIELD_RANGE


@pytest.mark.parametrize("interval_ns", [0, -1, REPORTING_INTERVAL_NS_MAX + 1])
def test_a_reporting_interval_is_above_zero_and_at_most_a_day(interval_ns: int) -> None:
    with pytest.raises(Malformed):
        AcknowledgeDatagram(TOKEN, interval_ns, EDGE)
    assert AcknowledgeDatagram(TOKEN, REPORTING_INTERVAL_NS_MAX, EDGE).reporting_interval_ns == 86_400 * SECOND_NS


@pytest.mark.parametrize(("number", "name"), [(106, "FIELD_TYPE"), (0, "X"), (65_536, "X"), (60_000, "not a name"), (60_000, "")])
def test_a_refusal_has_a_number_and_the_name_that_belongs_to_it(number: int, name: str) -> None:
    with pytest.raises(Malformed) as found:
        Refusal(number, name)
    assert found.value.reason is Reason.FIELD_RANGE


def test_a_refused_value_becomes_a_refusal_with_number_name_and_detail() -> None:
    name = MessageName(EDGE, MessageId(3))
    assert refusal_of(Refused(Reason.TAG_EMPTY, "here"), name, TOKEN) == Refusal(110, "TAG_EMPTY", "here", name, TOKEN)


def test_a_very_long_detail_is_truncated_by_the_sender_and_refused_by_the_receiver() -> None:
    cut = refusal_of(Refused(Reason.MALFORMED, "x" * 5000))
    assert len(cut.detail) == DETAIL_CHARACTERS_MAX
    assert cut.detail.endswith("x...")
    with pytest.raises(Malformed):
        Refusal(100, "MALFORMED", "x" * (DETAIL_CHARACTERS_MAX + 1))


def test_a_delivered_message_names_a_limited_number_of_subscriptions() -> None:
    PublishDatagram(MESSAGE, TOKEN, (SubscriptionId(1),) * MATCHES_MAX)
    with pytest.raises(Malformed):
        PublishDatagram(MESSAGE, TOKEN, (SubscriptionId(1),) * (MATCHES_MAX + 1))
    with pytest.raises(Malformed):
        PublishDatagram(MESSAGE, TOKEN, (SubscriptionId(2**32),))


def test_names_have_the_ranges_of_the_ids_they_contain() -> None:
    with pytest.raises(Malformed):
        MessageName(EDGE, MessageId(2**64))
    with pytest.raises(Malformed):
        SubscriptionName(EDGE, SubscriptionId(2**32))
    with pytest.raises(Malformed):
        SubscriptionName(EndpointId(""), SubscriptionId(1))
