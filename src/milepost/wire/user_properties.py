"""Milepost's user properties in MQTT: the parameters of PUBLISH, SUBSCRIBE and CONNECT beyond topic and payload.

    CONNECT     milepost-report                                   position of the client
    SUBSCRIBE   milepost-query, -area, -time-window               combined with the topic filter (AND)
    PUBLISH     milepost-tag (may repeat), -place, -priority, -to, -within, -incident,
                -valid-until, -seen-at, -source, -id, -report, -signed

Invariants:
- a property that begins with `milepost-` and is unknown, in the wrong packet or repeated is refused, with the nearest known
  name: a misspelled property must not change the audience of a message;
- the properties sent to receivers decode to the same message; user properties of others are forwarded unaltered;
- `milepost-signed` is all of a signed message but topic and body, with signature and certificate, as protobuf in base64: a client
  that verifies it uses no other property, and a publisher sends no other one but its report.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, TypeVar, assert_never

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified, check_incident_name
from milepost.model.endpoints import EndpointId, SourceId, endpoint_id, source_id
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import ID_DIGITS_MAX, Message, MessageId, check_message_id
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import And, OnTopic, Query, normal_form, parse_query
from milepost.model.reasons import Malformed, Reason, shown
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.tags import Tag, check_tags
from milepost.model.time_windows import ALWAYS
from milepost.model.topics import maybe_shared
from milepost.wire.area_text import (
    area_from_text,
    area_to_text,
    numbers_from_text,
    place_from_text,
    place_to_text,
    where_from_text,
)
from milepost.wire.checks import encodable_instant, unique_tags
from milepost.wire.json_form.codec import located
from milepost.wire.json_form.field_codecs import PriorityName
from milepost.wire.times import instant_from_text, instant_to_text, time_window_from_text

PREFIX: Final = "milepost-"

REPORT: Final = "milepost-report"

QUERY: Final = "milepost-query"
AREA: Final = "milepost-area"
TIME_WINDOW: Final = "milepost-time-window"
SUBSCRIPTION_NAMES: Final = (QUERY, AREA, TIME_WINDOW)

TAG: Final = "milepost-tag"
PLACE: Final = "milepost-place"
PRIORITY: Final = "milepost-priority"
TO: Final = "milepost-to"
WITHIN: Final = "milepost-within"
INCIDENT: Final = "milepost-incident"
VALID_UNTIL: Final = "milepost-valid-until"
SEEN_AT: Final = "milepost-seen-at"
SOURCE: Final = "milepost-source"
MESSAGE_ID: Final = "milepost-id"
"""On PUBLISH chosen by the publisher; on PUBACK and PUBREC the id that the edge uses."""
SIGNED: Final = "milepost-signed"
MESSAGE_NAMES: Final = (TAG, PLACE, PRIORITY, TO, WITHIN, INCIDENT, VALID_UNTIL, SEEN_AT, SOURCE, MESSAGE_ID, REPORT, SIGNED)

PROPERTY_BYTES_MAX: Final = 65_535
"""Maximum bytes of a value in MQTT."""

_NO_SYSTEM_TOPICS: Final = OnTopic("#")
_TO_ENDPOINT: Final = "endpoint:"
_TO_AREA: Final = "area:"
_TO_NOTIFIED: Final = "notified:"
_TO_EVERYONE: Final = "everyone"
_ANYONE: Final[Address] = ToContent()

UserProperties = tuple[tuple[str, str], ...]
"""Pairs of name and value, in the order of the packet; names may repeat."""

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class MessageProperties:
    """The parsed properties of a PUBLISH; absent ones have the default of a message."""

    tags: frozenset[Tag] = frozenset()
    place: Place | None = None
    priority: Priority | None = None
    """None: a rule for the topic may set it."""
    address: Address = _ANYONE
    seen_at: Instant | None = None
    valid_until: Instant | None = None
    """None: MQTT's message expiry interval may set it."""
    report: Report | None = None
    """The position of the sender, as of `seen_at` or of now."""
    id: MessageId | None = None
    """None: the edge assigns one."""
    envelope: bytes = b""
    """The signed message without topic and body; empty: the message is not signed."""


def parse_message_properties(user: UserProperties, *, sender: SourceId, now: Instant) -> MessageProperties | None:
    """Return the parsed user properties of a PUBLISH; None if none of them is Milepost's."""
    if not has_milepost_properties(user):
        return None
    properties = _MilepostProperties(user, MESSAGE_NAMES, repeated=TAG)
    tags = unique_tags(properties.all(TAG))
    check_tags(tags)
    properties.find(SOURCE, lambda text: check_sender(text, sender))
    seen_at = properties.find(SEEN_AT, lambda text: encodable_instant(SEEN_AT, instant_from_text(text, now)))
    return MessageProperties(
        tags=tags,
        place=properties.find(PLACE, place_from_text),
        priority=properties.find(PRIORITY, PriorityName.read),
        address=_address(properties),
        seen_at=seen_at,
        valid_until=properties.find(VALID_UNTIL, lambda text: encodable_instant(VALID_UNTIL, instant_from_text(text, now))),
        report=_report(properties, sender=sender, seen_at=now if seen_at is None else seen_at),
        id=properties.find(MESSAGE_ID, _message_id_from_text),
        envelope=properties.find(SIGNED, _envelope_from_text) or b"",
    )


def check_signed_alone(user: UserProperties) -> None:
    """Raise `Malformed` if a publisher sends a signed message with a property that the signature does not cover."""
    extra = next((name for name, _ in user if name not in (SIGNED, REPORT)), None)
    if extra is not None:
        raise Malformed(Reason.FIELD_RANGE, f"{shown(extra)} beside {SIGNED}: the signed message states it itself; remove it")


def signed_property(envelope: bytes) -> UserProperties:
    """Return the property of a signed message; none if it is too large."""
    text = b64encode(envelope).decode()
    return ((SIGNED, text),) if len(text) <= PROPERTY_BYTES_MAX else ()


def find_envelope(user: UserProperties) -> bytes | None:
    """Return the envelope among the properties of a received message; None: it is not signed, or not readable."""
    texts = [text for name, text in user if name == SIGNED]
    try:
        return _envelope_from_text(texts[0]) if len(texts) == 1 else None
    except Malformed:
        return None


def _envelope_from_text(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise Malformed(Reason.MALFORMED, "it is not base64") from None


def message_to_properties(message: Message) -> UserProperties:
    """Return the properties of a message for its receivers, which decode to the same message.

    If an area is too large for one property, receivers get the message without its address.
    """
    found = [(SOURCE, str(message.source)), (MESSAGE_ID, str(message.id)), (SEEN_AT, instant_to_text(message.seen_at))]
    found += [(TAG, tag) for tag in sorted(message.tags)]
    if message.place is not None:
        found.append((PLACE, place_to_text(message.place)))
    if message.priority is not Priority.CONVENIENCE:
        found.append((PRIORITY, message.priority.name.lower()))
    if message.valid_until != FOREVER:
        found.append((VALID_UNTIL, instant_to_text(message.valid_until)))
    address = _address_properties(message.address)
    return (*found, *address) if all(len(value) <= PROPERTY_BYTES_MAX for _, value in address) else tuple(found)


def check_sender(name: str, sender: SourceId) -> None:
    """Raise `Malformed` if a message or report is in the name of another endpoint."""
    if source_id(name) != sender:
        raise Malformed(Reason.FIELD_RANGE, f"{shown(name)} is not the sender, {shown(sender)}; omit it or use the sender's id")


def subscription_from_properties(
    topic_filter: str, user: UserProperties = (), *, owner: EndpointId, qos: int, number: SubscriptionId, now: Instant
) -> Subscription:
    """Return the subscription of a topic filter, shared or not, and its user properties."""
    shared = maybe_shared(topic_filter)
    share, on_topic = (shared.group, OnTopic(shared.filter)) if shared else (None, OnTopic(topic_filter))
    if not has_milepost_properties(user):
        return Subscription(owner, on_topic, id=number, qos=qos, share=share)
    properties = _MilepostProperties(user, SUBSCRIPTION_NAMES)
    query = properties.find(QUERY, lambda text: And((on_topic, parse_query(text))))
    time_window = properties.find(TIME_WINDOW, lambda text: time_window_from_text(text, now))
    return Subscription(
        owner=owner,
        query=on_topic if query is None else query,
        area=properties.find(AREA, where_from_text),
        time_window=ALWAYS if time_window is None else time_window,
        id=number,
        qos=qos,
        share=share,
    )


def without_system_topics(query: Query) -> Query:
    """Return the query, restricted to topics that do not begin with $ if an alternative of it names no topic."""
    names_topic = (any(isinstance(atom, OnTopic) for atom in clause.required) for clause in normal_form(query))
    return query if all(names_topic) else And((_NO_SYSTEM_TOPICS, query))


def report_from_properties(user: UserProperties, *, sender: EndpointId, now: Instant) -> Report | None:
    """Return the report of a CONNECT; None if there is none."""
    return _report(_MilepostProperties(user, (REPORT,)), sender=sender, seen_at=now) if has_milepost_properties(user) else None


def has_milepost_properties(user: UserProperties) -> bool:
    """Return whether any property is Milepost's."""
    return bool(user) and any(name.startswith(PREFIX) for name, _ in user)


def ordinary_properties(user: UserProperties) -> UserProperties:
    """Return the properties that are not Milepost's, which are forwarded unaltered."""
    return tuple(pair for pair in user if not pair[0].startswith(PREFIX))


class _MilepostProperties:
    """Milepost's properties of one packet, by name."""

    __slots__ = ("_values",)

    def __init__(self, user: UserProperties, known: Iterable[str], *, repeated: str | None = None) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in user:
            if not name.startswith(PREFIX):
                continue
            if name not in known:
                raise _unknown(name, known)
            values = self._values.setdefault(name, [])
            if values and name != repeated:
                raise Malformed(Reason.FIELD_RANGE, f"{name} occurs twice")
            values.append(value)

    def find(self, name: str, read: Callable[[str], Read]) -> Read | None:
        """Return the value of a property; None if it is absent."""
        if name not in self._values:
            return None
        try:
            return read(self._values[name][0])
        except Malformed as fault:
            raise located(fault, name) from None

    def all(self, name: str) -> list[str]:
        """Return the values of a property that may repeat."""
        return self._values.get(name, [])


def _unknown(name: str, known: Iterable[str]) -> Malformed:
    near = get_close_matches(name[:64], known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known in this packet: {', '.join(sorted(known))}"
    return Malformed(Reason.FIELD_UNKNOWN, f"unknown user property {shown(name)}; {hint}")


def _report(properties: _MilepostProperties, *, sender: SourceId, seen_at: Instant) -> Report | None:
    def read(text: str) -> Report:
        latitude, longitude, *motion = numbers_from_text(text, "LATITUDE,LONGITUDE,HEADING_DEG,SPEED_MPS", 2)
        return Report(endpoint_id(sender), Place(latitude, longitude), seen_at, *motion)

    return properties.find(REPORT, read)


def _message_id_from_text(text: str) -> MessageId:
    if not (text.isascii() and text.isdigit() and len(text) <= ID_DIGITS_MAX):
        raise Malformed(Reason.FIELD_RANGE, f"{shown(text)} is not a message id, 1 to 18446744073709551615")
    number = MessageId(int(text))
    check_message_id(number)
    return number


def _address(properties: _MilepostProperties) -> Address:
    to, within, incident = (
        properties.find(TO, _address_from_text),
        properties.find(WITHIN, area_from_text),
        properties.find(INCIDENT, _incident_from_text),
    )
    if incident is not None:
        if not isinstance(to, ToArea):
            raise Malformed(Reason.FIELD_RANGE, f"{INCIDENT} is allowed only on messages to an area: add {TO} {_TO_AREA}AREA")
        to = ToArea(to.area, incident)
    if to is not None and within is not None:
        raise Malformed(
            Reason.FIELD_RANGE,
            f"{WITHIN} restricts subscribers, {TO} addresses endpoints without a subscription: use one of the two",
        )
    return ToContent(within) if to is None else to


def _incident_from_text(text: str) -> str:
    check_incident_name(text)
    return text


def _address_from_text(text: str) -> Address:
    if text == _TO_EVERYONE:
        return ToEveryone()
    if text.startswith(_TO_ENDPOINT):
        return ToEndpoint(EndpointId(text.removeprefix(_TO_ENDPOINT)))
    if text.startswith(_TO_AREA):
        return ToArea(area_from_text(text.removeprefix(_TO_AREA)))
    if text.startswith(_TO_NOTIFIED):
        return ToNotified(tuple(text.removeprefix(_TO_NOTIFIED).split()))
    detail = f"{shown(text)} is not {_TO_EVERYONE}, {_TO_ENDPOINT}NAME, {_TO_AREA}AREA or {_TO_NOTIFIED}INCIDENTS"
    raise Malformed(Reason.FIELD_RANGE, detail)


def _address_properties(address: Address) -> UserProperties:
    match address:
        case ToContent():
            return () if address.within is None else ((WITHIN, area_to_text(address.within)),)
        case ToEndpoint():
            return ((TO, _TO_ENDPOINT + address.endpoint),)
        case ToArea():
            about = ((INCIDENT, address.incident),) if address.incident else ()
            return ((TO, _TO_AREA + area_to_text(address.area)), *about)
        case ToNotified():
            return ((TO, _TO_NOTIFIED + " ".join(address.incidents)),)
        case ToEveryone():
            return ((TO, _TO_EVERYONE),)
        case _:
            assert_never(address)
