"""Consumer groups: membership, claims and commits as SQL statements, the members that read, and the lease renewal.

Invariants:
- a topic of a group is claimed by one member at a time: its holder releases it, or its lease expires, before another claims it;
- each claim has a unique number (the group's generation), and a commit is valid only under the claim it was made under;
- a lease ends at a time of the machine's monotonic clock, shared by all its processes. A lease that ends further ahead than
  `LEASE_S` was written before the last reboot and has expired;
- `changed` is called before the first records of a new topic, and after the last records of a topic that was released;
- a topic that another member waits for is released between two batches, never during one;
- no record is handed over after the lease has expired by the member's own clock, whatever the file says;
- a member that has left claims nothing: no one would release it.
"""

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from secrets import randbits
from time import monotonic_ns
from typing import Final, NamedTuple

from milepost.eventlog.embedded.database import Database
from milepost.eventlog.embedded.reader import EmbeddedReader
from milepost.eventlog.embedded.rows import OFFSETS_MAX
from milepost.eventlog.embedded.watcher import TopicWatcher
from milepost.eventlog.embedded.writer import EmbeddedWriter
from milepost.eventlog.log import LogUnavailable, OnGap, OnRecords, assign_topics, call_safely
from milepost.model.instants import SECOND_NS

LEASE_S: Final = 3
"""Lease duration; a member that does not renew it in time is removed from the group."""
_LEASE_NS: Final = LEASE_S * SECOND_NS


class TopicClaim(NamedTuple):
    """A member's claim on a topic, with the offset to start from."""

    generation: int
    topic_id: int
    start: int


class Assignment(NamedTuple):
    """The claims of one member, and those of them that are due to other members."""

    claims: dict[str, TopicClaim]
    to_release: frozenset[str]


def rebalance(connection: sqlite3.Connection, group: str, member: int, topics: frozenset[str], now_ns: int) -> Assignment:
    """Renew a member's lease, remove expired members, and claim the free topics due to this member."""
    is_change = _remove_expired(connection, group, now_ns)
    is_change |= _renew(connection, group, member, topics, now_ns)
    division = assign_topics(_members(connection, group))
    due = {topic for topic, owner in division.items() if owner == member}
    holders: dict[str, int] = dict(connection.execute("SELECT topic, member FROM claims WHERE group_name = ?", (group,)))
    free = sorted(due - holders.keys())
    if is_change or free:
        generation = _bump(connection, group)
        rows = [(group, topic, member, generation) for topic in free]
        connection.executemany("INSERT INTO claims VALUES (?, ?, ?, ?)", rows)
    mine = {topic for topic, owner in holders.items() if owner == member}
    return Assignment(_claims(connection, group, member), frozenset(mine - due))


def release(connection: sqlite3.Connection, group: str, claims: Mapping[str, TopicClaim]) -> None:
    """Release claims, unless the topics were claimed anew meanwhile."""
    rows = [(group, topic, claim.generation) for topic, claim in claims.items()]
    connection.executemany("DELETE FROM claims WHERE group_name = ? AND topic = ? AND generation = ?", rows)
    _bump(connection, group)


def leave(connection: sqlite3.Connection, group: str, member: int) -> None:
    """Release all claims of a member and end its membership."""
    connection.execute("DELETE FROM members WHERE member = ?", (member,))
    connection.execute("DELETE FROM claims WHERE group_name = ? AND member = ?", (group, member))
    _bump(connection, group)


def commit(connection: sqlite3.Connection, group: str, member: int, topic: str, generation: int, offset: int) -> None:
    """Store a member's offset if it still holds the topic under that claim."""
    connection.execute(
        """INSERT INTO committed SELECT group_name, topic, ? FROM claims
           WHERE group_name = ? AND topic = ? AND member = ? AND generation = ?
           ON CONFLICT (group_name, topic) DO UPDATE SET next = excluded.next""",
        (offset, group, topic, member, generation),
    )


def _remove_expired(connection: sqlite3.Connection, group: str, now_ns: int) -> bool:
    over = connection.execute(
        "SELECT member FROM members WHERE group_name = ? AND NOT (expires_at BETWEEN ? AND ?)",
        (group, now_ns, now_ns + _LEASE_NS),
    ).fetchall()
    for (member,) in over:
        connection.execute("DELETE FROM members WHERE member = ?", (member,))
        connection.execute("DELETE FROM claims WHERE group_name = ? AND member = ?", (group, member))
    return bool(over)


def _renew(connection: sqlite3.Connection, group: str, member: int, topics: frozenset[str], now_ns: int) -> bool:
    """Renew the lease; return whether this is a new member."""
    expires_at = now_ns + _LEASE_NS
    if connection.execute("UPDATE members SET expires_at = ? WHERE member = ?", (expires_at, member)).rowcount:
        return False
    connection.execute("INSERT INTO members VALUES (?, ?, ?, ?)", (member, group, json.dumps(sorted(topics)), expires_at))
    return True


def _members(connection: sqlite3.Connection, group: str) -> dict[int, frozenset[str]]:
    rows = connection.execute("SELECT member, topics FROM members WHERE group_name = ?", (group,))
    return {member: frozenset(json.loads(topics)) for member, topics in rows}


def _bump(connection: sqlite3.Connection, group: str) -> int:
    connection.execute("INSERT INTO groups VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET generation = generation + 1", (group,))
    (generation,) = connection.execute("SELECT generation FROM groups WHERE name = ?", (group,)).fetchone()
    return int(generation)


def _claims(connection: sqlite3.Connection, group: str, member: int) -> dict[str, TopicClaim]:
    rows = connection.execute(
        """SELECT claims.topic, generation, topics.id, coalesce(committed.next, topics.first) FROM claims
           JOIN topics ON topics.name = claims.topic
           LEFT JOIN committed ON committed.group_name = claims.group_name AND committed.topic = claims.topic
           WHERE claims.group_name = ? AND member = ?""",
        (group, member),
    )
    return {topic: TopicClaim(generation, topic_id, start) for topic, generation, topic_id, start in rows}


RENEW_S: Final = LEASE_S / 4
MEMBER_BITS: Final = 62

Changed = Callable[[frozenset[str]], None]


class EmbeddedGroupMember:
    """One member of a group; `reader` creates its reader, which checks the lease before it hands over records."""

    def __init__(
        self,
        group: str,
        topics: frozenset[str],
        writer: EmbeddedWriter,
        watcher: TopicWatcher,
        reader: Callable[[Callable[[], bool]], EmbeddedReader],
        changed: Changed | None,
    ) -> None:
        self._group = group
        self._topics = topics
        self._writer = writer
        self._watcher = watcher
        self._changed = changed
        self._number = randbits(MEMBER_BITS)
        self._claims: dict[str, TopicClaim] = {}
        self._lease_ends_ns = 0
        self._is_renewing = False
        self._renews_again = False
        self._is_leaving = False
        self._lock = threading.RLock()
        self._reader = reader(lambda: monotonic_ns() < self._lease_ends_ns)
        self._reader.start({})
        watcher.add_group(group, self.renew)
        self.renew()

    @property
    def fault(self) -> str | None:
        """Reason why the topics cannot be read at the moment, or None."""
        return self._reader.fault

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called."""
        return not self._is_leaving

    def commit(self, topic: str, offset: int) -> None:
        """Commit `offset`: all records before it are processed; ignored if the topic went to another member."""
        assert 0 <= offset < OFFSETS_MAX
        with self._lock:
            claim = self._claims.get(topic)
        if claim is not None:
            work = partial(
                commit, group=self._group, member=self._number, topic=topic, generation=claim.generation, offset=offset
            )
            self._writer.post(work)

    def renew(self) -> None:
        """Renew the lease and update this member's claims; a call during a renewal causes one more afterwards."""
        found: list[tuple[int, Assignment]] = []

        def work(connection: sqlite3.Connection) -> None:
            now_ns = monotonic_ns()
            found[:] = [(now_ns + LEASE_S * SECOND_NS, rebalance(connection, self._group, self._number, self._topics, now_ns))]

        with self._lock:
            self._renews_again = self._is_renewing
            if not (self._is_renewing or self._is_leaving):
                self._is_renewing = True
                self._writer.post(work, lambda fault: self._on_renewed(None if fault else found[0]), notifies_others=True)

    def close(self) -> None:
        """Leave the group; the other members take over without waiting for a timeout."""
        with self._lock:
            if self._is_leaving:
                return
            self._is_leaving = True
        self._watcher.remove_group(self._group, self.renew)
        self._reader.close()
        with suppress(LogUnavailable):  # the lease then expires
            self._writer.call(partial(leave, group=self._group, member=self._number), notifies_others=True)

    def _on_renewed(self, answer: tuple[int, Assignment] | None) -> None:
        if answer is not None:
            self._lease_ends_ns, assignment = answer
            self._reader.between(lambda: self._apply(assignment))
        with self._lock:
            self._is_renewing = False
            if self._renews_again:
                self.renew()

    def _apply(self, assignment: Assignment) -> None:
        """In the reader's thread: drop lost topics, release those due to others, start reading new ones."""
        to_release = {topic: claim for topic, claim in assignment.claims.items() if topic in assignment.to_release}
        claims = {topic: claim for topic, claim in assignment.claims.items() if topic not in to_release}
        before = self._claims
        for topic, claim in before.items():
            if not _is_same(claims.get(topic), claim):
                self._reader.drop(claim.topic_id)
        with self._lock:
            self._claims = claims
        if to_release:
            self._writer.post(partial(release, group=self._group, claims=to_release), notifies_others=True)
        if self._changed is not None and claims.keys() != before.keys():
            call_safely(self._changed, frozenset(claims))
        for topic, claim in claims.items():
            if not _is_same(before.get(topic), claim):
                self._reader.add(topic, claim.topic_id, claim.start)


class LeaseRenewal:
    """The members of one log object, and the thread that renews their leases."""

    def __init__(self, writer: EmbeddedWriter, watcher: TopicWatcher, database: Database) -> None:
        self._writer = writer
        self._watcher = watcher
        self._database = database
        self._members: list[EmbeddedGroupMember] = []
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def faults(self) -> list[str | None]:
        """Troubles of the open members; None for each without one."""
        return [member.fault for member in self._members if member.is_open]

    def join(
        self, group: str, topics: frozenset[str], on_records: OnRecords, on_gap: OnGap, changed: Changed | None
    ) -> EmbeddedGroupMember:
        """Add a member."""
        member = EmbeddedGroupMember(
            group,
            topics,
            self._writer,
            self._watcher,
            lambda has_lease: EmbeddedReader(self._database, self._watcher, on_records, on_gap, may_read=has_lease),
            changed,
        )
        with self._lock:
            self._members = [*(one for one in self._members if one.is_open), member]
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew_leases, name="log-heart", daemon=True)
                self._thread.start()
        return member

    def close(self) -> None:
        """Close all members and stop the thread."""
        self._closing.set()
        for member in self._members:
            member.close()
        if self._thread is not None:
            self._thread.join()

    def _renew_leases(self) -> None:
        while not self._closing.wait(RENEW_S):
            for member in self._members:
                member.renew()


def _is_same(one: TopicClaim | None, other: TopicClaim) -> bool:
    return one is not None and one.generation == other.generation
