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
from milepost.broker.retained_store import WantsRetained
from milepost.listeners.udp.connection import UdpConnection
from milepost.model.addresses import ToContent
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason, Refused
from milepost.model.sessions import (
    Acknowledge,
    Close,
    Datagram,
    Heartbeat,
    Init,
    MessageName,
    Name,
    Notify,
    Publish,
    Received,
    Refusal,
    ReportSent,
    Subscribe,
    SubscriptionName,
    Unsubscribe,
)
from milepost.model.subscriptions import Subscription


class Responder(Protocol):
    """Sends replies to endpoints."""

    def confirm(self, link: UdpConnection, name: Name, *, is_again: bool = False) -> None:
        """Send RECEIVED once the changes are stored; *is_again*: the datagram is a duplicate."""

    def refuse(self, link: UdpConnection, refused: Refused, about: Name | None) -> None:
        """Send a refusal."""

    def leave(self, link: UdpConnection, now: Instant) -> None:
        """End a session that its endpoint has closed."""

    def want(self, link: UdpConnection) -> None:
        """Mark a connection as ready for more queued messages."""


class RequestHandler:
    """Carries out the requests of endpoints."""

    def __init__(self, broker: Broker, context: Responder) -> None:
        self._broker = broker
        self._context = context

    def serve(self, link: UdpConnection, value: Datagram, size: int, now: Instant) -> None:
        """Handle one datagram of an open session; reports are handled elsewhere."""
        match value:
            case Publish():
                self._publish(link, value.message, size, now)
            case Subscribe():
                self._subscribe(link, value.subscription, now)
            case Unsubscribe():
                self._unsubscribe(link, value.subscription)
            case Received():
                self._received(link, value.name)
            case Close():
                self._context.leave(link, now)
            case Heartbeat():
                pass
            case Init() | Acknowledge() | Refusal() | Notify() | ReportSent():
                self._context.refuse(link, Refused(Reason.PROTOCOL_ERROR, f"{type(value).__name__} inside a session"), None)

    def _publish(self, link: UdpConnection, message: Message, size: int, now: Instant) -> None:
        name = MessageName(message.source, message.id)
        if message.reliable and link.names is not None and name in link.names:
            self._context.confirm(link, name, is_again=True)
            return
        outcome = self._broker.publish(link.session, self._publication_of(link, message, size), now)
        if isinstance(outcome, Refused):
            if outcome.reason is not Reason.RATE_TOO_HIGH:  # no reply: the endpoint repeats it later
                self._context.refuse(link, outcome, name)
        elif message.reliable:
            link.remember(name)
            self._context.confirm(link, name)

    def _publication_of(self, link: UdpConnection, message: Message, size: int) -> Publication:
        address = message.address
        is_plain = isinstance(address, ToContent) and address.within is None
        publication = Publication(
            message.topic,
            message.body,
            message.seen_at,
            source=message.source,
            origin=link.number,
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
        return publication

    def _subscribe(self, link: UdpConnection, subscription: Subscription, now: Instant) -> None:
        key = subscription_key(subscription.id)
        former = link.session.subscriptions.get(key)
        is_repeated = former is not None and former.subscription == subscription  # the reply was lost
        refused = None
        if not is_repeated:
            refused = self._broker.subscribe(link.session, key, subscription, now, wants_retained=WantsRetained.ALWAYS)
        name = SubscriptionName(subscription.owner, subscription.id)
        if refused is None:
            self._context.confirm(link, name)
        elif self._broker.refuse(refused).reason is not Reason.RATE_TOO_HIGH:
            self._context.refuse(link, refused, name)

    def _unsubscribe(self, link: UdpConnection, name: SubscriptionName) -> None:
        self._broker.unsubscribe(link.session, subscription_key(name.id))
        self._context.confirm(link, name)

    def _received(self, link: UdpConnection, name: Name) -> None:
        if isinstance(name, SubscriptionName):
            return
        for number, delivery in link.session.in_flight.items():
            publication = delivery.publication
            if publication.id == name.id and publication.source == name.source:
                self._broker.acknowledge(link.session, number)
                self._context.want(link)
                return


def subscription_key(number: int) -> str:
    """Return the key of a subscription in its session, which cannot be a valid topic filter."""
    return f"#{number}"
