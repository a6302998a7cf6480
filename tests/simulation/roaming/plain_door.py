"""A door for endpoints that are let in at once and never wait for their session, as those that speak UDP are."""

from typing import Final

from milepost.broker.broker import Broker
from milepost.broker.effects import Deliver, Release, Revoke, Run
from milepost.broker.session import NOWHERE, Link, Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Refused

DIALECT: Final = 99


class PlainLink(Link):
    """One endpoint's end; what came for it waits to be looked at."""

    __slots__ = ("came", "is_over", "session")

    def __init__(self) -> None:
        super().__init__()
        self.came: list[tuple[int, bytes, str, int]] = []
        """Number, body, topic and quality."""
        self.is_over = False
        self.session: Session | None = None


class PlainDoor:
    """Keeps to `doors.settling.Door`."""

    encodings: tuple[int, ...] = (DIALECT,)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def deliver(self, action: Deliver, now: Instant) -> None:
        for session in action.sessions:
            if isinstance(session.link, PlainLink):
                publication = action.delivery.publication
                session.link.came.append((action.number, publication.body, publication.topic, action.delivery.qos))

    def run(self, action: Run, now: Instant) -> None:
        raise AssertionError("nothing comes in by this door in runs")

    def release(self, action: Release) -> None:
        """Acknowledgements are one step here."""

    def expel(self, link: Link, why: Refused) -> None:
        if isinstance(link, PlainLink):
            link.is_over = True

    def redirect(self, link: Link, address: str) -> None:
        """Nobody is sent on from here."""

    def revoke(self, action: Revoke) -> None:
        pass

    def welcome(self, name: EndpointId, why: Refused | None, now: Instant) -> None:
        """Nobody waits here."""

    def take_back(self, why: Refused) -> None:
        """Nothing is answered here."""

    def let_go(self, session: Session, why: Refused) -> None:
        """Storage is always there."""

    def resume(self, now: Instant) -> None:
        for session in self._broker.sessions:
            if isinstance(session.link, PlainLink) and session.link is not NOWHERE:
                while self._broker.deliveries.resume(session, now, 65_536):
                    pass

    def send(self, now: Instant) -> bool:
        return False

    def tick(self, now: Instant) -> None:
        """Nobody is silent too long."""
