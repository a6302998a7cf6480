"""Instants: integers, nanoseconds of UTC since 1970. Text and time zones are handled in `wire.times`."""

from typing import Final, NewType

from milepost.model.reasons import Malformed, Reason, shown

Instant = NewType("Instant", int)

BEGINNING: Final = Instant(-(2**63))
"""The start of a time window that is open into the past."""

FOREVER: Final = Instant(2**63 - 1)
"""The end of a time window that is open into the future; the validity of messages that never expire."""

SECOND_NS: Final = 1_000_000_000


def check_instant(name: str, value: int, *, may_be_forever: bool = False) -> None:
    """Raise `Malformed` unless *value* is an instant between 1970 and 2262, or `FOREVER` where that is allowed."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(Reason.TIME_RANGE, f"{name} is {shown(value)}, not an integer number of nanoseconds")
    if not 0 <= value < FOREVER and not (may_be_forever and value == FOREVER):
        raise Malformed(Reason.TIME_RANGE, f"{name} is {shown(value)} ns")
