"""Client values ↔ MQTT packets with Milepost's user properties; reason codes as `RefusedByEdge`."""

import re
from dataclasses import replace
from typing import Final

from milepost.client.errors import RefusedByEdge
from milepost.client.messages import UNKNOWN_SOURCE, OutgoingMessage, ReceivedMessage, SubscriptionRequest
from milepost.client.transport import PositionFix
from milepost.model.addresses import ToContent
from milepost.model.areas import Around
from milepost.model.endpoints import EndpointId, source_id
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.priorities import Priority
from milepost.model.queries import And, OnTopic
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.time_windows import ALWAYS
from milepost.model.topics import SHARE_PREFIX
from milepost.wire.area_text import area_to_text
from milepost.wire.json_form import ReportForm, to_json
from milepost.wire.json_form.codec import encode_any, encode_members
from milepost.wire.mqtt import NO_PROPERTIES, Code, Properties, Publish, Version, Will, encode
from milepost.wire.times import time_window_to_text
from milepost.wire.user_properties import (
    AREA,
    MESSAGE_ID,
    PREFIX,
    PROPERTY_BYTES_MAX,
    QUERY,
    SEEN_AT,
    SIGNED,
    SOURCE,
    TIME_WINDOW,
    TO,
    WITHIN,
    UserProperties,
    find_envelope,
    message_to_properties,
    ordinary_properties,
    parse_message_properties,
    signed_property,
)

_ANY_SUBSCRIBER: Final = ToContent()


def packet_of(publication: OutgoingMessage, now: Instant) -> tuple[Publish, Instant | None]:
    """Return the PUBLISH and the end of its validity; raise `Malformed` before anything reaches the edge."""
    user = _message_properties(publication, now) + publication.properties
    packet = Publish(
        publication.topic,
        publication.body,
        publication.qos,
        publication.retain,
        properties=Properties(user=user) if user else NO_PROPERTIES,
    )
    if publication.properties:  # the types of all other fields validate them
        encode(replace(packet, packet_id=1 if packet.qos else None), Version.V5)
    if publication.valid_for_s is not None:
        return packet, Instant(now + round(publication.valid_for_s * SECOND_NS))
    return packet, publication.valid_until


def signed_packet_of(publication: OutgoingMessage, message: Message) -> tuple[Publish, Instant]:
    """Return the PUBLISH of a signed message: all of it but topic and body is one property."""
    from milepost.wire.datagrams import envelope_of  # noqa: PLC0415  # imports protobuf

    user = signed_property(envelope_of(message))
    if not user:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"a signed message without its body takes more than {PROPERTY_BYTES_MAX} bytes")
    packet = Publish(message.topic, message.body, publication.qos, publication.retain, properties=Properties(user=user))
    return packet, message.valid_until


def maybe_signed_message(packet: Publish) -> Message | Refused | None:
    """Return the message that a signature covers, not verified yet; None: the packet has no signature."""
    if not any(name == SIGNED for name, _ in packet.properties.user):
        return None
    from milepost.wire.datagrams import message_from_envelope  # noqa: PLC0415  # imports protobuf

    envelope = find_envelope(packet.properties.user)
    try:
        if envelope is not None:
            return message_from_envelope(envelope, packet.topic, packet.payload)
    except Malformed as fault:
        return fault.refused
    return Refused(Reason.SIGNATURE_INVALID, f"{SIGNED} is not base64, or occurs twice")


def will_of(publication: OutgoingMessage, delay_s: int, now: Instant) -> Will:
    """Return the publication as a will; its validity counts from the time the server publishes it."""
    if publication.valid_until is not None:
        raise Malformed(
            Reason.FIELD_RANGE, "the time at which a will is published is unknown: give valid_for_s instead of valid_until"
        )
    if publication.is_signed:
        raise Malformed(Reason.FIELD_RANGE, "a will cannot be signed: the time at which it is published is unknown")
    packet, _ = packet_of(publication, now)
    expiry_s = None if publication.valid_for_s is None else -int(-publication.valid_for_s // 1)
    properties = replace(packet.properties, message_expiry_s=expiry_s, will_delay_s=delay_s or None)
    return Will(packet.topic, packet.payload, packet.qos, packet.retain, properties)


def _message_properties(publication: OutgoingMessage, now: Instant) -> UserProperties:
    """Return the user properties for the fields that the application set."""
    if reserved := [name for name, _ in publication.properties if name.startswith(PREFIX)]:
        raise Malformed(
            Reason.FIELD_RANGE,
            f"the property {reserved[0][:40]!r}: names that begin with {PREFIX} are reserved; choose another name",
        )
    message = Message(
        MessageId(1),
        UNKNOWN_SOURCE,
        publication.topic,
        now if publication.seen_at is None else publication.seen_at,
        publication.tags,
        publication.address,
        publication.place,
        FOREVER if publication.valid_until is None else publication.valid_until,
        publication.priority,
        body=publication.body,
    )
    omitted = {SOURCE, MESSAGE_ID} | ({SEEN_AT} if publication.seen_at is None else set())
    user = tuple(pair for pair in message_to_properties(message) if pair[0] not in omitted)
    if publication.address != _ANY_SUBSCRIBER and not any(name in (TO, WITHIN) for name, _ in user):
        raise Malformed(Reason.AREA_TOO_COMPLEX, f"the area takes more than {PROPERTY_BYTES_MAX} bytes as text")
    return user


def received_from(packet: Publish, now: Instant) -> ReceivedMessage:
    """Return the received message; properties that cannot be decoded do not discard it but stay among its user properties."""
    properties = packet.properties
    without_fields = ReceivedMessage(
        packet.topic,
        packet.payload,
        now,
        valid_until=FOREVER if properties.message_expiry_s is None else Instant(now + properties.message_expiry_s * SECOND_NS),
        qos=packet.qos,
        is_retained=packet.retain,
        is_redelivery=packet.dup,
        properties=properties.user,
    )
    try:
        return _with_fields(without_fields, properties.user, now)
    except Malformed:
        return without_fields


def _with_fields(without_fields: ReceivedMessage, user: UserProperties, now: Instant) -> ReceivedMessage:
    source = next((source_id(value) for name, value in user if name == SOURCE), None)
    fields = parse_message_properties(user, sender=source or UNKNOWN_SOURCE, now=now)
    if fields is None:
        return without_fields
    return replace(
        without_fields,
        tags=fields.tags,
        place=fields.place,
        source=source,
        seen_at=fields.seen_at,
        valid_until=without_fields.valid_until if fields.valid_until is None else fields.valid_until,
        priority=Priority.CONVENIENCE if fields.priority is None else fields.priority,
        address=fields.address,
        properties=ordinary_properties(user),
    )


def full_filter(request: SubscriptionRequest) -> str:
    """Return the topic filter, with the prefix of a shared subscription if there is a group."""
    return request.filter if request.share is None else f"{SHARE_PREFIX}{request.share}/{request.filter}"


def subscribe_properties(request: SubscriptionRequest, subscription_id: int, *, is_first: bool) -> Properties:
    """Return the properties of a SUBSCRIBE. A text such as "last hour" is sent once; resent, it would mean another hour."""
    user = []
    if request.query is not None:
        user.append((QUERY, str(request.query)))
    if request.area is not None:
        user.append((AREA, _around_text(request.area) if isinstance(request.area, Around) else area_to_text(request.area)))
    if request.time_window != ALWAYS:
        user.append(
            (
                TIME_WINDOW,
                request.time_window_text if is_first and request.time_window_text else time_window_to_text(request.time_window),
            )
        )
    if any(len(value.encode()) > PROPERTY_BYTES_MAX for _, value in user):
        raise Malformed(Reason.AREA_TOO_COMPLEX, f"query, area or time window takes more than {PROPERTY_BYTES_MAX} bytes as text")
    return Properties(user=tuple(user), subscription_ids=(subscription_id,))


def _around_text(around: Around) -> str:
    return f"around {float(around.radius_m)!r}"


def subscription_json(request: SubscriptionRequest, subscription_id: int, owner: EndpointId) -> bytes:
    """Return the subscription as a request to the service `$milepost/subscribe`."""
    on_topic = OnTopic(request.filter)
    query = on_topic if request.query is None else And((on_topic, request.query))
    return to_json(
        Subscription(owner, query, request.area, request.time_window, SubscriptionId(subscription_id), request.qos, request.share)
    )


def unsubscription_json(subscription_id: int) -> bytes:
    """Return the request that ends such a subscription."""
    return encode_any({"id": subscription_id})


def report_json(fix: PositionFix, owner: EndpointId, now: Instant, *, with_time: bool) -> bytes:
    """Return a request to the service `$milepost/report`; without a time in it, the edge's clock applies."""
    report = Report(owner, fix.place, fix.seen_at or now, fix.heading_deg, fix.speed_mps)
    members = ReportForm.write(report)
    if fix.seen_at is None and not with_time:
        del members["seen_at"]
    return encode_members(members)


_MILEPOST_REASON: Final = re.compile(r"(\d{1,5}) ([A-Z][A-Z0-9_]*): ?(.*)", re.DOTALL)
"""The reason string of a Milepost edge: number, name, detail and advice."""

TRANSIENT: Final = frozenset(
    {
        Code.SUCCESS,
        Code.UNSPECIFIED_ERROR,
        Code.SERVER_UNAVAILABLE,
        Code.SERVER_BUSY,
        Code.SERVER_SHUTTING_DOWN,
        Code.KEEP_ALIVE_TIMEOUT,
        Code.MESSAGE_RATE_TOO_HIGH,
        Code.QUOTA_EXCEEDED,
        Code.CONNECTION_RATE_EXCEEDED,
        Code.MAXIMUM_CONNECT_TIME,
    }
)
"""Transient reasons to end a connection. After all others (session taken over, wrong password, protocol error) reconnecting is
harmful or pointless."""

_TRANSIENT_REASONS: Final = frozenset({Reason.STORAGE_UNAVAILABLE.value, Reason.SHUTTING_DOWN.value})


def refused_by(code: Code, properties: Properties) -> RefusedByEdge:
    """Return the refusal that a reason code and reason string express."""
    reason_string = properties.reason_string or ""
    found = _MILEPOST_REASON.fullmatch(reason_string)
    if found is None:
        return RefusedByEdge(code.value, code.name, reason_string or _named_server(properties))
    number, name, rest = int(found[1]), found[2], found[3]
    if number not in Reason.__members__.values():
        return RefusedByEdge(number, name, rest)
    advice = Reason(number).advice
    return RefusedByEdge(number, name, rest.removesuffix(advice).rstrip().removesuffix("."), advice)


def is_final(code: Code, refused: RefusedByEdge) -> bool:
    """Return whether reconnecting is pointless after this reason."""
    return code not in TRANSIENT and refused.number not in _TRANSIENT_REASONS


def _named_server(properties: Properties) -> str:
    return f"the server refers to {properties.server_reference}" if properties.server_reference else ""
