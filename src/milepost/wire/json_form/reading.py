"""Taking JSON apart: members by name, each of a stated type; every refusal says which member and what it should have been.

A reader is a function of a value and of `where` it stands (`message.place.latitude`), which gives the thing read or `Malformed`.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Final, TypeVar

from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason
from milepost.wire.checks import sayable
from milepost.wire.times import instant_from_text

Read = TypeVar("Read")
Reader = Callable[[object, str], Read]

JsonObject = dict[str, object]

INTEGER_MAX: Final = 2**53 - 1
"""The greatest integer that every JSON reader keeps exact; what may be greater travels as text."""

_DIGITS: Final = re.compile(r"0|[1-9][0-9]{0,19}")
_SIGNED_DIGITS: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})")
_NO_NOW: Final = Instant(0)

_TYPE_NAMES: Final[dict[type, str]] = {
    str: "text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


class Members:
    """The members of one JSON object, of which none may be unknown."""

    def __init__(self, value: object, where: str, known: Iterable[str], *, kind: str | None = None) -> None:
        if not isinstance(value, dict):
            raise wrong_type(value, where, "an object")
        self._members: JsonObject = value
        self._where = where
        for name in value:
            if name not in known:
                raise _unknown(name, where, known)
        if kind is not None:
            choice(self.need("type", text), f"{where}.type", (kind,))

    def need(self, name: str, read: Reader[Read]) -> Read:
        """The member, which must be there."""
        if name not in self._members:
            raise Malformed(Reason.FIELD_MISSING, f"{self._where}.{name} is missing")
        return read(self._members[name], f"{self._where}.{name}")

    def maybe(self, name: str, read: Reader[Read], default: Read) -> Read:
        """The member, or what its absence means."""
        return self.need(name, read) if name in self._members else default


def _unknown(name: str, where: str, known: Iterable[str]) -> Malformed:
    near = get_close_matches(name[:64], known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(sorted(known))}"
    return Malformed(Reason.FIELD_UNKNOWN, f"{where} has a member {name[:64]!r}{hint}")


def wrong_type(value: object, where: str, wanted: str) -> Malformed:
    """The error for a member of another type."""
    return Malformed(Reason.FIELD_TYPE, f"{where} is {_TYPE_NAMES.get(type(value), 'something else')}, not {wanted}")


def kind_of(value: object, where: str, kinds: Iterable[str], *, member: str = "type") -> str:
    """Which of several kinds of object this is: what its `type` (or another member) says."""
    if not isinstance(value, dict):
        raise wrong_type(value, where, "an object")
    if member not in value:
        raise Malformed(Reason.FIELD_MISSING, f"{where}.{member} is missing")
    return choice(text(value[member], f"{where}.{member}"), f"{where}.{member}", kinds)


def text(value: object, where: str) -> str:
    """Any text."""
    if not isinstance(value, str):
        raise wrong_type(value, where, "text")
    return value


def choice(value: str, where: str, words: Iterable[str]) -> str:
    """The text, which must be one of a few words."""
    if value not in words:
        near = get_close_matches(value[:64], words, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise Malformed(Reason.FIELD_RANGE, f"{where} is {value[:64]!r}, not {' or '.join(words)}{hint}")
    return value


def truth(value: object, where: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong_type(value, where, "true or false")
    return value


def number(value: object, where: str) -> float:
    """Any number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(value, where, "a number")
    return float(value)


def integer(value: object, where: str) -> int:
    """A number without a fraction, small enough for every JSON reader."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(value, where, "a whole number")
    if not -INTEGER_MAX <= value <= INTEGER_MAX:
        raise Malformed(Reason.FIELD_RANGE, f"{where} is {value}, beyond 2^53-1: write it as text where the schema allows")
    return value


def array(value: object, where: str) -> list[object]:
    """An array of anything."""
    if not isinstance(value, list):
        raise wrong_type(value, where, "an array")
    return value


def texts(value: object, where: str) -> list[str]:
    """An array of texts."""
    return [text(item, f"{where}[{at}]") for at, item in enumerate(array(value, where))]


def integers(value: object, where: str) -> list[int]:
    """An array of whole numbers."""
    return [integer(item, f"{where}[{at}]") for at, item in enumerate(array(value, where))]


def digits(value: object, where: str) -> int:
    """An unsigned integer of up to 64 bits, written in decimal digits."""
    return _spelled(value, where, _DIGITS, "0..2^64-1", 0, 2**64 - 1)


def signed_digits(value: object, where: str) -> int:
    """A signed integer of up to 64 bits, written in decimal digits."""
    return _spelled(value, where, _SIGNED_DIGITS, "-2^63..2^63-1", -(2**63), 2**63 - 1)


def _spelled(value: object, where: str, pattern: re.Pattern[str], span: str, lowest: int, highest: int) -> int:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise Malformed(Reason.FIELD_TYPE, f'{where} is not a text of decimal digits such as "17"')
    found = int(value)
    if not lowest <= found <= highest:
        raise Malformed(Reason.FIELD_RANGE, f"{where} is {found}, not in {span}")
    return found


def instant(value: object, where: str) -> Instant:
    """An ISO 8601 instant with date, seconds and zone; words such as "now" are for people, not for the wire."""
    if _INSTANT.fullmatch(text(value, where)) is None:
        raise Malformed(Reason.TIME_UNREADABLE, f"{where} is {text(value, where)[:40]!r}")
    return sayable(where, instant_from_text(text(value, where), _NO_NOW))


def octets(value: object, where: str) -> bytes:
    """Bytes written in base64, padded, in the one way they can be written."""
    spelled = text(value, where)
    try:
        found = b64decode(spelled, validate=True)
    except (Base64Error, ValueError):
        found = None
    if found is None or spell_octets(found) != spelled:
        raise Malformed(Reason.FIELD_TYPE, f"{where} is not base64 with + and / and padding")
    return found


def spell_octets(value: bytes) -> str:
    """The bytes in base64."""
    return b64encode(value).decode()
