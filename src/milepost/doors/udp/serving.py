"""Serving: what endpoints say inside their sessions, one by one, and what they are answered.

| datagram    | what becomes of it                                   | answer                                        |
|-------------|------------------------------------------------------|-----------------------------------------------|
| publish     | rate, rules, vetting, corridor                       | if reliable: received, or refusal; else none, or refusal |
| subscribe   | rate, rules, corridor                                | received, or refusal                          |
| unsubscribe | corridor                                             | received                                      |
| received    | the message need not be repeated                     | none                                          |
| heartbeat   | a sign of life, as everything is                     | none                                          |
| close       | the session is over                                  | none                                          |
| any other   | nothing                                              | refusal                                       |

What must hold: a reliable message that comes again is answered again and counts once; one that is refused for its rate is not
answered, so that it comes again later.
"""

from typing import Final, Protocol

from milepost.doors.rules import Rules
from milepost.doors.udp.link import UdpLink
from milepost.doors.udp.settings import UdpSettings
from milepost.edge.corridor import Corridor
from milepost.edge.parcels import TO_CONTENT, Parcel
from milepost.edge.retained import WantsRetained
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
from milepost.vetting.payloads import Check
from milepost.vetting.rates import Bucket

ROUTES_MAX: Final = 100_000
"""So many topics are remembered at a time, each with what is asked of messages on it."""


class Desk(Protocol):
    """Who answers endpoints."""

    def confirm(self, link: UdpLink, name: Name, *, is_again: bool = False) -> None:
        """Say that something has arrived, once it is safe; `is_again`: it had arrived before."""

    def refuse(self, link: UdpLink, refused: Refused, about: Name | None) -> None:
        """Say that something was not let in."""

    def leave(self, link: UdpLink, now: Instant) -> None:
        """The endpoint has closed its session."""

    def want(self, link: UdpLink) -> None:
        """The endpoint takes more."""


class Serving:
    """Does what endpoints ask for."""

    def __init__(self, corridor: Corridor, settings: UdpSettings, rules: Rules, desk: Desk) -> None:
        self._corridor = corridor
        self._settings = settings
        self._desk = desk
        self.use(rules)

    def use(self, rules: Rules) -> None:
        """Go by other rules from now on."""
        self._rules = rules
        self._routes: dict[tuple[str | None, str, str], tuple[Refused | None, float, Check | None]] = {}

    def serve(self, link: UdpLink, value: Datagram, size: int, now: Instant) -> None:
        """One datagram of an open session; reports do not come here."""
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
                self._desk.leave(link, now)
            case Heartbeat():
                pass
            case Init() | Acknowledge() | Refusal() | Notify() | ReportSent():
                self._desk.refuse(link, Refused(Reason.PROTOCOL_ERROR, f"{type(value).__name__} inside a session"), None)

    def _publish(self, link: UdpLink, message: Message, size: int, now: Instant) -> None:
        name = MessageName(message.source, message.id)
        if message.reliable and link.names is not None and name in link.names:
            self._desk.confirm(link, name, is_again=True)
            return
        if not self._is_within_rate(link, now):
            self._corridor.counts.refused[Reason.RATE_TOO_HIGH] += 1
            return
        parcel = self._parcel_of(link, message, size)
        refused = self._why_not(link, parcel, now)
        if refused is not None:
            self._corridor.counts.refused[refused.reason] += 1
            self._desk.refuse(link, refused, name)
            return
        outcome = self._corridor.publish(parcel, now)
        if isinstance(outcome, Refused):
            self._desk.refuse(link, outcome, name)
        elif message.reliable:
            link.remember(name)
            self._desk.confirm(link, name)

    def _parcel_of(self, link: UdpLink, message: Message, size: int) -> Parcel:
        address = message.address
        is_plain = isinstance(address, ToContent) and address.within is None
        priority = message.priority
        if priority is Priority.CONVENIENCE:  # the class of who says nothing about it
            priority = self._rules.priority_of(message.topic)
        parcel = Parcel(
            message.topic,
            message.body,
            message.seen_at,
            source=message.source,
            origin=link.number,
            qos=int(message.reliable),
            priority=priority,
            valid_until=message.valid_until,
            extras=None,
            tags=message.tags,
            place=message.place or self._corridor.place_of(link.session),
            address=TO_CONTENT if is_plain else address,
            fields=message.fields,
        )
        parcel.id, parcel.size = message.id, size
        return parcel

    def _why_not(self, link: UdpLink, parcel: Parcel, now: Instant) -> Refused | None:
        denied, within_m, check = self._route(link, parcel.topic)
        if denied is not None:
            return denied
        refused = self._corridor.vet(parcel, link.session, within_m, now)
        if refused is None and check is not None:
            return check(parcel.body)
        return refused

    def _route(self, link: UdpLink, topic: str) -> tuple[Refused | None, float, Check | None]:
        """Whether an endpoint may publish on a topic, of places how near, and what is asked of its messages there."""
        who, access = link.who, self._rules.access
        key = (who.role, who.client if access.is_personal else "", topic)
        found = self._routes.get(key)
        if found is None:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            check = self._rules.payloads.check_for(topic)
            found = self._routes[key] = access.may_publish(who, topic), access.within_m(who, topic), check
        return found

    def _subscribe(self, link: UdpLink, subscription: Subscription, now: Instant) -> None:
        name = SubscriptionName(subscription.owner, subscription.id)
        if not self._is_within_rate(link, now):
            self._corridor.counts.refused[Reason.RATE_TOO_HIGH] += 1
            return
        refused = self._ask(link, subscription, now)
        if refused is not None:
            self._corridor.counts.refused[refused.reason] += 1
            self._desk.refuse(link, refused, name)
        else:
            self._desk.confirm(link, name)

    def _ask(self, link: UdpLink, subscription: Subscription, now: Instant) -> Refused | None:
        session = link.session
        if subscription.owner != session.name:
            return Refused(Reason.SOURCE_FORGED, f"a subscription of {subscription.owner}")
        key = subscription_key(subscription.id)
        former = session.subscriptions.get(key)
        if former is not None and former.subscription == subscription:  # the answer was lost
            return None
        refused = self._rules.access.may_ask(link.who, subscription.query)
        if refused is not None:
            return refused
        return self._corridor.subscribe(session, key, subscription, now, wants_retained=WantsRetained.ALWAYS)

    def ask_again(self, link: UdpLink) -> None:
        """Hold the subscriptions of an endpoint to rules that came after them."""
        for key, asked in list(link.session.subscriptions.items()):
            refused = self._rules.access.may_ask(link.who, asked.subscription.query)
            if refused is not None:
                self._corridor.unsubscribe(link.session, key)
                self._desk.refuse(link, refused, SubscriptionName(link.session.name, asked.subscription.id))

    def _unsubscribe(self, link: UdpLink, name: SubscriptionName) -> None:
        self._corridor.unsubscribe(link.session, subscription_key(name.id))
        self._desk.confirm(link, name)

    def _received(self, link: UdpLink, name: Name) -> None:
        if isinstance(name, SubscriptionName):
            return
        for number, delivery in link.session.in_flight.items():
            parcel = delivery.parcel
            if parcel.id == name.id and parcel.source == name.source:
                self._corridor.deliveries.acknowledge(link.session, number)
                self._desk.want(link)
                return

    def _is_within_rate(self, link: UdpLink, now: Instant) -> bool:
        if link.bucket is None:
            link.bucket = Bucket(self._settings.messages_per_s, self._settings.messages_burst)
        return link.bucket.take(1.0 / self._corridor.watch.share_of(link.number), now)


def subscription_key(number: int) -> str:
    """Under which name a session has a subscription: no topic filter looks like it."""
    return f"#{number}"
