"""A listener for endpoints that are admitted at once and never wait for their session, like UDP endpoints."""

from typing import Final

from milepost.broker.broker import Broker
from milepost.broker.effects import Deliver, FastPathBatch, Release, Revoke
from milepost.broker.session import NO_CONNECTION, Connection, Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Refused

ENCODING: Final = 99


class PlainConnection(Connection):
    """The connection of one endpoint; received messages wait to be read."""

    __slots__ = ("is_over", "received", "session")

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[int, bytes, str, int]] = []
        """Packet id, body, topic and QoS."""
        self.is_over = False
        self.session: Session | None = None


class PlainListener:
    """Implementation of `milepost.listeners.event_loop.EdgeListener`."""

    encodings: tuple[int, ...] = (ENCODING,)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def deliver(self, action: Deliver, now: Instant) -> None:
        for session in action.sessions:
            if isinstance(session.connection, PlainConnection):
                publication = action.delivery.publication
                session.connection.received.append((action.packet_id, publication.body, publication.topic, action.delivery.qos))

    def run(self, action: FastPathBatch, now: Instant) -> None:
        raise AssertionError("this listener has no fast path")

    def release(self, action: Release) -> None:
        """Do nothing: acknowledgements are one step here."""

    def expel(self, connection: Connection, why: Refused) -> None:
        if isinstance(connection, PlainConnection):
            connection.is_over = True

    def redirect(self, connection: Connection, address: str) -> None:
        """Do nothing: no endpoint is redirected."""

    def revoke(self, action: Revoke) -> None:
        pass

    def welcome(self, name: EndpointId, why: Refused | None, now: Instant) -> None:
        """Do nothing: no client waits."""

    def discard_replies(self, why: Refused) -> None:
        """Do nothing: there are no replies."""

    def disconnect(self, session: Session, why: Refused) -> None:
        """Do nothing: storage does not fail."""

    def resume(self, now: Instant) -> None:
        for session in self._broker.sessions:
            if isinstance(session.connection, PlainConnection) and session.connection is not NO_CONNECTION:
                while self._broker.deliveries.drain(session, now, 65_536):
                    pass

    def send(self, now: Instant) -> bool:
        return False

    def on_timer(self, now: Instant) -> None:
        """Do nothing: there is no keepalive."""
