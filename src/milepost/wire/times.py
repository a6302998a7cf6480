"""Instants, durations and time windows as text ↔ values of the model. No clock is read: `now` is an argument.

    instant     2030-05-01T18:00:00Z  2030-05-01 20:00:00.123456789+02:00      exact to the nanosecond, always with a zone
                18:00Z  20:00+02:00                                            today, in that zone
                now  10 minutes ago  in 2 hours
    duration    10 minutes  1h30m  90s  1.5 hours  PT10M  P1DT12H              m = minutes; no months or years: they vary

    time window                     start               end
    always                          open                open
    last 10 minutes                 10 minutes ago      now
    next 2 hours                    now                 in 2 hours
    until INSTANT                   now                 INSTANT
    since INSTANT                   INSTANT             open
    from INSTANT on                 INSTANT             open
    from last 10 minutes on         10 minutes ago      open
    from INSTANT until INSTANT      first INSTANT       second INSTANT
    A/B  A/PT2H  PT2H/B  A/..  ../B ISO 8601 intervals; `..` is an open end

Case does not matter. Any other text is refused with `TIME_UNREADABLE` and a detail; ambiguous input is not guessed.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Final

from milepost.model.instants import BEGINNING, FOREVER, SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.time_windows import ALWAYS, TimeWindow

TIME_CHARACTERS_MAX: Final = 128
"""Maximum characters of one instant, duration or time window."""

OPEN: Final = ".."

_MINUTE_NS: Final = 60 * SECOND_NS
_HOUR_NS: Final = 60 * _MINUTE_NS
_DAY_NS: Final = 24 * _HOUR_NS
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_FRACTION_DIGITS: Final = 9

_INSTANT: Final = re.compile(
    r"(?:(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})[t ])?"
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?"
    r"(?P<zone>z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_AMOUNT: Final = re.compile(r"([0-9]+)(?:[.,]([0-9]+))? ?([a-z]+) ?")
_SINCE: Final = re.compile(r"since (.+)|from (.+) on")
_FROM_UNTIL: Final = re.compile(r"from (.+) until (.+)")


def _spelled(names: str, length_ns: int) -> dict[str, int]:
    return dict.fromkeys(names.split(), length_ns)


_UNITS: Final = (
    _spelled("w week weeks", 7 * _DAY_NS)
    | _spelled("d day days", _DAY_NS)
    | _spelled("h hr hrs hour hours", _HOUR_NS)
    | _spelled("m min mins minute minutes", _MINUTE_NS)
    | _spelled("s sec secs second seconds", SECOND_NS)
    | _spelled("ms millisecond milliseconds", 1_000_000)
    | _spelled("us microsecond microseconds", 1_000)
    | _spelled("ns nanosecond nanoseconds", 1)
)
_ISO_DATE_UNITS: Final = {"w": 7 * _DAY_NS, "d": _DAY_NS}
_ISO_CLOCK_UNITS: Final = {"h": _HOUR_NS, "m": _MINUTE_NS, "s": SECOND_NS}


def instant_from_text(text: str, now: Instant) -> Instant:
    """Return the instant of a text such as `2030-05-01T18:00:00Z`, `18:00Z` or `10 minutes ago`."""
    return _instant(_plain(text), now)


def instant_to_text(instant: Instant) -> str:
    """Return the exact instant as ISO 8601 in UTC; fractions of a second only if not 0."""
    days, clock_ns = divmod(_in_range(instant), _DAY_NS)
    seconds, fraction_ns = divmod(clock_ns, SECOND_NS)
    digits = f"{fraction_ns:09d}"
    while digits.endswith("000"):
        digits = digits[:-3]
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{date.fromordinal(_EPOCH_DAY + days).isoformat()}T{clock}{'.' if digits else ''}{digits}Z"


def duration_from_text(text: str) -> int:
    """Return the nanoseconds of a duration such as `10 minutes`, `1h30m`, `90s` or `PT10M`."""
    return _duration(_plain(text))


def time_window_from_text(text: str, now: Instant) -> TimeWindow:
    """Return the time window of a text such as `last 10 minutes`, `until 18:00Z` or an ISO 8601 interval."""
    plain = _plain(text)
    word, _, rest = plain.partition(" ")
    if plain == "always":
        return ALWAYS
    if word == "last":
        return _time_window(_shifted(now, -_span(rest)), now)
    if word == "next":
        return _time_window(now, _shifted(now, _span(rest)))
    if word == "until":
        return _time_window(now, _instant(rest, now))
    if "/" in plain:
        return _interval(plain, now)
    if since := _SINCE.fullmatch(plain):
        return _time_window(_start(since[1] or since[2], now), FOREVER)
    if both := _FROM_UNTIL.fullmatch(plain):
        return _time_window(_instant(both[1], now), _instant(both[2], now))
    raise _unreadable(f"{_shown(plain)} is not a time window")


def time_window_to_text(time_window: TimeWindow) -> str:
    """Return the time window as an ISO 8601 interval, `..` for an open end."""
    start = OPEN if time_window.start == BEGINNING else instant_to_text(time_window.start)
    return f"{start}/{OPEN if time_window.end == FOREVER else instant_to_text(time_window.end)}"


def _plain(text: str) -> str:
    """Return the text in lower case with single spaces."""
    if len(text) > TIME_CHARACTERS_MAX:
        raise _unreadable(f"it has {len(text)} characters, {TIME_CHARACTERS_MAX} are allowed")
    if not text.isascii():
        raise _unreadable(f"{_shown(text)} has characters other than ASCII")
    plain = " ".join(text.lower().split())
    if not plain:
        raise _unreadable("it is empty")
    return plain


def _instant(plain: str, now: Instant) -> Instant:
    if plain == "now":
        return now
    if plain.endswith(" ago"):
        return _shifted(now, -_duration(plain.removesuffix(" ago")))
    if plain.startswith("in "):
        return _shifted(now, _duration(plain.removeprefix("in ")))
    found = _INSTANT.fullmatch(plain)
    if found is None:
        whole_day = " is a whole day: add a time and a zone" if _DATE.fullmatch(plain) else " is not an instant"
        raise _unreadable(_shown(plain) + whole_day)
    offset_ns = _offset_ns(found["zone"], plain)
    day = _day(found) if found["year"] else (now + offset_ns) // _DAY_NS
    return _in_range(day * _DAY_NS + _clock_ns(found) - offset_ns)


def _day(found: re.Match[str]) -> int:
    """Return the calendar day as days since 1970-01-01."""
    try:
        return date(int(found["year"]), int(found["month"]), int(found["day"])).toordinal() - _EPOCH_DAY
    except ValueError:
        raise _unreadable(f"there is no day {found['year']}-{found['month']}-{found['day']}") from None


def _clock_ns(found: re.Match[str]) -> int:
    """Return the nanoseconds since midnight."""
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"] or 0)
    fraction = found["fraction"] or ""
    if second == 60:
        raise _unreadable("second 60: leap seconds are not counted, write second 59 or the next minute")
    if hour > 23 or minute > 59 or second > 59:
        raise _unreadable(f"{hour:02d}:{minute:02d}:{second:02d} is not a time of day")
    if len(fraction) > _FRACTION_DIGITS:
        raise _unreadable(f"{len(fraction)} digits after the second, {_FRACTION_DIGITS} are allowed")
    return hour * _HOUR_NS + minute * _MINUTE_NS + second * SECOND_NS + int(fraction.ljust(_FRACTION_DIGITS, "0"))


def _offset_ns(zone: str | None, plain: str) -> int:
    if zone is None:
        raise _unreadable(f"{_shown(plain)} has no time zone: add Z or an offset such as +02:00")
    if zone == "z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].removeprefix(":") or 0)
    if hours > 23 or minutes > 59:
        raise _unreadable(f"there is no offset {zone}")
    return (-1 if zone[0] == "-" else 1) * (hours * _HOUR_NS + minutes * _MINUTE_NS)


def _duration(plain: str) -> int:
    total_ns = _iso_duration(plain) if plain.startswith("p") else _total(plain, _UNITS)
    if total_ns > FOREVER:
        raise Malformed(Reason.TIME_RANGE, f"{_shown(plain)} is longer than 292 years")
    return total_ns


def _iso_duration(plain: str) -> int:
    days, mark, clock = plain[1:].partition("t")
    if not (clock if mark else days):
        raise _unreadable(f"{_shown(plain)} is not a duration")
    return (_total(days, _ISO_DATE_UNITS) if days else 0) + (_total(clock, _ISO_CLOCK_UNITS) if clock else 0)


def _total(plain: str, units: Mapping[str, int]) -> int:
    """Return the sum of amounts such as `1h 30m`, in descending order of units, each at most once."""
    at, total_ns, longest_ns = 0, 0, int(FOREVER)
    while at < len(plain) or not at:
        amount = _AMOUNT.match(plain, at)
        unit_ns = units.get(amount[3]) if amount else None
        if amount is None or unit_ns is None:
            raise _unreadable(f"{_shown(plain)} is not a duration: {_shown(plain[at:])} is not an amount of {_choices(units)}")
        if unit_ns >= longest_ns:
            raise _unreadable(f"{_shown(plain)} is not a duration: longer units come first, each once")
        total_ns += _amount_ns(amount, unit_ns)
        at, longest_ns = amount.end(), unit_ns
    return total_ns


def _amount_ns(amount: re.Match[str], unit_ns: int) -> int:
    fraction = amount[2] or ""
    scale: int = 10 ** len(fraction)
    length_ns, rest = divmod(int(amount[1] + fraction) * unit_ns, scale)
    if rest:
        raise _unreadable(f"{_shown(amount[0])} is not a whole number of nanoseconds")
    return length_ns


def _choices(units: Mapping[str, int]) -> str:
    known = "weeks days hours minutes seconds ms us ns" if units is _UNITS else " ".join(units).upper()
    return known.replace(" ", ", ") + ("" if units is _ISO_CLOCK_UNITS else " (months and years vary in length)")


def _span(plain: str) -> int:
    """Return the duration after `last` or `next`, where `hour` alone is one hour."""
    return _duration(f"1 {plain}" if plain in _UNITS else plain)


def _start(plain: str, now: Instant) -> Instant:
    return _shifted(now, -_span(plain.removeprefix("last "))) if plain.startswith("last ") else _instant(plain, now)


def _interval(plain: str, now: Instant) -> TimeWindow:
    first, _, second = (part.strip() for part in plain.partition("/"))
    if first.startswith("p"):
        end = _instant(second, now)
        return _time_window(_shifted(end, -_duration(first)), end)
    start = BEGINNING if first == OPEN else _instant(first, now)
    if second.startswith("p"):
        if start == BEGINNING:
            raise _unreadable(f"{_shown(plain)} has an open start, to which no duration can be added")
        return _time_window(start, _shifted(start, _duration(second)))
    return _time_window(start, FOREVER if second == OPEN else _instant(second, now))


def _time_window(start: Instant, end: Instant) -> TimeWindow:
    if end < start:
        detail = f"it ends at {instant_to_text(end)}, before it starts at {instant_to_text(start)}"
        raise Malformed(Reason.TIME_WINDOW_BACKWARDS, detail)
    return TimeWindow(start, end)


def _shifted(instant: Instant, by_ns: int) -> Instant:
    return _in_range(instant + by_ns)


def _in_range(value_ns: int) -> Instant:
    if not 0 <= value_ns <= FOREVER:
        raise Malformed(Reason.TIME_RANGE, f"the instant is {'before 1970' if value_ns < 0 else 'after April 2262'}")
    return Instant(value_ns)


def _unreadable(detail: str) -> Malformed:
    return Malformed(Reason.TIME_UNREADABLE, detail)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
