"""Asking: the subscriptions of all sessions, in matching and in plans, each under its row.

What must hold:
- a subscription is in matching and in plans, or in neither: one that is set aside has no row, and whoever set it aside serves it.
"""

from typing import Final

from milepost.edge.plans import Planner
from milepost.edge.sessions import Asked, Session
from milepost.matching.matcher import Matcher
from milepost.model.instants import Instant

ASIDE: Final = -1
"""The row of a subscription that is set aside."""


class Asking:
    """All subscriptions of an edge."""

    def __init__(self, matcher: Matcher, planner: Planner) -> None:
        self._matcher = matcher
        self._planner = planner
        self._in_row: dict[int, tuple[Session, str]] = {}

    def enter(self, session: Session, name: str, asked: Asked) -> None:
        """A subscription is in use, under the row it has in matching."""
        session.subscriptions[name] = asked
        self._in_row[asked.row] = (session, name)
        self._planner.put(asked)

    def take_up(self, session: Session, name: str, asked: Asked) -> None:
        """A subscription that was kept, or set aside, is in use again."""
        asked.row = self._matcher.add(session.number, asked.subscription)
        self.enter(session, name, asked)

    def set_aside(self, session: Session, name: str) -> None:
        """Let a subscription be without effect here."""
        asked = session.subscriptions[name]
        if asked.row != ASIDE:
            self._matcher.remove(asked.row)
            self._forget(asked.row)
            asked.row = ASIDE

    def drop(self, session: Session, name: str) -> None:
        """A subscription is over."""
        self.set_aside(session, name)
        del session.subscriptions[name]

    def expire(self, now: Instant) -> list[tuple[Session, str]]:
        """Take out subscriptions whose frame is over; gives whose they were, and their names."""
        ended = []
        for row in self._matcher.expire(now):
            session, name = self._in_row[row]
            del session.subscriptions[name]
            self._forget(row)
            ended.append((session, name))
        return ended

    def _forget(self, row: int) -> None:
        del self._in_row[row]
        self._planner.take_away(row)
