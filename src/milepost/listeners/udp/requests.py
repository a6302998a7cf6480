"""Datagrams inside a session, other than reports, and their replies.

| datagram    | effect                                               | reply                                         |
|-------------|------------------------------------------------------|-----------------------------------------------|
| publish     | rate, rules, vetting, broker                         | if reliable: received, or refusal; else none, or refusal |
| subscribe   | rate, rules, broker                                  | received, or refusal                          |
| unsubscribe | broker                                               | received                                      |
| received    | retransmission of the message ends                   | none                                          |
| heartbeat   | none beyond the keepalive, which every datagram is   | none                                          |
| close       | the session ends                                     | none                                          |
| any other   | none                                                 | refusal                                       |

Invariants: a repeated reliable message is acknowledged again and published once; a message refused for its rate gets no reply,
so that the endpoint repeats it later.
"""

from typing import Protocol

from milepost.broker.broker import Broker
from milepost.broker.publication import TO_CONTENT, Publication
from milepost.broker.retained_store import RetainHandling
from milepost.listeners.udp.connection import UdpConnection
from milepost.model.addresses import ToContent
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason, Refused
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    Close,
    Datagram,
    Heartbeat,
    Init,
    MessageName,
    Name,
    Notify,
    PublishDatagram,
    ReceivedDatagram,
    Refusal,
    ReportSent,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
)
from milepost.model.subscriptions import Subscription


class ReplySender(Protocol):
    """Sends replies to endpoints."""

    def confirm(self, connection: UdpConnection, name: Name, *, is_duplicate: bool = False) -> None:
        """Send RECEIVED once the changes are stored; *is_duplicate*: the datagram is a duplicate."""

    def refuse(self, connection: UdpConnection, refused: Refused, about: Name | None) -> None:
        """Send a refusal."""

    def leave(self, connection: UdpConnection, now: Instant) -> None:
        """End a session that its endpoint has closed."""

    def mark_drainable(self, connection: UdpConnection) -> None:
        """Mark a connection as ready for more queued messages."""


class RequestHandler:
    """Carries out the requests of endpoints."""

    def __init__(self, broker: Broker, replies: ReplySender) -> None:
        self._broker = broker
        self._replies = replies

    def serve(self, connection: UdpConnection, value: Datagram, size: int, now: Instant) -> None:
        """Handle one datagram of an open session; reports are handled elsewhere."""
        match value:
            case PublishDatagram():
                self._publish(connection, value.message, size, now)
            case SubscribeDatagram():
                self._subscribe(connection, value.subscription, now)
            case UnsubscribeDatagram():
                self._unsubscribe(connection, value.subscription)
            case ReceivedDatagram():
                self._received(connection, value.name)
            case Close():
                self._replies.leave(connection, now)
            case Heartbeat():
                pass
            case Init() | AcknowledgeDatagram() | Refusal() | Notify() | ReportSent():
                self._replies.refuse(connection, Refused(Reason.PROTOCOL_ERROR, f"{type(value).__name__} inside a session"), None)

    def _publish(self, connection: UdpConnection, message: Message, size: int, now: Instant) -> None:
        name = MessageName(message.source, message.id)
        if message.reliable and connection.names is not None and name in connection.names:
            self._replies.confirm(connection, name, is_duplicate=True)
            return
        outcome = self._broker.publish(connection.session, self._publication_of(connection, message, size), now)
        if isinstance(outcome, Refused):
            if outcome.reason is not Reason.RATE_TOO_HIGH:  # no reply: the endpoint repeats it later
                self._replies.refuse(connection, outcome, name)
        elif message.reliable:
            connection.remember(name)
            self._replies.confirm(connection, name)

    def _publication_of(self, connection: UdpConnection, message: Message, size: int) -> Publication:
        address = message.address
        is_plain = isinstance(address, ToContent) and address.within is None
        publication = Publication(
            message.topic,
            message.body,
            message.seen_at,
            source=message.source,
            origin=connection.number,
            qos=int(message.reliable),
            priority=None
            if message.priority is Priority.CONVENIENCE
            else message.priority,  # CONVENIENCE is the class of a message that states none
            valid_until=message.valid_until,
            extras=None,
            tags=message.tags,
            place=message.place,
            address=TO_CONTENT if is_plain else address,
            fields=message.fields,
        )
        publication.id, publication.size = message.id, size
        if message.signature:
            publication.signed = message.signature, message.certificate
        return publication

    def _subscribe(self, connection: UdpConnection, subscription: Subscription, now: Instant) -> None:
        key = subscription_key(subscription.id)
        previous = connection.session.subscriptions.get(key)
        is_repeated = previous is not None and previous.subscription == subscription  # the reply was lost
        refused = None
        if not is_repeated:
            refused = self._broker.subscribe(connection.session, key, subscription, now, retain_handling=RetainHandling.ALWAYS)
        name = SubscriptionName(subscription.owner, subscription.id)
        if refused is None:
            self._replies.confirm(connection, name)
        elif self._broker.refuse(refused).reason is not Reason.RATE_TOO_HIGH:
            self._replies.refuse(connection, refused, name)

    def _unsubscribe(self, connection: UdpConnection, name: SubscriptionName) -> None:
        self._broker.unsubscribe(connection.session, subscription_key(name.id))
        self._replies.confirm(connection, name)

    def _received(self, connection: UdpConnection, name: Name) -> None:
        if isinstance(name, SubscriptionName):
            return
        for number, delivery in connection.session.in_flight.items():
            publication = delivery.publication
            if publication.id == name.id and publication.source == name.source:
                self._broker.acknowledge(connection.session, number)
                self._replies.mark_drainable(connection)
                return


def subscription_key(number: int) -> str:
    """Return the key of a subscription in its session, which cannot be a valid topic filter."""
    return f"#{number}"
