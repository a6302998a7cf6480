"""Keeping: what an edge wants remembered, so that it is there again after the process died.

What must hold:
- an edge only says what changed; whoever stores it writes all changes of one turn together, or none of them;
- a later change of the same key in a turn replaces the earlier one, so a change and its undoing cost nothing twice;
- what belongs to a session that goes is said to go too, one by one: its number may be another's before the turn is over;
- nothing here knows how or where things are stored.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Queued(NamedTuple):
    """A message that waits for a session, or was sent and not yet acknowledged."""

    message: int
    """The number of the kept message."""
    qos: int
    is_released: bool
    """The receiver has it (quality 2); only the end of the exchange is still open."""
    details: bytes
    """What the door needs beside the message to send it again."""


@dataclass(slots=True)
class Changes:
    """What changed in one turn; None means gone. Sessions, messages and deliveries are numbers the edge gave out."""

    sessions: dict[int, bytes | None] = field(default_factory=dict)
    subscriptions: dict[tuple[int, str], bytes | None] = field(default_factory=dict)
    """By session and the name the subscription has there."""
    retained: dict[str, bytes | None] = field(default_factory=dict)
    messages: dict[int, bytes | None] = field(default_factory=dict)
    queued: dict[tuple[int, int], Queued | None] = field(default_factory=dict)
    """By session and delivery number, in the order they were queued."""
    received: dict[tuple[int, int], bool | None] = field(default_factory=dict)
    """Numbers that a sender used at quality 2 and has not released yet: True while it is open, None when it is over."""
    outbox: dict[int, bytes | None] = field(default_factory=dict)
    """What is still to be appended to the site's log, by its number there."""
    marks: dict[str, int] = field(default_factory=dict)
    """How far this edge has read what others say, by the name of each stream."""
    stays: dict[str, bytes | None] = field(default_factory=dict)
    """By endpoint: its epoch here, and what is still open of its move."""
    standing: dict[str, bytes | None] = field(default_factory=dict)
    """By incident: the message to an area that stands."""
    told: dict[tuple[int, str], bytes | None] = field(default_factory=dict)
    """By session and incident."""

    def absorb(self, later: "Changes") -> None:
        """Take over what changed since."""
        self.sessions |= later.sessions
        self.subscriptions |= later.subscriptions
        self.retained |= later.retained
        self.messages |= later.messages
        self.queued |= later.queued
        self.received |= later.received
        self.outbox |= later.outbox
        self.marks |= later.marks
        self.stays |= later.stays
        self.standing |= later.standing
        self.told |= later.told

    def __bool__(self) -> bool:
        own = self.sessions or self.subscriptions or self.retained or self.messages or self.queued or self.received
        return bool(own or self.outbox or self.marks or self.stays or self.standing or self.told)


@dataclass(slots=True)
class Kept:
    """All that was kept, as it is found at the start."""

    sessions: dict[int, bytes] = field(default_factory=dict)
    subscriptions: dict[tuple[int, str], bytes] = field(default_factory=dict)
    retained: dict[str, bytes] = field(default_factory=dict)
    messages: dict[int, bytes] = field(default_factory=dict)
    queued: dict[tuple[int, int], Queued] = field(default_factory=dict)
    """In the order in which they were queued."""
    received: Iterable[tuple[int, int]] = ()
    outbox: dict[int, bytes] = field(default_factory=dict)
    """In the order of numbers."""
    marks: dict[str, int] = field(default_factory=dict)
    stays: dict[str, bytes] = field(default_factory=dict)
    standing: dict[str, bytes] = field(default_factory=dict)
    told: dict[tuple[int, str], bytes] = field(default_factory=dict)


class StorageUnavailable(Exception):
    """Nothing can be kept at the moment (disk full, read-only, gone): the text says why."""


class Storage(Protocol):
    """Where an edge keeps things. `write` is all or nothing, and returns when the promised level of safety is reached."""

    def load(self) -> Kept:
        """All that was written and not undone."""

    def write(self, changes: Changes) -> None:
        """Keep the changes of one turn; raises `StorageUnavailable` and keeps none of them if that is not possible."""

    def close(self) -> None:
        """Finish; nothing written is lost."""
