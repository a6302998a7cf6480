"""What a PUBLISH says beyond topic and payload, and how a receiver is told."""

from dataclasses import dataclass
from typing import Final, assert_never

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToTold, check_incident_name
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason, shown
from milepost.model.reports import Report
from milepost.model.tags import Tag, check_tags
from milepost.wire.asks.properties import UserProperties, Words, has_words
from milepost.wire.asks.reports import REPORT, maybe_report
from milepost.wire.asks.texts import area_from_text, area_to_text, place_from_text, place_to_text
from milepost.wire.checks import sayable, tags_once
from milepost.wire.json_form.messages import PRIORITIES
from milepost.wire.json_form.reading import choice
from milepost.wire.times import instant_from_text, instant_to_text

TAG: Final = "milepost-tag"
PLACE: Final = "milepost-place"
PRIORITY: Final = "milepost-priority"
TO: Final = "milepost-to"
WITHIN: Final = "milepost-within"
INCIDENT: Final = "milepost-incident"
VALID_UNTIL: Final = "milepost-valid-until"
SEEN_AT: Final = "milepost-seen-at"
SOURCE: Final = "milepost-source"
MESSAGE_NAMES: Final = (TAG, PLACE, PRIORITY, TO, WITHIN, INCIDENT, VALID_UNTIL, SEEN_AT, SOURCE, REPORT)

PROPERTY_BYTES_MAX: Final = 65_535
"""The most a value can take in MQTT."""

_TO_ENDPOINT: Final = "endpoint:"
_TO_AREA: Final = "area:"
_TO_TOLD: Final = "told:"
_TO_EVERYONE: Final = "everyone"
_ANYONE: Final[Address] = ToContent()


@dataclass(frozen=True, slots=True)
class MessageWords:
    """What a PUBLISH said in our words; what it did not say has the default that a message has."""

    tags: frozenset[Tag] = frozenset()
    place: Place | None = None
    priority: Priority | None = None
    """Nothing if it was not said; then a rule for the topic may."""
    address: Address = _ANYONE
    seen_at: Instant | None = None
    valid_until: Instant | None = None
    """Nothing if it was not said; then the message expiry interval of MQTT may say it."""
    report: Report | None = None
    """Where the sender is, as of `seen_at` or of now."""


def words_of_message(user: UserProperties, *, sender: EndpointId, now: Instant) -> MessageWords | None:
    """What the user properties of a PUBLISH say in our words; nothing if none of them is ours."""
    if not has_words(user):
        return None
    words = Words(user, MESSAGE_NAMES, repeated=TAG)
    tags = tags_once(words.all(TAG))
    check_tags(tags)
    words.maybe(SOURCE, lambda text: check_sender(text, sender))
    seen_at = words.maybe(SEEN_AT, lambda text: sayable(SEEN_AT, instant_from_text(text, now)))
    return MessageWords(
        tags=tags,
        place=words.maybe(PLACE, place_from_text),
        priority=words.maybe(PRIORITY, _priority_from_text),
        address=_address(words),
        seen_at=seen_at,
        valid_until=words.maybe(VALID_UNTIL, lambda text: sayable(VALID_UNTIL, instant_from_text(text, now))),
        report=maybe_report(words, sender=sender, seen_at=now if seen_at is None else seen_at),
    )


def message_user_properties(message: Message) -> UserProperties:
    """What a receiver is told that an ordinary MQTT message does not say; reads back as the same words.

    An area too large for one property is left out: the receiver gets the message, not the outline it was addressed to.
    """
    found = [(SOURCE, str(message.source)), (SEEN_AT, instant_to_text(message.seen_at))]
    found += [(TAG, tag) for tag in sorted(message.tags)]
    if message.place is not None:
        found.append((PLACE, place_to_text(message.place)))
    if message.priority is not Priority.CONVENIENCE:
        found.append((PRIORITY, message.priority.name.lower()))
    if message.valid_until != FOREVER:
        found.append((VALID_UNTIL, instant_to_text(message.valid_until)))
    address = _address_properties(message.address)
    return (*found, *address) if all(len(value) <= PROPERTY_BYTES_MAX for _, value in address) else tuple(found)


def check_sender(name: str, sender: EndpointId) -> None:
    """Refuse what was said in the name of somebody else."""
    if endpoint_id(name) != sender:
        raise Malformed(Reason.FIELD_RANGE, f"{shown(name)} is not the sender, {shown(sender)}; it may be left out")


def _priority_from_text(text: str) -> Priority:
    return PRIORITIES[choice(text, "it", PRIORITIES)]


def _address(words: Words) -> Address:
    to, within, incident = (
        words.maybe(TO, _address_from_text),
        words.maybe(WITHIN, area_from_text),
        words.maybe(INCIDENT, _incident_from_text),
    )
    if incident is not None:
        if not isinstance(to, ToArea):
            raise Malformed(
                Reason.FIELD_RANGE, f"{INCIDENT} names what a message to an area is about: say {TO} {_TO_AREA}AREA too"
            )
        to = ToArea(to.area, incident)
    if to is not None and within is not None:
        raise Malformed(Reason.FIELD_RANGE, f"{WITHIN} chooses among subscribers, {TO} needs none: say one of the two")
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
    if text.startswith(_TO_TOLD):
        return ToTold(tuple(text.removeprefix(_TO_TOLD).split()))
    detail = f"{shown(text)} is not {_TO_EVERYONE}, {_TO_ENDPOINT}NAME, {_TO_AREA}AREA or {_TO_TOLD}INCIDENTS"
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
        case ToTold():
            return ((TO, _TO_TOLD + " ".join(address.incidents)),)
        case ToEveryone():
            return ((TO, _TO_EVERYONE),)
        case _:
            assert_never(address)
