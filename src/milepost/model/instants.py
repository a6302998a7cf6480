"""Instants: integers, nanoseconds of UTC since 1970. Text and time zones live at the outer rim (`wire.times`)."""

from typing import Final, NewType

from milepost.model.reasons import Malformed, Reason, shown

Instant = NewType("Instant", int)

BEGINNING: Final = Instant(-(2**63))
"""Before anything was ever said: the start of a frame that is open into the past."""

FOREVER: Final = Instant(2**63 - 1)
"""After everything: the end of a frame that is open into the future, the validity of what never expires."""

SECOND_NS: Final = 1_000_000_000


def check_instant(name: str, value: int, *, may_be_forever: bool = False) -> None:
    """Refuse an instant that is not between 1970 and 2262, or, where that is allowed, for ever."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Malformed(Reason.TIME_RANGE, f"{name} is {shown(value)}, not an integer number of nanoseconds")
    if not 0 <= value < FOREVER and not (may_be_forever and value == FOREVER):
        raise Malformed(Reason.TIME_RANGE, f"{name} is {shown(value)} ns")
