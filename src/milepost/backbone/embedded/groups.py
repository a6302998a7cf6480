"""Groups: who is a member, who has which topic, what was committed; as statements inside the transaction of the caller.

What must hold:
- a topic of a group is claimed by one member at a time: the one that has it lets go, or its lease ends, before another takes it;
- each claim has a number of its own (the group's generation), and a commit counts only under the claim it was made under;
- a lease is a time of the machine's monotonic clock, which all its processes share. One that ends later than a lease can last
  was written before the machine was started again: it is over.
"""

import json
import sqlite3
from collections.abc import Mapping
from typing import Final, NamedTuple

from milepost.model.instants import SECOND_NS

LEASE_S: Final = 3
"""A member that is not heard of for so long is out."""
_LEASE_NS: Final = LEASE_S * SECOND_NS


class Claim(NamedTuple):
    """A topic that a member has."""

    generation: int
    topic_id: int
    start: int


class Standing(NamedTuple):
    """What one member has, and what of it others wait for."""

    claims: dict[str, Claim]
    unwanted: frozenset[str]


def divide(members: Mapping[int, frozenset[str]]) -> dict[str, int]:
    """Which member each topic should go to: evenly, and the same whoever computes it."""
    load = dict.fromkeys(sorted(members), 0)
    division: dict[str, int] = {}
    for topic in sorted({topic for topics in members.values() for topic in topics}):
        member = min((member for member in load if topic in members[member]), key=lambda one: (load[one], one))
        division[topic] = member
        load[member] += 1
    return division


def settle(connection: sqlite3.Connection, group: str, member: int, topics: frozenset[str], now_ns: int) -> Standing:
    """Renew a member's lease, remove those whose lease is over, take what is free and due to this one."""
    is_change = _remove_expired(connection, group, now_ns)
    is_change |= _renew(connection, group, member, topics, now_ns)
    division = divide(_members(connection, group))
    due = {topic for topic, whose in division.items() if whose == member}
    holders: dict[str, int] = dict(connection.execute("SELECT topic, member FROM claims WHERE group_name = ?", (group,)))
    free = sorted(due - holders.keys())
    if is_change or free:
        generation = _bump(connection, group)
        rows = [(group, topic, member, generation) for topic in free]
        connection.executemany("INSERT INTO claims VALUES (?, ?, ?, ?)", rows)
    mine = {topic for topic, whose in holders.items() if whose == member}
    return Standing(_claims(connection, group, member), frozenset(mine - due))


def release(connection: sqlite3.Connection, group: str, claims: Mapping[str, Claim]) -> None:
    """Let go of topics, unless they were claimed anew in the meantime."""
    rows = [(group, topic, claim.generation) for topic, claim in claims.items()]
    connection.executemany("DELETE FROM claims WHERE group_name = ? AND topic = ? AND generation = ?", rows)
    _bump(connection, group)


def leave(connection: sqlite3.Connection, group: str, member: int) -> None:
    """Let go of all, and be a member no longer."""
    connection.execute("DELETE FROM members WHERE member = ?", (member,))
    connection.execute("DELETE FROM claims WHERE group_name = ? AND member = ?", (group, member))
    _bump(connection, group)


def commit(connection: sqlite3.Connection, group: str, member: int, topic: str, generation: int, offset: int) -> None:
    """Keep how far a member came, if the topic is still its own under that claim."""
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
    """Whether it was not a member before."""
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


def _claims(connection: sqlite3.Connection, group: str, member: int) -> dict[str, Claim]:
    rows = connection.execute(
        """SELECT claims.topic, generation, topics.id, coalesce(committed.next, topics.first) FROM claims
           JOIN topics ON topics.name = claims.topic
           LEFT JOIN committed ON committed.group_name = claims.group_name AND committed.topic = claims.topic
           WHERE claims.group_name = ? AND member = ?""",
        (group, member),
    )
    return {topic: Claim(generation, topic_id, start) for topic, generation, topic_id, start in rows}
