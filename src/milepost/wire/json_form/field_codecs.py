"""JSON encodings of values that JSON has no type for: 64-bit integers, instants, bytes, enumerations, queries, areas.

The details of errors begin with "is" or "has": the path to the member is put before them.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from milepost.model.areas import Around
from milepost.model.endpoints import EndpointId, SourceId, endpoint_id, source_id
from milepost.model.instants import Instant
from milepost.model.messages import Scalar
from milepost.model.priorities import Priority
from milepost.model.queries import Query, parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.model.session_datagrams import CloseCause, SessionToken, check_session
from milepost.model.tags import Tag
from milepost.wire.checks import encodable_instant, unique_tags
from milepost.wire.geojson import area_from_geojson, area_to_geojson
from milepost.wire.json_form.codec import INTEGER_MAX, NAME_CHARACTERS_MAX, Notation, nearest
from milepost.wire.times import instant_from_text, instant_to_text

AROUND: Final = "Around"
AROUND_MEMBERS: Final = ("type", "radius_m")

_DIGITS: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_SIGNED_DIGITS: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")
_NO_NOW: Final = Instant(0)
_INSTANTS_KEPT: Final = 16_384
_TYPE_NAMES: Final[dict[type, str]] = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def wrong_type(value: object, expected: str) -> Malformed:
    """Return the error for a value of the wrong type."""
    return Malformed(Reason.FIELD_TYPE, f"is {_TYPE_NAMES.get(type(value), 'of another type')}, not {expected}")


def text_of(value: object) -> str:
    """Return the value if it is text; raises `Malformed` otherwise."""
    if not isinstance(value, str):
        raise wrong_type(value, "text")
    return value


class Digits(Notation, int):
    """An unsigned integer of up to 64 bits, in decimal digits."""

    write = staticmethod(str)

    @staticmethod
    def read(value: object) -> int:
        """Return the integer."""
        return _integer(value, _DIGITS, 0, 2**64 - 1)


class SessionTokenText(Digits):
    """A session token."""

    @staticmethod
    def read(value: object) -> SessionToken:
        """Return the token."""
        token = Digits.read(value)
        check_session(token)
        return SessionToken(token)


class IsoInstant(Notation):
    """An instant with date, seconds and zone, exact to the nanosecond; phrases such as "now" are not accepted."""

    write = staticmethod(instant_to_text)

    @staticmethod
    def read(value: object) -> Instant:
        """Return the instant."""
        return _iso_instant(text_of(value))


@lru_cache(_INSTANTS_KEPT)
def _iso_instant(text: str) -> Instant:
    if _INSTANT.fullmatch(text) is None:
        raise Malformed(Reason.TIME_UNREADABLE, f"is {text[:40]!r}, not an instant such as '2030-05-01T18:00:00Z'")
    return encodable_instant("the instant", instant_from_text(text, _NO_NOW))


class Base64(Notation):
    """Bytes in base64 with padding."""

    @staticmethod
    def read(value: object) -> bytes:
        """Return the bytes."""
        text = text_of(value)
        try:
            found = b64decode(text, validate=True)
        except (Base64Error, ValueError):
            found = None
        if found is None or b64encode(found).decode() != text:
            raise Malformed(Reason.FIELD_TYPE, "is not base64 with + and / and padding")
        return found


class EndpointName(Notation):
    """The name of an endpoint, for values that do not check it themselves."""

    @staticmethod
    def read(value: object) -> EndpointId:
        """Return the name."""
        return endpoint_id(text_of(value))


class SourceName(Notation):
    """The source of a message, for values that do not check it themselves."""

    @staticmethod
    def read(value: object) -> SourceId:
        """Return the source."""
        return source_id(text_of(value))


class Tags(Notation):
    """A set of tags, as an array without duplicates."""

    write = staticmethod(sorted)

    @staticmethod
    def read(value: object) -> frozenset[Tag]:
        """Return the set."""
        return unique_tags(_texts(value))


class Fields(Notation):
    """The fields of a message's payload: JSON's scalars, integers of more than 53 bits, and bytes."""

    @staticmethod
    def write(value: Mapping[str, Scalar]) -> dict[str, object]:
        """Return the object, its members sorted by name."""
        return {name: _scalar_to_json(value[name]) for name in sorted(value)}

    @staticmethod
    def read(value: object) -> Mapping[str, Scalar]:
        """Return the fields."""
        if not isinstance(value, dict):
            raise wrong_type(value, "an object")
        return MappingProxyType({name: _scalar_from_json(name, one) for name, one in value.items()})


class QueryText(Notation):
    """A query."""

    write = staticmethod(str)

    @staticmethod
    def read(value: object) -> Query:
        """Return the query."""
        return parse_query(text_of(value))


class GeoArea(Notation):
    """An area in GeoJSON."""

    write = staticmethod(area_to_geojson)
    read = staticmethod(area_from_geojson)


class GeoAreaOrAround(Notation):
    """An area in GeoJSON, or one that moves with the subscriber."""

    @staticmethod
    def write(value: Any) -> dict[str, object]:
        """Return the object."""
        return {"type": AROUND, "radius_m": value.radius_m} if isinstance(value, Around) else area_to_geojson(value)

    @staticmethod
    def read(value: object) -> Any:
        """Return the area."""
        if not isinstance(value, dict) or value.get("type") != AROUND:
            return area_from_geojson(value)
        if others := [name for name in value if name not in AROUND_MEMBERS]:
            raise Malformed(Reason.FIELD_UNKNOWN, f"has a member {others[0][:NAME_CHARACTERS_MAX]!r}")
        if "radius_m" not in value:
            raise Malformed(Reason.FIELD_MISSING, "has no radius_m")
        radius_m = value["radius_m"]
        if isinstance(radius_m, bool) or not isinstance(radius_m, int | float):
            raise Malformed(Reason.FIELD_TYPE, "has a radius_m that is not a number")
        return Around(float(radius_m))


class PriorityName(Notation):
    """A priority class, in lower case."""

    WORDS: Final = {priority.name.lower(): priority for priority in Priority}

    @staticmethod
    def write(value: Priority) -> str:
        """Return the name."""
        return value.name.lower()

    @staticmethod
    def read(value: object) -> Priority:
        """Return the priority."""
        return PriorityName.WORDS[_word(value, PriorityName.WORDS)]


class CauseName(Notation):
    """The cause of a session's end, in lower case."""

    WORDS: Final = {cause.name.lower(): cause for cause in CloseCause}

    @staticmethod
    def write(value: Enum) -> str:
        """Return the name."""
        return value.name.lower()

    @staticmethod
    def read(value: object) -> CloseCause:
        """Return the cause."""
        return CauseName.WORDS[_word(value, CauseName.WORDS)]


def _integer(value: object, pattern: re.Pattern[str], lowest: int, highest: int) -> int:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise Malformed(Reason.FIELD_TYPE, 'is not a text of decimal digits such as "17"')
    found = int(value)
    if not lowest <= found <= highest:
        raise Malformed(Reason.FIELD_RANGE, f"is {found}, not in {lowest}..{highest}")
    return found


def _word(value: object, known: Iterable[str]) -> str:
    word = text_of(value)
    if word not in known:
        raise Malformed(Reason.FIELD_RANGE, f"is {word[:NAME_CHARACTERS_MAX]!r}, not {' or '.join(known)}{nearest(word, known)}")
    return word


def _texts(value: object) -> list[str]:
    if not isinstance(value, list):
        raise wrong_type(value, "an array")
    return [text_of(one) for one in value]


def _scalar_to_json(value: Scalar) -> object:
    match value:
        case bytes():
            return {"base64": value}
        case int() if not isinstance(value, bool) and abs(value) > INTEGER_MAX:
            return {"integer": str(value)}
        case _:
            return value


def _scalar_from_json(name: str, value: object) -> Scalar:
    try:
        match value:
            case bool() | str() | float():
                return value
            case int() if abs(value) <= INTEGER_MAX:
                return value
            case int():
                raise Malformed(Reason.FIELD_RANGE, 'is an integer beyond 2^53-1: write {"integer": "..."}')
            case {"integer": digits, **others} if not others:
                return _integer(digits, _SIGNED_DIGITS, -(2**63), 2**63 - 1)
            case {"base64": text, **others} if not others:
                return Base64.read(text)
            case _:
                raise wrong_type(value, 'text, a number, true, false, {"integer": "..."} or {"base64": "..."}')
    except Malformed as fault:
        raise Malformed(fault.reason, f"has a field {name[:NAME_CHARACTERS_MAX]!r} that {fault.detail}") from None
