"""Messages in JSON: their addresses, places and payload."""

from types import MappingProxyType
from typing import Final, assert_never

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToTold
from milepost.model.areas import Area
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER
from milepost.model.messages import Message, MessageId, Scalar
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed
from milepost.model.tags import Tag
from milepost.wire.checks import tags_once
from milepost.wire.geojson import area_from_geojson, area_to_geojson
from milepost.wire.json_form import reading
from milepost.wire.json_form.reading import INTEGER_MAX, JsonObject, Members
from milepost.wire.times import instant_to_text

MESSAGE_MEMBERS: Final = (
    "type", "id", "source", "topic", "seen_at",
    "tags", "address", "place", "valid_until", "priority", "reliable", "fields", "body",
    "signature", "certificate",
)  # fmt: skip
ADDRESS_MEMBERS: Final = {
    "content": ("to", "within"),
    "endpoint": ("to", "endpoint"),
    "area": ("to", "area", "incident"),
    "told": ("to", "incidents"),
    "everyone": ("to",),
}
PLACE_MEMBERS: Final = ("latitude", "longitude")
ANYWHERE: Final[Address] = ToContent()
PRIORITIES: Final = {priority.name.lower(): priority for priority in Priority}


def write_message(message: Message) -> JsonObject:
    """The message's members; what has its default value stays absent."""
    found: JsonObject = {
        "type": "message",
        "id": str(message.id),
        "source": message.source,
        "topic": message.topic,
        "seen_at": instant_to_text(message.seen_at),
    }
    if message.tags:
        found["tags"] = sorted(message.tags)
    if message.address != ANYWHERE:
        found["address"] = _write_address(message.address)
    if message.place is not None:
        found["place"] = write_place(message.place)
    if message.valid_until != FOREVER:
        found["valid_until"] = instant_to_text(message.valid_until)
    if message.priority is not Priority.CONVENIENCE:
        found["priority"] = message.priority.name.lower()
    if message.reliable:
        found["reliable"] = True
    if message.fields:
        found["fields"] = {name: _write_scalar(message.fields[name]) for name in sorted(message.fields)}
    if message.body:
        found["body"] = reading.spell_octets(message.body)
    if message.signature:
        found["signature"] = reading.spell_octets(message.signature)
        found["certificate"] = reading.spell_octets(message.certificate)
    return found


def read_message(value: object, where: str) -> Message:
    """The message that an object describes."""
    members = Members(value, where, MESSAGE_MEMBERS, kind="message")
    return Message(
        id=MessageId(members.need("id", reading.digits)),
        source=EndpointId(members.need("source", reading.text)),
        topic=members.need("topic", reading.text),
        seen_at=members.need("seen_at", reading.instant),
        tags=members.maybe("tags", read_tags, frozenset()),
        address=members.maybe("address", _read_address, ANYWHERE),
        place=members.maybe("place", read_place, None),
        valid_until=members.maybe("valid_until", reading.instant, FOREVER),
        priority=members.maybe("priority", _read_priority, Priority.CONVENIENCE),
        reliable=members.maybe("reliable", reading.truth, False),
        fields=members.maybe("fields", _read_fields, MappingProxyType({})),
        body=members.maybe("body", reading.octets, b""),
        signature=members.maybe("signature", reading.octets, b""),
        certificate=members.maybe("certificate", reading.octets, b""),
    )


def write_place(place: Place) -> JsonObject:
    """The place, with its coordinates by name."""
    return {"latitude": place.latitude, "longitude": place.longitude}


def read_place(value: object, where: str) -> Place:
    """The place that an object describes."""
    members = Members(value, where, PLACE_MEMBERS)
    return Place(members.need("latitude", reading.number), members.need("longitude", reading.number))


def read_tags(value: object, where: str) -> frozenset[Tag]:
    """A set of tags."""
    return tags_once(reading.texts(value, where))


def read_area(value: object, where: str) -> Area:
    """An area, as GeoJSON has it."""
    try:
        return area_from_geojson(value)
    except Malformed as fault:
        raise Malformed(fault.reason, f"{where}: {fault.detail}") from None


def _read_priority(value: object, where: str) -> Priority:
    return PRIORITIES[reading.choice(reading.text(value, where), where, PRIORITIES)]


def _write_address(address: Address) -> JsonObject:
    match address:
        case ToContent():
            return {"to": "content"} if address.within is None else {"to": "content", "within": area_to_geojson(address.within)}
        case ToEndpoint():
            return {"to": "endpoint", "endpoint": address.endpoint}
        case ToArea():
            found: JsonObject = {"to": "area", "area": area_to_geojson(address.area)}
            return found | {"incident": address.incident} if address.incident else found
        case ToTold():
            return {"to": "told", "incidents": list(address.incidents)}
        case ToEveryone():
            return {"to": "everyone"}
        case _:
            assert_never(address)


def _read_address(value: object, where: str) -> Address:
    to = reading.kind_of(value, where, ADDRESS_MEMBERS, member="to")
    members = Members(value, where, ADDRESS_MEMBERS[to])
    if to == "endpoint":
        return ToEndpoint(EndpointId(members.need("endpoint", reading.text)))
    if to == "area":
        return ToArea(members.need("area", read_area), members.maybe("incident", reading.text, ""))
    if to == "told":
        return ToTold(tuple(members.need("incidents", reading.texts)))
    if to == "everyone":
        return ToEveryone()
    return ToContent(members.maybe("within", read_area, None))


def _write_scalar(value: Scalar) -> object:
    match value:
        case bytes():
            return {"base64": reading.spell_octets(value)}
        case int() if not isinstance(value, bool) and abs(value) > INTEGER_MAX:
            return {"integer": str(value)}
        case _:
            return value


def _read_fields(value: object, where: str) -> MappingProxyType[str, Scalar]:
    if not isinstance(value, dict):
        raise reading.wrong_type(value, where, "an object")
    return MappingProxyType({name: _read_scalar(held, f"{where}.{name[:64]}") for name, held in value.items()})


def _read_scalar(value: object, where: str) -> Scalar:
    match value:
        case bool() | str() | float():
            return value
        case int():
            return reading.integer(value, where)
        case {"integer": spelled, **others} if not others:
            return reading.signed_digits(spelled, f"{where}.integer")
        case {"base64": spelled, **others} if not others:
            return reading.octets(spelled, f"{where}.base64")
        case _:
            raise reading.wrong_type(value, where, 'text, a number, true, false, {"integer": "..."} or {"base64": "..."}')
