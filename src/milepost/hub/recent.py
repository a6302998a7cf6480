"""Recent: what the edges of a site said last and where it was copied to, and what others have brought to a site.

What must hold: both are limited. What no longer stands in `Recent` can be read again from the log; whether it was copied is then
asked of `Arrivals`, which is what stands in the other site's log, whoever copied it.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from milepost.model.instants import Instant

RECORDS_MAX: Final = 20_000
BYTES_MAX: Final = 32_000_000
ARRIVALS_MAX: Final = 100_000


class Routed(NamedTuple):
    """A message that was read and dealt with."""

    offset: int
    appended_at: Instant
    sender: str
    """As SITE/EDGE."""
    number: int
    value: bytes
    """As it stands in the log: few are ever looked at again."""
    copied: frozenset[str]
    """The sites that have it."""


class Recent:
    """What a site's edges said last, in the order of the log."""

    def __init__(self, first: int, records_max: int = RECORDS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.first = first
        """Everything from this offset on is here."""
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._oldest_first: deque[Routed] = deque()
        self._by_sender: dict[str, deque[Routed]] = {}
        self._dropped_at: Instant | None = None

    def put(self, routed: Routed) -> None:
        """One more."""
        self._oldest_first.append(routed)
        self._by_sender.setdefault(routed.sender, deque()).append(routed)
        self._bytes += len(routed.value)
        while len(self._oldest_first) > self._records_max or self._bytes > self._bytes_max:
            gone = self._oldest_first.popleft()
            self._by_sender[gone.sender].popleft()
            self._bytes -= len(gone.value)
            self.first, self._dropped_at = gone.offset + 1, gone.appended_at

    def reaches(self, since: Instant) -> bool:
        """Whether all that was appended at an instant or later is here."""
        if self._dropped_at is not None:
            return self._dropped_at < since
        return bool(self._oldest_first) and self._oldest_first[0].appended_at < since

    def above(self, mark: Callable[[str], int]) -> list[Routed]:
        """What each sender said above its mark, in the order of the log."""
        found: list[Routed] = []
        for sender, said in self._by_sender.items():
            least = mark(sender)
            for one in reversed(said):
                if one.number <= least:
                    break
                found.append(one)
        return sorted(found, key=lambda one: one.offset)


class Arrivals:
    """What stands in a site's cross-hub that was said at others, by sender and number."""

    def __init__(self, limit: int = ARRIVALS_MAX) -> None:
        self._limit = limit
        self._known: dict[tuple[str, int], None] = {}
        self._extras: dict[tuple[str, int], None] = {}
        self._highest: dict[str, int] = {}

    def __contains__(self, which: tuple[str, int]) -> bool:
        return which in self._known or which in self._extras

    def is_for_all(self, which: tuple[str, int]) -> bool:
        """Whether it is there for everybody, and not only in an extra for one endpoint."""
        return which in self._known

    def is_passed(self, sender: str, number: int) -> bool:
        """Whether readers would drop it: something that was said later stands there."""
        return number <= self._highest.get(sender, 0)

    def add(self, sender: str, number: int) -> None:
        """It is there."""
        self._highest[sender] = max(number, self._highest.get(sender, 0))
        self._note(self._known, sender, number)

    def add_extra(self, sender: str, number: int) -> None:
        """It is there for one endpoint alone."""
        self._note(self._extras, sender, number)

    def _note(self, known: dict[tuple[str, int], None], sender: str, number: int) -> None:
        known[sender, number] = None
        if len(known) > self._limit:
            del known[next(iter(known))]
