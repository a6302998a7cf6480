"""What an application says and hears ↔ MQTT packets with Milepost's words in their user properties."""

from dataclasses import replace
from typing import Final

import orjson

from milepost.client.carriers import Motion
from milepost.client.values import UNKNOWN, Publication, Received, Wish
from milepost.model.addresses import ToContent
from milepost.model.areas import Around
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.frames import ALWAYS
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.priorities import Priority
from milepost.model.queries import And, OnTopic
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.topics import SHARE_PREFIX
from milepost.wire.asks import message_user_properties, ordinary_properties, words_of_message
from milepost.wire.asks.messages import PROPERTY_BYTES_MAX, SEEN_AT, SOURCE, TO, WITHIN
from milepost.wire.asks.properties import PREFIX, UserProperties
from milepost.wire.asks.subscriptions import AREA, FRAME, QUERY
from milepost.wire.asks.texts import area_to_text
from milepost.wire.json_form import to_json
from milepost.wire.json_form.sessions import write_report
from milepost.wire.mqtt import NO_PROPERTIES, Properties, Publish, Version, Will, encode
from milepost.wire.times import frame_to_text

_ANYBODY: Final = ToContent()


def packet_of(publication: Publication, now: Instant) -> tuple[Publish, Instant | None]:
    """The PUBLISH, and until when it is worth sending. Whatever is wrong with it is `Malformed`, here and not at the edge."""
    user = _said(publication, now) + publication.properties
    packet = Publish(
        publication.topic,
        publication.body,
        publication.qos,
        publication.retain,
        properties=Properties(user=user) if user else NO_PROPERTIES,
    )
    if publication.properties:  # all else was checked by its type
        encode(replace(packet, number=1 if packet.qos else None), Version.V5)
    if publication.valid_for_s is not None:
        return packet, Instant(now + round(publication.valid_for_s * SECOND_NS))
    return packet, publication.valid_until


def will_of(publication: Publication, delay_s: int, now: Instant) -> Will:
    """The same as a will; how long it is valid counts from when it is published."""
    if publication.valid_until is not None:
        raise Malformed(Reason.FIELD_RANGE, "nobody knows when a will is published: give valid_for_s instead of valid_until")
    packet, _ = packet_of(publication, now)
    expiry_s = None if publication.valid_for_s is None else -int(-publication.valid_for_s // 1)
    properties = replace(packet.properties, message_expiry_s=expiry_s, will_delay_s=delay_s or None)
    return Will(packet.topic, packet.payload, packet.qos, packet.retain, properties)


def _said(publication: Publication, now: Instant) -> UserProperties:
    """The user properties of what was said, and of nothing else."""
    if bad := [name for name, _ in publication.properties if name.startswith(PREFIX)]:
        raise Malformed(Reason.FIELD_RANGE, f"the property {bad[0][:40]!r}: names that begin with {PREFIX} are ours")
    message = Message(
        MessageId(0),
        UNKNOWN,
        publication.topic,
        now if publication.seen_at is None else publication.seen_at,
        publication.tags,
        publication.address,
        publication.place,
        FOREVER if publication.valid_until is None else publication.valid_until,
        publication.priority,
        body=publication.body,
    )
    left_out = {SOURCE} | ({SEEN_AT} if publication.seen_at is None else set())
    user = tuple(pair for pair in message_user_properties(message) if pair[0] not in left_out)
    if publication.address != _ANYBODY and not any(name in (TO, WITHIN) for name, _ in user):
        raise Malformed(Reason.AREA_TOO_COMPLEX, f"written out, the area takes more than {PROPERTY_BYTES_MAX} bytes")
    return user


def received_from(packet: Publish, now: Instant) -> Received:
    """A message as it arrived. Words that cannot be read are left among its properties: it is not lost for them."""
    properties = packet.properties
    plain = Received(
        packet.topic,
        packet.payload,
        now,
        valid_until=FOREVER if properties.message_expiry_s is None else Instant(now + properties.message_expiry_s * SECOND_NS),
        qos=packet.qos,
        is_retained=packet.retain,
        is_again=packet.dup,
        properties=properties.user,
    )
    try:
        return _with_words(plain, properties.user, now)
    except Malformed:
        return plain


def _with_words(plain: Received, user: UserProperties, now: Instant) -> Received:
    source = next((endpoint_id(value) for name, value in user if name == SOURCE), None)
    words = words_of_message(user, sender=source or UNKNOWN, now=now)
    if words is None:
        return plain
    return replace(
        plain,
        tags=words.tags,
        place=words.place,
        source=source,
        seen_at=words.seen_at,
        valid_until=plain.valid_until if words.valid_until is None else words.valid_until,
        priority=Priority.CONVENIENCE if words.priority is None else words.priority,
        address=words.address,
        properties=ordinary_properties(user),
    )


def whole_filter(wish: Wish) -> str:
    """The topic filter as MQTT has it, with the name of the group in front."""
    return wish.filter if wish.share is None else f"{SHARE_PREFIX}{wish.share}/{wish.filter}"


def subscribe_properties(wish: Wish, label: int, *, is_first: bool) -> Properties:
    """The properties of a SUBSCRIBE. A phrase such as "last hour" is for the first time; later it would mean another hour."""
    user = []
    if wish.query is not None:
        user.append((QUERY, str(wish.query)))
    if wish.area is not None:
        user.append((AREA, _where(wish.area) if isinstance(wish.area, Around) else area_to_text(wish.area)))
    if wish.frame != ALWAYS:
        user.append((FRAME, wish.phrase if is_first and wish.phrase else frame_to_text(wish.frame)))
    if any(len(value.encode()) > PROPERTY_BYTES_MAX for _, value in user):
        raise Malformed(Reason.AREA_TOO_COMPLEX, f"written out, what is asked for takes more than {PROPERTY_BYTES_MAX} bytes")
    return Properties(user=tuple(user), subscription_ids=(label,))


def _where(around: Around) -> str:
    return f"around {float(around.radius_m)!r}"


def subscription_json(wish: Wish, label: int, owner: EndpointId) -> bytes:
    """The same as a request to the service `$milepost/subscribe`."""
    on_topic = OnTopic(wish.filter)
    query = on_topic if wish.query is None else And((on_topic, wish.query))
    return to_json(Subscription(owner, query, wish.area, wish.frame, SubscriptionId(label), wish.qos, wish.share))


def unsubscription_json(label: int) -> bytes:
    """What ends it again."""
    return orjson.dumps({"id": label})


def report_json(motion: Motion, owner: EndpointId, now: Instant, *, tells_when: bool) -> bytes:
    """A request to the service `$milepost/report`; without an instant the edge's own clock counts."""
    found = write_report(Report(owner, motion.place, motion.seen_at or now, motion.heading_deg, motion.speed_mps))
    if motion.seen_at is None and not tells_when:
        del found["seen_at"]
    return orjson.dumps(found)
