"""Members: a reader each, whose topics change with the group; and the heart that renews their leases.

What must hold:
- `changed` is called before the first records of a new topic come, and after the last of a topic that went;
- a topic that another member waits for is let go between two batches, never during one;
- nothing is handed over when the lease has ended by our own clock, whatever the file says;
- after it has left, a member asks for nothing any more: nobody would let go of what it then got.
"""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from secrets import randbits
from time import monotonic_ns
from typing import Final

from milepost.backbone.callbacks import tell
from milepost.backbone.embedded.database import Database
from milepost.backbone.embedded.groups import LEASE_S, Claim, Standing, commit, leave, release, settle
from milepost.backbone.embedded.reader import Reader
from milepost.backbone.embedded.rows import OFFSETS_MAX
from milepost.backbone.embedded.watch import Watch
from milepost.backbone.embedded.writer import Writer
from milepost.backbone.log import LogUnavailable, Lost, Take
from milepost.model.instants import SECOND_NS

BEAT_S: Final = LEASE_S / 4
MEMBER_BITS: Final = 62

Changed = Callable[[frozenset[str]], None]


class GroupMember:
    """One member of a group; `reader` makes its reader, which asks for the lease before it hands over anything."""

    def __init__(
        self,
        group: str,
        topics: frozenset[str],
        writer: Writer,
        watch: Watch,
        reader: Callable[[Callable[[], bool]], Reader],
        changed: Changed | None,
    ) -> None:
        self._group = group
        self._topics = topics
        self._writer = writer
        self._watch = watch
        self._changed = changed
        self._number = randbits(MEMBER_BITS)
        self._claims: dict[str, Claim] = {}
        self._lease_ends_ns = 0
        self._is_asking = False
        self._asks_again = False
        self._is_leaving = False
        self._lock = threading.RLock()
        self._reader = reader(lambda: monotonic_ns() < self._lease_ends_ns)
        self._reader.start({})
        watch.add_group(group, self.ask)
        self.ask()

    @property
    def trouble(self) -> str | None:
        """Why it cannot be read at the moment."""
        return self._reader.trouble

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""
        return not self._is_leaving

    def commit(self, topic: str, offset: int) -> None:
        """All records before `offset` are dealt with; ignored if the topic went to another member."""
        assert 0 <= offset < OFFSETS_MAX
        with self._lock:
            claim = self._claims.get(topic)
        if claim is not None:
            work = partial(
                commit, group=self._group, member=self._number, topic=topic, generation=claim.generation, offset=offset
            )
            self._writer.post(work)

    def ask(self) -> None:
        """Renew the lease and learn what this member has; while that is under way, it is done once more afterwards."""
        found: list[tuple[int, Standing]] = []

        def work(connection: sqlite3.Connection) -> None:
            now_ns = monotonic_ns()
            found[:] = [(now_ns + LEASE_S * SECOND_NS, settle(connection, self._group, self._number, self._topics, now_ns))]

        with self._lock:
            self._asks_again = self._is_asking
            if not (self._is_asking or self._is_leaving):
                self._is_asking = True
                self._writer.post(work, lambda fault: self._answered(None if fault else found[0]), is_news=True)

    def close(self) -> None:
        """Leave; the others take over without waiting for a timeout."""
        with self._lock:
            if self._is_leaving:
                return
            self._is_leaving = True
        self._watch.remove_group(self._group, self.ask)
        self._reader.close()
        with suppress(LogUnavailable):  # the lease then ends by itself
            self._writer.call(partial(leave, group=self._group, member=self._number), is_news=True)

    def _answered(self, answer: tuple[int, Standing] | None) -> None:
        if answer is not None:
            self._lease_ends_ns, standing = answer
            self._reader.between(lambda: self._take_up(standing))
        with self._lock:
            self._is_asking = False
            if self._asks_again:
                self.ask()

    def _take_up(self, standing: Standing) -> None:
        """In the reader's thread: drop what went, let go of what others wait for, begin with what came."""
        unwanted = {topic: claim for topic, claim in standing.claims.items() if topic in standing.unwanted}
        claims = {topic: claim for topic, claim in standing.claims.items() if topic not in unwanted}
        before = self._claims
        for topic, claim in before.items():
            if not _is_same(claims.get(topic), claim):
                self._reader.drop(claim.topic_id)
        with self._lock:
            self._claims = claims
        if unwanted:
            self._writer.post(partial(release, group=self._group, claims=unwanted), is_news=True)
        if self._changed is not None and claims.keys() != before.keys():
            tell(self._changed, frozenset(claims))
        for topic, claim in claims.items():
            if not _is_same(before.get(topic), claim):
                self._reader.add(topic, claim.topic_id, claim.start)


class Heart:
    """The members of one log object, and the thread that keeps their leases."""

    def __init__(self, writer: Writer, watch: Watch, database: Database) -> None:
        self._writer = writer
        self._watch = watch
        self._database = database
        self._members: list[GroupMember] = []
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def troubles(self) -> list[str | None]:
        """Why members cannot be read at the moment."""
        return [member.trouble for member in self._members if member.is_open]

    def join(self, group: str, topics: frozenset[str], take: Take, lost: Lost, changed: Changed | None) -> GroupMember:
        """One more member."""
        member = GroupMember(
            group,
            topics,
            self._writer,
            self._watch,
            lambda has_lease: Reader(self._database, self._watch, take, lost, may_take=has_lease),
            changed,
        )
        with self._lock:
            self._members = [*(one for one in self._members if one.is_open), member]
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="log-heart", daemon=True)
                self._thread.start()
        return member

    def close(self) -> None:
        """All members leave."""
        self._closing.set()
        for member in self._members:
            member.close()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        while not self._closing.wait(BEAT_S):
            for member in self._members:
                member.ask()


def _is_same(one: Claim | None, other: Claim) -> bool:
    return one is not None and one.generation == other.generation
