"""Appending to the log so that it is done: tried again for as long as the log is away, until somebody calls it off."""

import threading
from collections.abc import Sequence
from typing import Final

from milepost.backbone.log import Entry, Log, LogUnavailable

WAITS_S: Final = (0.1, 0.3, 1.0, 3.0)
"""How long to wait after a fault; the last one again and again: a log that is away comes back."""

LOOK_S: Final = 0.2


class CalledOff(Exception):
    """Whoever wanted it has no right or no time to go on."""


class Appender:
    """Appends one thing after the other; `over` calls it off."""

    def __init__(self, log: Log, over: threading.Event) -> None:
        self._log = log
        self._over = over
        self._entries: Sequence[Entry] = ()
        self._failures = 0
        self._done = threading.Event()
        self._fault: Exception | None = None
        self.trouble: str | None = None
        """Why nothing can be appended at the moment."""

    def begin(self, entries: Sequence[Entry]) -> None:
        """Append, after what was begun before is done."""
        self.finish()
        if entries:
            self._entries = entries
            self._try()

    def finish(self) -> None:
        """Come back when everything that was begun is safe; raises `CalledOff`, or `LogRefused` if it never will be."""
        while self._entries:
            while not self._done.wait(LOOK_S):
                self._check()
            if self._fault is None:
                self._entries, self._failures, self.trouble = (), 0, None
                return
            if not isinstance(self._fault, LogUnavailable):
                raise self._fault
            self.trouble = str(self._fault)
            if self._over.wait(WAITS_S[min(self._failures, len(WAITS_S) - 1)]):
                raise CalledOff
            self._failures += 1
            self._try()

    def _try(self) -> None:
        self._check()
        done = self._done = threading.Event()  # its own: what was given up must not end this wait

        def told(fault: Exception | None) -> None:
            self._fault = fault
            done.set()

        try:
            self._log.append(self._entries, told)
        except LogUnavailable as fault:
            told(fault)

    def _check(self) -> None:
        if self._over.is_set():
            raise CalledOff
