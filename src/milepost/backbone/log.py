"""The log between processes: append, follow, groups; one interface, kept by `embedded` and `kafka` and by one conformance suite.

    append ─▶ topic: 0 1 2 3 4 5 6 …  ─▶ follow (everybody who asks, from an offset or a time)
                                      └▶ join   (a group: each topic goes to one member at a time, from what was committed)

What must hold:
- a topic is one total order (M8): every record has an offset, larger than those before it; readers see them in that order, each
  once, and miss none that was there to be read. Gaps between offsets mean nothing;
- what one `Log` object appends to a topic stands there in the order of the calls, and once, whatever is tried again below;
- `done` of an append is called when its records survive what the log was opened to survive, never before; in the order of calls;
- a compacted topic keeps at least the last record of each key; a value of None removes the key, for good after a while;
- nothing here is lost silently: what cannot be appended is told to `done`, what cannot be read to `lost`;
- callbacks come from the log's own threads, one at a time for each `append` object, `Following` and `Member`. One that blocks
  makes its reader wait, and nobody else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from milepost.model.instants import Instant

TOPIC_CHARACTERS_MAX: Final = 200
"""Names are made of A-Z a-z 0-9 . _ - so that every log can have them."""

RECORD_BYTES_MAX: Final = 900_000
"""Key and value together; larger things are sent in parts."""

BATCH_RECORDS_MAX: Final = 1_000
"""So many records are handed over at once."""


class Entry(NamedTuple):
    """Something to append; a value of None removes the key from a compacted topic."""

    topic: str
    key: str
    value: bytes | None


class Record(NamedTuple):
    """Something that was appended."""

    topic: str
    offset: int
    key: str
    value: bytes | None
    appended_at: Instant


class Edge(Enum):
    """Where to begin without a number."""

    BEGINNING = "beginning"
    """The oldest record that is still there."""
    END = "end"
    """What is appended from now on: after `follow` has returned, nothing is missed."""


@dataclass(frozen=True, slots=True)
class Since:
    """Begin with the first record appended at a time or later."""

    time: Instant


Start = int | Since | Edge
"""An offset (the first record wanted), a time, or one of the ends."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How long a topic keeps what."""

    retention_s: int = 7 * 86_400
    """Records older than this may go; 0: none go for their age."""
    retention_bytes: int = 0
    """Oldest records may go while there are more bytes than this; 0: any number."""
    is_compacted: bool = False
    """Records go when a later one has their key, and for no other reason."""


class LogUnavailable(Exception):
    """The log cannot be reached or written at the moment: the text says why and what to do."""


class LogRefused(Exception):
    """The log will not take this, however often it is tried: too large, a bad name, not allowed."""


class LogLost(Exception):
    """Records that were asked for are gone: retention was shorter than the reader was away. The text names the gap."""


Done = Callable[[Exception | None], None]
"""Told when all records of an append are safe, or why they are not (`LogUnavailable`, `LogRefused`): then none of them is."""

Take = Callable[[Sequence[Record]], None]
"""Takes records of one topic, in order; the next ones come when it has returned."""

Lost = Callable[[LogLost], None]
"""Told of a gap, before the records that follow it."""


class Following(Protocol):
    """A reader of its own."""

    def close(self) -> None:
        """Read no further; when it returns, nothing is being handed over any more."""


class Member(Protocol):
    """One member of a group."""

    def commit(self, topic: str, offset: int) -> None:
        """All records before `offset` are dealt with: whoever has the topic next begins there."""

    def close(self) -> None:
        """Leave; the others take over without waiting for a timeout."""


class Log(Protocol):
    """A log that is open; any thread may use it."""

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        """Append records, in order; returns at once. Raises `LogUnavailable` when too much waits already: nothing was taken."""

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Make a topic, or give one that is there other settings; None: there with the usual ones, or as it is."""

    def follow(self, starts: Mapping[str, Start], take: Take, lost: Lost) -> Following:
        """Read topics from here on, old records and new ones, until closed; topics that are not there yet are made."""

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Some records from an offset on, at most `limit`, without waiting for more; `LogLost` if the first of them are gone."""

    def ends(self, topic: str) -> tuple[int, int]:
        """The offset of the oldest record, and of the next one to be appended; equal if the topic is empty or not there."""

    def topics(self) -> list[str]:
        """The topics there are, sorted; the log's own are left out."""

    def join(
        self,
        group: str,
        topics: Sequence[str],
        take: Take,
        lost: Lost,
        *,
        changed: Callable[[frozenset[str]], None] | None = None,
    ) -> Member:
        """Read topics as one of a group; `changed` hears which ones this member has, before their records come."""

    def committed(self, group: str) -> dict[str, int]:
        """What a group has committed, by topic."""

    def close(self) -> None:
        """Finish what was appended, stop all readers."""
