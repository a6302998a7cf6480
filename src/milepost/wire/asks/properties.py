"""User properties that are ours: found by the beginning of their name, each known where it stands, most of them once.

A name that begins like ours and is unknown, or stands where it has no meaning, is refused with the nearest known one: a word that
was misspelled must not change who gets a message.
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Final, TypeVar

from milepost.model.reasons import Malformed, Reason, shown

PREFIX: Final = "milepost-"

UserProperties = tuple[tuple[str, str], ...]
"""Pairs of name and value, in the order of the packet; names may repeat."""

Read = TypeVar("Read")


class Words:
    """The properties of one packet that are ours, read by name."""

    __slots__ = ("_said",)

    def __init__(self, user: UserProperties, known: Iterable[str], *, repeated: str | None = None) -> None:
        self._said: dict[str, list[str]] = {}
        for name, value in user:
            if not name.startswith(PREFIX):
                continue
            if name not in known:
                raise _unknown(name, known)
            values = self._said.setdefault(name, [])
            if values and name != repeated:
                raise Malformed(Reason.FIELD_RANGE, f"{name} is there twice")
            values.append(value)

    def maybe(self, name: str, read: Callable[[str], Read]) -> Read | None:
        """The value of a property; nothing if it is not there."""
        if name not in self._said:
            return None
        try:
            return read(self._said[name][0])
        except Malformed as fault:
            raise Malformed(fault.reason, f"{name}: {fault.detail}" if fault.detail else name, at=fault.at) from None

    def all(self, name: str) -> list[str]:
        """The values of a property that may repeat."""
        return self._said.get(name, [])


def has_words(user: UserProperties) -> bool:
    """Whether any property is ours."""
    return bool(user) and any(name.startswith(PREFIX) for name, _ in user)


def ordinary_properties(user: UserProperties) -> UserProperties:
    """The properties that are not ours: what is handed on as it came."""
    return tuple(pair for pair in user if not pair[0].startswith(PREFIX))


def _unknown(name: str, known: Iterable[str]) -> Malformed:
    near = get_close_matches(name[:64], known, 1)
    hint = f"did you mean {near[0]}?" if near else f"known here are {', '.join(sorted(known))}"
    return Malformed(Reason.FIELD_UNKNOWN, f"a user property {shown(name)}; {hint}")
