"""Authenticated records: a log whose readers drop every record that was appended without the site's key.

    append  value ─▶ value "\\n=" code            read  the code is right ─▶ value
            None  ─▶ "\\n-" code, then None             else              ─▶ dropped, and reported to `on_refused`

    code = 64 hex digits of HMAC-SHA256(key, topic "\\n" mark size "\\n" record-key value)
           mark: "=" for a value, "-" for a removal; size: bytes of the record's key, in decimal

A compacted log removes a key only for a record without value, which has no room for a code. A removal is therefore two records:
an authenticated one, which readers receive as None, and the tombstone itself, which they skip. Compaction keeps the first for
`TOMBSTONE_S`, as it does tombstones.

*Invariants:*
- no value reaches a reader, and no key is removed at one, without the code for exactly this topic, record key and value;
- a batch is handed over only if a record of it is left; refused records are gaps between offsets, which have no meaning;
- `read` returns nothing only if no authentic record follows, so that loops up to the end of a topic make progress.

Outside its scope: a process that can write to the log without the key can still delete records, delay them, and append old
authentic ones again (docs/decisions/0030-authenticated-log.md).
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from time import time_ns
from typing import Final

from milepost.eventlog.log import (
    BATCH_RECORDS_MAX,
    CODE_BYTES,
    REMOVAL_START,
    TOMBSTONE_S,
    Done,
    Entry,
    Following,
    Log,
    Member,
    OnGap,
    OnRecords,
    Record,
    Start,
    TopicSettings,
    check_entries,
)
from milepost.model.instants import SECOND_NS

KEY_BYTES: Final = 32
VALUE_START: Final = b"\n="
"""First bytes of the code after a value; `REMOVAL_START` are those of a removal."""

_REMOVALS_MAX: Final = 10_000
"""Maximum removals for which a reader awaits the tombstone."""

OnRefused = Callable[[Record, str], None]
"""Called with a refused record and the reason, in a thread of the log."""


class RecordAuthenticator:
    """Makes and checks the codes of records."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES, "a key of `milepost trust site-key`"
        block = key.ljust(sha256().block_size, b"\0")  # HMAC by its definition, RFC 2104
        self._inner = sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = sha256(bytes(byte ^ 0x5C for byte in block))

    def sealed(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Yield entries with codes; a removal becomes two."""
        for entry in entries:
            topic, key, value = entry
            if value is None:
                yield Entry(topic, key, self._code(REMOVAL_START, topic, key, b""))
                yield entry
            else:
                yield Entry(topic, key, value + self._code(VALUE_START, topic, key, value))

    def find_body(self, topic: str, key: str, stored: bytes) -> tuple[bytes | None] | None:
        """Return the value of a stored record, None for a removal, in a tuple; None if the code is missing or wrong."""
        body, code = stored[:-CODE_BYTES], stored[-CODE_BYTES:]
        if code.startswith(VALUE_START):
            return (body,) if compare_digest(code, self._code(VALUE_START, topic, key, body)) else None
        if code.startswith(REMOVAL_START) and not body:
            return (None,) if compare_digest(code, self._code(REMOVAL_START, topic, key, b"")) else None
        return None

    def opened(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the authentic records, without their codes; a removal has no value, and tombstones are left out."""
        for topic, offset, key, value, appended_at in records:
            found = None if value is None else self.find_body(topic, key, value)
            if found is not None:
                yield Record(topic, offset, key, found[0], appended_at)

    def _code(self, start: bytes, topic: str, key: str, value: bytes) -> bytes:
        name = key.encode()
        inner, outer = self._inner.copy(), self._outer.copy()  # a third of the time of the module hmac, which starts anew
        inner.update(b"%s%s%d\n%s%s" % (topic.encode(), start, len(name), name, value))
        outer.update(inner.digest())
        return start + outer.hexdigest().encode()


class _Filter:
    """Passes the authentic records of one reader on."""

    def __init__(
        self, authenticator: RecordAuthenticator, on_refused: OnRefused, clock_ns: Callable[[], int], on_records: OnRecords
    ) -> None:
        self._authenticator = authenticator
        self._on_refused = on_refused
        self._clock_ns = clock_ns
        self._on_records = on_records
        self._removed: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Removals whose tombstone is awaited."""

    def __call__(self, records: Sequence[Record]) -> None:
        if authentic := list(self._authentic(records)):
            self._on_records(authentic)

    def _authentic(self, records: Sequence[Record]) -> Iterator[Record]:
        for record in records:
            if record.value is None:
                self._check_tombstone(record)
                continue
            found = self._authenticator.find_body(record.topic, record.key, record.value)
            if found is None:
                self._on_refused(record, "it has no valid code of the site's key")
                continue
            if found[0] is None:
                self._await_tombstone(record)
            yield Record(record.topic, record.offset, record.key, found[0], record.appended_at)

    def _await_tombstone(self, record: Record) -> None:
        self._removed[record.topic, record.key] = None
        if len(self._removed) > _REMOVALS_MAX:
            self._removed.popitem(last=False)

    def _check_tombstone(self, record: Record) -> None:
        """Report a tombstone without a removal before it; that of an old one may be compacted away already."""
        is_announced = (record.topic, record.key) in self._removed
        self._removed.pop((record.topic, record.key), None)
        if not is_announced and self._clock_ns() - record.appended_at < TOMBSTONE_S * SECOND_NS:
            self._on_refused(record, "it removes a key without a code of the site's key")


class AuthenticatedLog:
    """Implementation of `Log` that adds codes to records, and drops records without a valid one."""

    def __init__(
        self, log: Log, key: bytes, on_refused: OnRefused | None = None, *, clock_ns: Callable[[], int] = time_ns
    ) -> None:
        self._log = log
        self._authenticator = RecordAuthenticator(key)
        self._on_refused = on_refused or _ignore
        self._clock_ns = clock_ns

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        """Append records with codes, in order, without blocking."""
        check_entries(entries)
        self._log.append(list(self._authenticator.sealed(entries)), done)

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Create a topic or change its settings."""
        self._log.make(topic, settings)

    def follow(self, starts: Mapping[str, Start], on_records: OnRecords, on_gap: OnGap) -> Following:
        """Read authentic records of topics from their start positions, until closed."""
        return self._log.follow(starts, self._filtered(on_records), on_gap)

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Return at most `limit` authentic records from offset *first* on, without waiting for more.

        Refused ones are not reported, because a record may be read several times.
        """
        found: list[Record] = []
        count = limit
        while len(found) < limit:
            stored = self._log.read(topic, first, count)
            found += self._authenticator.opened(stored)
            if len(stored) < count:
                break
            first = stored[-1].offset + 1
            count = max(limit - len(found), BATCH_RECORDS_MAX)  # some were refused: skip many at a time
        return found[:limit]

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the offsets of the oldest record and of the next append, refused records included."""
        return self._log.ends(topic)

    def topics(self) -> list[str]:
        """Return the existing topics, sorted."""
        return self._log.topics()

    def join(
        self,
        group: str,
        topics: Sequence[str],
        on_records: OnRecords,
        on_gap: OnGap,
        *,
        changed: Callable[[frozenset[str]], None] | None = None,
    ) -> Member:
        """Read authentic records of topics as a member of a group."""
        return self._log.join(group, topics, self._filtered(on_records), on_gap, changed=changed)

    def committed(self, group: str) -> dict[str, int]:
        """Return the committed offsets of a group, by topic."""
        return self._log.committed(group)

    def close(self) -> None:
        """Finish pending appends and stop all readers."""
        self._log.close()

    def _filtered(self, on_records: OnRecords) -> OnRecords:
        return _Filter(self._authenticator, self._on_refused, self._clock_ns, on_records)


def _ignore(record: Record, why: str) -> None:
    """Ignore a refused record."""
