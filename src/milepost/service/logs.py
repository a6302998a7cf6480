"""Structured log lines: an event in a few fixed words, then facts as key=value; as text for people or JSON for machines.

What must hold:
- an event's words are fixed in the code; whatever a peer chose goes into a fact, quoted, and can forge no line;
- a log that cannot be written (full disk, closed pipe) never stops the service: lost lines are counted;
- `seldom` is for what a peer can cause at will: so many lines a second for each event, the rest counted.
"""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Final

SECOND_NS: Final = 1_000_000_000
SELDOM_PER_S: Final = 5
_EVENTS_MAX: Final = 256
"""Events are words in our code, so there are few; more than this is a fault of ours, and they share one count."""
_VALUE_CHARACTERS_MAX: Final = 512

Fact = str | int | float | bool | None
Write = Callable[[str], object]
Clock = Callable[[], int]


class Level(Enum):
    """How much a line matters."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Format(Enum):
    """How a line is written."""

    TEXT = "text"
    JSON = "json"


_RANK: Final = {level: rank for rank, level in enumerate(Level)}


class Log:
    """Writes lines of at least one level; `now` gives nanoseconds UTC."""

    def __init__(
        self,
        level: Level = Level.INFO,
        line_format: Format = Format.TEXT,
        *,
        write: Write | None = None,
        now: Clock = time.time_ns,
        seldom_per_s: int = SELDOM_PER_S,
    ) -> None:
        self._rank = _RANK[level]
        self._line = _json_line if line_format is Format.JSON else _text_line
        self._write = write or _to_standard_error
        self._now = now
        self._seldom_per_s = seldom_per_s
        self._windows: dict[str, _Window] = {}
        self.lost = 0
        """Lines that could not be written."""

    def is_shown(self, level: Level) -> bool:
        """Whether lines of this level are written: ask before gathering facts that cost something."""
        return _RANK[level] >= self._rank

    def debug(self, event: str, **facts: Fact) -> None:
        """For whoever looks for a fault."""
        self._put(Level.DEBUG, event, facts)

    def info(self, event: str, **facts: Fact) -> None:
        """What is worth a line in normal life."""
        self._put(Level.INFO, event, facts)

    def warning(self, event: str, **facts: Fact) -> None:
        """What somebody should look at."""
        self._put(Level.WARNING, event, facts)

    def error(self, event: str, **facts: Fact) -> None:
        """What somebody must look at."""
        self._put(Level.ERROR, event, facts)

    def seldom(self, event: str, **facts: Fact) -> None:
        """The same for what peers can cause at will: a few lines a second for each event, and then how many were not shown."""
        if not self.is_shown(Level.INFO):
            return
        name = event if event in self._windows or len(self._windows) < _EVENTS_MAX else "other"
        window = self._windows.setdefault(name, _Window())
        suppressed = window.maybe_suppressed(self._now(), self._seldom_per_s)
        if suppressed is not None:
            self._put(Level.INFO, event, facts | {"suppressed": suppressed} if suppressed else facts)

    def tell_suppressed(self) -> None:
        """Say how many lines were not shown, for events that have stopped since: call it about once a second."""
        now = self._now()
        for event, window in self._windows.items():
            if window.suppressed and window.is_over(now):
                self._put(Level.INFO, event, {"suppressed": window.take()})

    def _put(self, level: Level, event: str, facts: dict[str, Fact]) -> None:
        if _RANK[level] < self._rank:
            return
        try:
            self._write(self._line(_spelled(self._now()), level.value, event, facts))
        except (OSError, ValueError):  # ValueError: the stream was closed
            self.lost += 1


class _Window:
    """The lines of one event within one second."""

    __slots__ = ("shown", "started_at", "suppressed")

    def __init__(self) -> None:
        self.started_at = 0
        self.shown = 0
        self.suppressed = 0

    def is_over(self, now: int) -> bool:
        return not 0 <= now - self.started_at < SECOND_NS  # the clock may be set back

    def maybe_suppressed(self, now: int, shown_max: int) -> int | None:
        """How many were suppressed before this one; nothing if it is suppressed too."""
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


def _spelled(now: int) -> str:
    """The instant with milliseconds, UTC."""
    seconds, rest = divmod(now, SECOND_NS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest // 1_000_000:03d}Z"


def _text_line(at: str, level: str, event: str, facts: dict[str, Fact]) -> str:
    return " ".join([at, f"{level:<7}", event, *(f"{key}={_quoted(value)}" for key, value in facts.items())]) + "\n"


def _json_line(at: str, level: str, event: str, facts: dict[str, Fact]) -> str:
    shown = {key: _cut(value) if isinstance(value, str) else value for key, value in facts.items()}
    return json.dumps({"time": at, "level": level, "event": event, **shown}, separators=(",", ":")) + "\n"


def _quoted(value: Fact) -> str:
    """As it is where that is one plain word, otherwise in quotes with escapes."""
    if not isinstance(value, str):
        return json.dumps(value)
    text = _cut(value)
    is_word = bool(text) and text.isprintable() and not any(mark in text for mark in ' "=\\')
    return text if is_word else json.dumps(text, ensure_ascii=not text.isprintable())


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_CHARACTERS_MAX else text[: _VALUE_CHARACTERS_MAX - 3] + "..."
