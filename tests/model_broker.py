"""A model of the broker, in lists and loops: the messages that each client must be sent, and the state that may remain."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import product

from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.topics import filter_matches, maybe_shared
from milepost.wire.mqtt import FilterRequest, Publish, Version


@dataclass
class ModelDelivery:
    """A message as one receiver must get it."""

    topic: str
    body: bytes
    qos: int
    retain_as_published: bool
    subscription_ids: tuple[int, ...]
    valid_until: Instant
    publication: int
    """Copies of one publication may arrive in any order."""
    number: int = 0
    """The packet id it was sent under; 0 before."""
    is_in_flight: bool = False
    is_released: bool = False
    is_sent_here: bool = False
    """Whether the current process sent it."""
    is_from_before: bool = False
    """Whether it was stored by an earlier process."""

    def is_expired(self, now: Instant) -> bool:
        return self.valid_until < now

    def is_sent_as(self, packet: Publish, version: Version) -> bool:
        is_same = (packet.topic, packet.payload, packet.qos) == (self.topic, self.body, self.qos)
        # Copies that were identical in 3.1.1 cannot be told apart when they are sent again in 5.
        has_ids = self.number > 0 or packet.properties.subscription_ids == (
            self.subscription_ids if version is Version.V5 else ()
        )
        is_known = not self.number or self.number == packet.packet_id
        return is_same and has_ids and is_known and packet.retain == self.retain_as_published


@dataclass
class ModelSession:
    """One client; `waiting` holds all QoS 1 and 2 messages until they are acknowledged."""

    name: str
    version: Version
    expiry_s: int
    window: int
    subscriptions: dict[str, tuple[FilterRequest, int]] = field(default_factory=dict)
    """Requests and subscription ids, by filter."""
    waiting: list[ModelDelivery] = field(default_factory=list)
    plain: list[ModelDelivery] = field(default_factory=list)
    """QoS 0 messages that must have arrived when the edge is idle."""
    open_packet_ids: set[int] = field(default_factory=set)
    """Packet ids of its own open QoS 2 exchanges."""
    is_connected: bool = True
    left_at: Instant = FOREVER

    @property
    def in_flight(self) -> list[ModelDelivery]:
        return [delivery for delivery in self.waiting if delivery.is_in_flight]

    def on_message(self, packet: Publish, now: Instant) -> None:
        """Check a received message: it must be the first due of its topic, or a duplicate."""
        here = self.plain if packet.qos == 0 else self.waiting
        due = [one for one in here if one.topic == packet.topic and not one.is_in_flight and not one.is_expired(now)]
        fitting = [one for one in due if one.publication == due[0].publication and one.is_sent_as(packet, self.version)]
        assert fitting, f"{packet} was received instead of {due}"
        delivery = next((one for one in fitting if one.number == packet.packet_id), fitting[0])
        assert packet.dup == (delivery.number > 0 or delivery.is_from_before), packet
        if packet.qos == 0:
            self.plain = [one for one in self.plain if one is not delivery]
            return
        assert packet.packet_id is not None
        assert all(one.number != packet.packet_id for one in self.in_flight), f"{packet.packet_id} is in use"
        delivery.number, delivery.is_in_flight, delivery.is_sent_here = packet.packet_id, True, True
        assert len(self.in_flight) <= self.window, "more in flight than the client takes"

    def check_quiet(self, now: Instant) -> None:
        """Check that no message that is due is missing."""
        assert self.plain == [], self.plain
        due = [one for one in self.waiting if one.is_in_flight or not one.is_expired(now)]
        released = [one for one in self.waiting if one.is_released]
        assert len(self.in_flight) == max(len(released), min(self.window, len(due))), self.waiting
        for one in self.waiting:
            one.is_sent_here &= (
                one.is_in_flight
            )  # otherwise it waits to be sent again, as the client's window is smaller than before


Choice = tuple[str, int]
"""A receiver of a message, and the QoS."""


@dataclass
class ExpectedReceivers:
    """The receivers of a publication: certain ones, and for each share (by its filter) the members of which one gets it."""

    own: Counter[Choice]
    shares: dict[str, list[Choice]]
    count: int = 0


@dataclass
class ModelBroker:
    """All sessions and all retained messages."""

    now: Instant
    sessions: dict[str, ModelSession] = field(default_factory=dict)
    retained: dict[str, tuple[bytes, int, Instant]] = field(default_factory=dict)
    delivered: int = 0
    """Messages times receivers, whatever their outcome."""
    publications: int = 0
    recounted: int = 0
    """Messages counted as delivered, and then dropped with their session or expired before they could be sent again."""
    delivered_before: int = 0

    def publish(self, sender: str, topic: str, body: bytes, qos: int, *, retain: bool, until: Instant) -> ExpectedReceivers:
        """Deliver to subscriptions that are not shared; shares are left to `settle_shares`."""
        self.publications += 1
        if retain and body:
            self.retained[topic] = (body, qos, until)
        elif retain:
            self.retained.pop(topic, None)
        expected = ExpectedReceivers(Counter(), {})
        for session in self.sessions.values():
            own: list[tuple[FilterRequest, int]] = []
            for request, subscription_id in session.subscriptions.values():
                shared = maybe_shared(request.filter)
                if not filter_matches(shared.filter if shared else request.filter, topic):
                    continue
                if shared:
                    expected.shares.setdefault(request.filter, []).append((session.name, min(qos, request.qos)))
                else:
                    own.append((request, subscription_id))
            if own and not (session.name == sender and all(request.no_local for request, _ in own)):
                delivered_qos = min(qos, max(request.qos for request, _ in own))
                shown = retain and any(request.retain_as_published for request, _ in own)
                subscription_ids = tuple(sorted(subscription_id for _, subscription_id in own if subscription_id))
                self.deliver(
                    session, ModelDelivery(topic, body, delivered_qos, shown, subscription_ids, until, self.publications)
                )
                if delivered_qos or session.is_connected:
                    expected.own[session.name, delivered_qos] += 1
                expected.count += 1
        expected.count += len(expected.shares)
        return expected

    def settle_shares(self, expected: ExpectedReceivers, found: Counter[Choice], delivery: ModelDelivery) -> None:
        """Check that *found* has one member of each share, a connected one if there is any."""
        options = []
        for members in expected.shares.values():
            here = [one for one in members if self.sessions[one[0]].is_connected]
            options.append(here or members)
        for chosen in product(*options):
            seen = Counter((name, qos) for name, qos in chosen if qos or self.sessions[name].is_connected)
            if expected.own + seen == found:
                break
        else:
            raise AssertionError(f"{found} is not a choice of {options} beside {expected.own}")
        for topic_filter, (name, qos) in zip(expected.shares, chosen, strict=True):
            request, subscription_id = self.sessions[name].subscriptions[topic_filter]
            shown = delivery.retain_as_published and request.retain_as_published
            self.deliver(
                self.sessions[name],
                replace(
                    delivery, qos=qos, retain_as_published=shown, subscription_ids=(subscription_id,) if subscription_id else ()
                ),
            )

    def deliver(self, session: ModelSession, delivery: ModelDelivery) -> None:
        self.delivered += 1
        if delivery.qos:
            session.waiting.append(delivery)
        elif session.is_connected:
            session.plain.append(delivery)

    def subscribe(self, session: ModelSession, request: FilterRequest, subscription_id: int) -> None:
        is_new = request.filter not in session.subscriptions
        session.subscriptions[request.filter] = (request, subscription_id)
        if maybe_shared(request.filter) or request.retain_handling == 2 or (request.retain_handling == 1 and not is_new):
            return
        self.publications += 1
        for topic, (body, qos, until) in self.retained.items():
            if filter_matches(request.filter, topic) and until >= self.now:
                subscription_ids = (subscription_id,) if subscription_id else ()
                self.deliver(
                    session, ModelDelivery(topic, body, min(qos, request.qos), True, subscription_ids, until, self.publications)
                )

    def disconnect(self, session: ModelSession, expiry_s: int | None = None) -> None:
        session.is_connected, session.left_at = False, self.now
        session.expiry_s = session.expiry_s if expiry_s is None else expiry_s
        for delivery in session.waiting:
            delivery.is_in_flight = delivery.is_released
        if not session.expiry_s:
            self.end(session)

    def end(self, session: ModelSession) -> None:
        self.recounted += sum(delivery.is_sent_here and not delivery.is_released for delivery in session.waiting)
        del self.sessions[session.name]

    def resume(self, session: ModelSession, version: Version, expiry_s: int, window: int) -> None:
        session.version, session.expiry_s, session.window, session.is_connected = version, expiry_s, window, True
        expired = [
            delivery
            for delivery in session.waiting
            if delivery.is_expired(self.now) and delivery.is_sent_here and not delivery.is_released
        ]
        self.recounted += len(expired)
        session.waiting = [delivery for delivery in session.waiting if all(delivery is not one for one in expired)]

    def pass_time(self, seconds: int) -> None:
        self.now = Instant(self.now + seconds * SECOND_NS)
        for session in list(self.sessions.values()):
            if not session.is_connected and session.left_at + session.expiry_s * SECOND_NS <= self.now:
                self.end(session)
        self.retained = {topic: message for topic, message in self.retained.items() if message[2] >= self.now}

    def restart(self, outstanding: int) -> None:
        """Restart the process; *outstanding* messages were stored and must be delivered."""
        for session in list(self.sessions.values()):
            if session.is_connected:
                self.disconnect(session)
        for session in self.sessions.values():
            for delivery in session.waiting:
                delivery.is_from_before, delivery.is_sent_here = True, False
        self.delivered, self.recounted, self.delivered_before = 0, 0, outstanding
