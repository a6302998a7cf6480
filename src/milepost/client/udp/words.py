"""What an application says and hears ↔ messages and subscriptions of the model, which is what datagrams carry."""

from base64 import b64encode
from typing import Final
from zlib import crc32

from milepost.client.values import Publication, Received, Wish
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId, Scalar
from milepost.model.queries import And, OnTopic
from milepost.model.reasons import Malformed, Reason, shown
from milepost.model.subscriptions import SUBSCRIPTION_ID_MAX, Subscription, SubscriptionId

_TRUTHS: Final = {True: "true", False: "false"}


def message_of(publication: Publication, source: EndpointId, number: MessageId, now: Instant) -> Message:
    """The message; whatever is wrong with it is `Malformed`, here and not at the edge."""
    if publication.retain:
        raise Malformed(Reason.FIELD_RANGE, "retain: nothing is retained for those who come over udp; publish it over mqtt")
    fields = dict(publication.properties)
    if len(fields) < len(publication.properties):
        raise Malformed(Reason.FIELD_RANGE, "two properties have the same name, which is not possible over udp")
    seen_at = now if publication.seen_at is None else publication.seen_at
    return Message(
        number,
        source,
        publication.topic,
        seen_at,
        publication.tags,
        publication.address,
        publication.place,
        _valid_until(publication, now),
        publication.priority,
        publication.qos > 0,
        fields,
        publication.body,
    )


def received_from(message: Message, now: Instant, *, is_signed: bool) -> Received:
    """A message as it arrived; its fields are the properties, whatever they hold."""
    return Received(
        message.topic,
        message.body,
        now,
        message.tags,
        message.place,
        message.source,
        message.seen_at,
        message.valid_until,
        message.priority,
        message.address,
        qos=1 if message.reliable else 0,
        properties=tuple((name, _text_of(value)) for name, value in message.fields.items()),
        id=message.id,
        is_signed=is_signed,
    )


def subscription_of(wish: Wish, owner: EndpointId, label: int) -> Subscription:
    """The subscription; filter and formula must both hold, as over MQTT."""
    on_topic = OnTopic(wish.filter)
    query = on_topic if wish.query is None else And((on_topic, wish.query))
    return Subscription(owner, query, wish.area, wish.frame, SubscriptionId(label), wish.qos, wish.share)


def label_of(wish: Wish) -> int:
    """A label made from what is asked for, so that it is the same in another life of the client."""
    return crc32(repr((wish.filter, wish.share, wish.query, wish.area, wish.phrase or wish.frame, wish.qos)).encode())


def label_after(label: int) -> int:
    """The next one, if that is taken; never 0, which stands for none."""
    return label % SUBSCRIPTION_ID_MAX + 1


def _valid_until(publication: Publication, now: Instant) -> Instant:
    if publication.valid_for_s is not None:
        return Instant(now + round(publication.valid_for_s * SECOND_NS))
    return FOREVER if publication.valid_until is None else publication.valid_until


def _text_of(value: Scalar) -> str:
    match value:
        case str():
            return value
        case bool():  # before int, which it also is
            return _TRUTHS[value]
        case bytes():
            return b64encode(value).decode()
        case int() | float():
            return repr(value)
        case _:
            raise AssertionError(f"a field holds {shown(value)}")
