"""Structured log lines: an event in a few fixed words, then fields as key=value; as text or JSON.

Invariants:
- the text of an event is fixed in the code; input from peers goes into fields, quoted, and cannot forge a line;
- a log that cannot be written (full disk, closed pipe) never stops the service: lost lines are counted;
- `info_limited` is for events that a peer can cause at will: it limits the lines a second for each event, and counts the rest.
"""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from milepost.config.log_format import Format, Level

SECOND_NS: Final = 1_000_000_000
LIMITED_PER_S: Final = 5
_EVENTS_MAX: Final = 256
"""Maximum rate-limited events; events are fixed in the code, so more is a bug, and further ones share one limit."""
_VALUE_CHARACTERS_MAX: Final = 512

FieldValue = str | int | float | bool | None
Write = Callable[[str], object]
Clock = Callable[[], int]


_RANK: Final = {level: rank for rank, level in enumerate(Level)}


class StructuredLog:
    """Writes the lines of a level and above; *now* returns nanoseconds UTC."""

    def __init__(
        self,
        level: Level = Level.INFO,
        line_format: Format = Format.TEXT,
        *,
        write: Write | None = None,
        now: Clock = time.time_ns,
        limited_per_s: int = LIMITED_PER_S,
    ) -> None:
        self._rank = _RANK[level]
        self._line = _json_line if line_format is Format.JSON else _text_line
        self._write = write or _to_standard_error
        self._now = now
        self._limited_per_s = limited_per_s
        self._windows: dict[str, _Window] = {}
        self.lost = 0
        """Number of lines that could not be written."""

    def is_shown(self, level: Level) -> bool:
        """Return whether lines of this level are written: check it before computing expensive fields."""
        return _RANK[level] >= self._rank

    def debug(self, event: str, **fields: FieldValue) -> None:
        """Log details for debugging."""
        self._put(Level.DEBUG, event, fields)

    def info(self, event: str, **fields: FieldValue) -> None:
        """Log an event of normal operation."""
        self._put(Level.INFO, event, fields)

    def warning(self, event: str, **fields: FieldValue) -> None:
        """Log an event that an operator should look at."""
        self._put(Level.WARNING, event, fields)

    def error(self, event: str, **fields: FieldValue) -> None:
        """Log an event that an operator must look at."""
        self._put(Level.ERROR, event, fields)

    def info_limited(self, event: str, **fields: FieldValue) -> None:
        """Log an event that peers can cause at will: a few lines a second; the next line has the number of suppressed ones."""
        if not self.is_shown(Level.INFO):
            return
        name = event if event in self._windows or len(self._windows) < _EVENTS_MAX else "other"
        window = self._windows.setdefault(name, _Window())
        suppressed = window.maybe_suppressed(self._now(), self._limited_per_s)
        if suppressed is not None:
            self._put(Level.INFO, event, fields | {"suppressed": suppressed} if suppressed else fields)

    def log_suppressed(self) -> None:
        """Log the number of suppressed lines of events that have stopped since; call it about once a second."""
        now = self._now()
        for event, window in list(self._windows.items()):  # threads of a log may add one meanwhile
            if window.suppressed and window.is_over(now):
                self._put(Level.INFO, event, {"suppressed": window.take()})

    def _put(self, level: Level, event: str, fields: dict[str, FieldValue]) -> None:
        if _RANK[level] < self._rank:
            return
        try:
            self._write(self._line(_utc_text(self._now()), level.value, event, fields))
        except (OSError, ValueError):  # ValueError: the stream was closed
            self.lost += 1


class _Window:
    """The rate limit of one event: its lines within one second."""

    __slots__ = ("shown", "started_at", "suppressed")

    def __init__(self) -> None:
        self.started_at = 0
        self.shown = 0
        self.suppressed = 0

    def is_over(self, now: int) -> bool:
        return not 0 <= now - self.started_at < SECOND_NS  # the clock may be set back

    def maybe_suppressed(self, now: int, shown_max: int) -> int | None:
        """Return the number of lines suppressed before this one; None if this one is suppressed, too."""
        if self.is_over(now):
            self.started_at, self.shown = now, 0
        if self.shown >= shown_max:
            self.suppressed += 1
            return None
        self.shown += 1
        return self.take()

    def take(self) -> int:
        suppressed, self.suppressed = self.suppressed, 0
        return suppressed


def _to_standard_error(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


def _utc_text(now: int) -> str:
    """Format a time in UTC, with milliseconds."""
    seconds, rest = divmod(now, SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"


def _text_line(at: str, level: str, event: str, fields: dict[str, FieldValue]) -> str:
    return " ".join([at, f"{level:<7}", event, *(f"{key}={_quoted(value)}" for key, value in fields.items())]) + "\n"


def _json_line(at: str, level: str, event: str, fields: dict[str, FieldValue]) -> str:
    shown = {key: _cut(value) if isinstance(value, str) else value for key, value in fields.items()}
    return json.dumps({"time": at, "level": level, "event": event, **shown}, separators=(",", ":")) + "\n"


def _quoted(value: FieldValue) -> str:
    """Return a plain word as it is, any other text in quotes with escapes."""
    if not isinstance(value, str):
        return json.dumps(value)
    text = _cut(value)
    is_word = bool(text) and text.isprintable() and not any(mark in text for mark in ' "=\\')
    return text if is_word else json.dumps(text, ensure_ascii=not text.isprintable())


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_CHARACTERS_MAX else text[: _VALUE_CHARACTERS_MAX - 3] + "..."
