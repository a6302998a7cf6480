"""Repeats: reliable messages on their way to endpoints, sent again until they are answered, or given up.

What must hold:
- a message and all its takers are one entry here, whoever of them has answered meanwhile;
- the time between two tries doubles, up to a limit; after the last try it is given up, and counted as unanswered;
- whether somebody has answered is known by its session alone (`in_flight`).
"""

from heapq import heappop, heappush
from typing import Final, NamedTuple

from milepost.doors.udp.link import UdpLink
from milepost.edge.parcels import Delivery
from milepost.edge.sessions import Session
from milepost.model.instants import SECOND_NS

FIRST_NS: Final = 3 * SECOND_NS // 10
LONGEST_NS: Final = 5 * SECOND_NS
TRIES_MAX: Final = 16


class Due(NamedTuple):
    """A message that some have not answered."""

    at: int
    order: int
    tries: int
    """How often it was sent."""
    delivery: Delivery
    number: int
    sessions: list[Session]


class Repeats:
    """What may have to be sent again."""

    def __init__(self) -> None:
        self._due: list[Due] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._due)

    def expect(self, delivery: Delivery, number: int, sessions: list[Session], beat: int, tries: int = 1) -> None:
        """A message was sent for the so-manieth time; its takers will answer."""
        self._order += 1
        wait_ns = min(FIRST_NS << (tries - 1), LONGEST_NS)
        heappush(self._due, Due(beat + wait_ns, self._order, tries, delivery, number, sessions))

    def overdue(self, beat: int) -> list[Due]:
        """What was not answered in time, with those who have not."""
        found = []
        while self._due and self._due[0].at <= beat:
            due = heappop(self._due)
            waiting = [one for one in due.sessions if is_unanswered(one, due.delivery, due.number)]
            if waiting:
                found.append(due._replace(sessions=waiting))
        return found


def is_unanswered(session: Session, delivery: Delivery, number: int) -> bool:
    """Whether an endpoint is here and has not answered a message."""
    return session.in_flight.get(number) is delivery and isinstance(session.link, UdpLink)
