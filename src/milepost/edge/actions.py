"""Actions: what an edge wants done, with all recipients at once; the doors do it."""

from dataclasses import dataclass

from milepost.edge.parcels import Delivery
from milepost.edge.plans import Fan
from milepost.edge.sessions import Link, Session
from milepost.model.endpoints import EndpointId
from milepost.model.priorities import Priority
from milepost.model.reasons import Refused


class Deliver:
    """Send a message to sessions of one dialect, under one number (0: it is not acknowledged)."""

    __slots__ = ("delivery", "dialect", "is_again", "number", "sessions")

    def __init__(self, delivery: Delivery, number: int, sessions: list[Session], *, is_again: bool = False) -> None:
        self.delivery = delivery
        self.number = number
        self.sessions = sessions
        self.dialect = sessions[0].dialect
        """Who speaks another one when it is sent has come back in this turn, and is not meant."""
        self.is_again = is_again


@dataclass(frozen=True, slots=True)
class Release:
    """Tell a session once more that the exchange of quality 2 under a number may end."""

    session: Session
    number: int


@dataclass(frozen=True, slots=True)
class Expel:
    """Close a link, and say why."""

    link: Link
    why: Refused


@dataclass(frozen=True, slots=True)
class Redirect:
    """Close a link, and tell its endpoint to go on at the address of another edge."""

    link: Link
    address: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """An endpoint that had to wait may open its session now, or has to go."""

    name: EndpointId
    why: Refused | None = None


class Run:
    """Send messages of quality 0, just as they came, to all takers of a fan: the short way of what nobody has to look into.

    They came in one dialect; takers of another have them put into theirs.
    """

    __slots__ = ("dialect", "fan", "origins", "packets", "priority")

    def __init__(self, fan: Fan, dialect: int, priority: Priority) -> None:
        self.fan = fan
        self.dialect = dialect
        self.priority = priority
        self.packets: list[bytes] = []
        self.origins: list[Session] = []
        """For each message the session it came from."""


Action = Deliver | Run | Release | Expel | Redirect | Welcome
