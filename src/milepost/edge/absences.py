"""Absences: when something is due for sessions whose endpoint is away: a will, or their end."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final

from milepost.edge.sessions import NOWHERE, Session, Sessions
from milepost.model.instants import Instant

_FORGOTTEN_MAX: Final = 64
"""So many entries, more than is needed, may stand in the order of times."""


class Absences:
    """Sessions in the order of what is next due for them."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._due: list[tuple[Instant, int, str]] = []

    def __len__(self) -> int:
        return len(self._due)

    def remind(self, session: Session) -> None:
        """Something will be due for a session that is away."""
        heappush(self._due, (_next(session), session.number, session.name))
        if len(self._due) > 4 * len(self._sessions) + _FORGOTTEN_MAX:  # most are of sessions that came back or ended
            away = [one for one in self._sessions if one.link is NOWHERE]
            self._due = sorted((_next(one), one.number, one.name) for one in away)

    def overdue(self, now: Instant) -> Iterator[Session]:
        """The sessions for which something is due, as far as they are still away."""
        while self._due and self._due[0][0] <= now:
            _, number, name = heappop(self._due)
            session = self._sessions.maybe(name)
            if session is not None and session.number == number and session.link is NOWHERE:
                yield session


def _next(session: Session) -> Instant:
    return min(session.expires_at, session.will_at)
