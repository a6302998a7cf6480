"""One endpoint's session with its edge over UDP: datagrams, ticks and calls in; datagrams and events out.

    phase          when                                    next
    IDLE           nothing was sent yet                    start ─▶ OPENING
    OPENING        INIT is sent until it is answered       ACKNOWLEDGE ─▶ OPEN                     a final refusal ─▶ CLOSED
    OPEN           reports go out, messages both ways      2/3 of the keys' lifetime is over ─▶ RENEWING
    RENEWING       open, and INIT with `former` is sent    ACKNOWLEDGE ─▶ OPEN                     keys expired ─▶ RECONNECTING
    RECONNECTING   the session was lost; INIT is sent      ACKNOWLEDGE ─▶ OPEN                     a final refusal ─▶ CLOSED
    CLOSED         the end; all calls are no-ops           -
    from OPEN, RENEWING: silence of the edge, a valid RESET, SESSION_UNKNOWN, CLOSE ─▶ RECONNECTING
    from OPEN, RENEWING: CLOSE expelled, replaced ─▶ CLOSED
    from each: close ─▶ CLOSED

Invariants:
- no clock, no socket, no randomness: `now` is an argument, random bytes come from `draw`; the same calls produce the same bytes;
- no datagram raises; one that is not from the edge changes nothing but a counter;
- publications, subscriptions and the names of delivered messages belong to the endpoint, and outlast the session with the edge.
"""

from dataclasses import replace
from enum import Enum
from typing import Final

from milepost.client.errors import ClientFault, RefusedByEdge
from milepost.client.events import (
    Arrival,
    Connected,
    Done,
    Ended,
    Event,
    Lost,
    ReportRefused,
    SubscriptionRefused,
    Suppressed,
    Suppression,
)
from milepost.client.messages import SubscriptionRequest, received_from_message
from milepost.client.transport import Draw
from milepost.client.trust import ClientTrust
from milepost.client.udp.encryption import AcceptedHandshake, Channel, NoiseProtection, PlainProtection
from milepost.client.udp.handshake import HandshakeAttempts, UdpSetup
from milepost.client.udp.inbound import InboundVerdict, UdpInbound
from milepost.client.udp.mapping import is_final, refused_by
from milepost.client.udp.multicast import multicast_message
from milepost.client.udp.outbound import UdpOutbound
from milepost.client.udp.session_state import LastPosition, OpenSession
from milepost.client.udp.subscriptions import UdpSubscriptions
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import (
    Close,
    CloseCause,
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
    SessionToken,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
)
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.wire.datagrams import encode
from milepost.wire.requests import REVOCATIONS_TOPIC
from milepost.wire.sealed import SealedType

PREVIOUS_NS: Final = 10 * SECOND_NS
"""How long datagrams with the previous token are still accepted."""

_ANY_TOKEN: Final = SessionToken(1)
_UNKNOWN: Final = "the edge no longer knows the session"


class UdpPhase(Enum):
    """Phase of a session."""

    IDLE = 0
    OPENING = 1
    OPEN = 2
    RENEWING = 3
    RECONNECTING = 4
    CLOSED = 5


_HAS_SESSION: Final = frozenset({UdpPhase.OPEN, UdpPhase.RENEWING})
_HANDSHAKING: Final = frozenset({UdpPhase.OPENING, UdpPhase.RENEWING, UdpPhase.RECONNECTING})


class UdpSession:
    """One endpoint at one edge."""

    def __init__(self, setup: UdpSetup, draw: Draw) -> None:
        self.setup = setup
        self.phase = UdpPhase.IDLE
        self.invalid_datagrams = 0
        """Datagrams that were undecodable, not from the edge, or replayed."""
        self._draw = draw
        self._handshakes = HandshakeAttempts(
            PlainProtection() if setup.credentials is None else NoiseProtection(setup.credentials), draw
        )
        self._outbound = UdpOutbound(setup.pending_max, draw)
        self._inbound = UdpInbound(setup.trust, setup.untaken_max)
        self._subscriptions = UdpSubscriptions(setup.endpoint)
        self._current: OpenSession | None = None
        """The session; while the edge is unreachable, the one that may still exist there."""
        self._previous: tuple[Channel, Instant] | None = None
        """The previous channel, and until when its datagrams are accepted."""
        self._last_position = LastPosition()
        self._outgoing: list[bytes] = []
        self._events: list[Event] = []

    @property
    def next_at(self) -> Instant:
        """When `on_tick` must be called next."""
        if self.phase not in _HAS_SESSION:
            return self._handshakes.next_at
        return min(self._open_session.next_at, self._handshakes.next_at, self._outbound.next_at)

    @property
    def cells(self) -> MulticastGrid | None:
        """The grid of multicast groups to join for messages to an area."""
        return self._current.cells if self._current is not None and self.setup.joins_multicast else None

    def take_outgoing(self) -> list[bytes]:
        """Return the datagrams to send, in order."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def take_events(self) -> list[Event]:
        """Return the events since the last call."""
        events, self._events = self._events, []
        return events

    def start(self, report: Report, now: Instant) -> None:
        """Request a session; once it was requested, this is an ordinary report."""
        if self.phase is UdpPhase.IDLE:
            self._last_position.set(report)
            self.phase = UdpPhase.OPENING
            self._handshakes.begin(now, at_once=True)
            self.on_tick(now)
        else:
            self.report(report, now)

    def report(self, report: Report, now: Instant) -> None:
        """Report the endpoint's position; without a session, the next INIT carries it."""
        self._last_position.set(report)
        if self.phase in _HAS_SESSION:
            self._send_report(report.seen_at, now)

    def publish(self, message: Message, now: Instant) -> None:
        """Queue a message; raise `Malformed` if it does not fit into a datagram."""
        if self.phase is UdpPhase.CLOSED:
            return
        datagram = PublishDatagram(message)
        encode(replace(datagram, session=_ANY_TOKEN))
        if self._outbound.is_full:
            full = RefusedByEdge.of(Reason.QUEUE_FULL, f"{self.setup.pending_max} publications are unanswered")
            self._events.append(Done(MessageName(message.source, message.id), full))
            return
        self._outbound.put(datagram)
        self._flush(now)

    def withdraw(self, name: Name) -> None:
        """Discard a message whose caller no longer waits, if it is not sent yet."""
        self._outbound.drop(name, if_sent=False)

    def subscribe(self, subscription: Subscription, now: Instant) -> None:
        """Add a subscription, for this session and all that follow; raise `Malformed` if it does not fit into a datagram."""
        if self.phase is UdpPhase.CLOSED:
            return
        datagram = SubscribeDatagram(subscription)
        encode(replace(datagram, session=_ANY_TOKEN))
        self._subscriptions.add(subscription)
        self._outbound.put(datagram)
        self._flush(now)

    def unsubscribe(self, number: SubscriptionId, now: Instant) -> None:
        """End a subscription."""
        if self.phase is UdpPhase.CLOSED:
            return
        self._subscriptions.remove(number)
        self._outbound.put(UnsubscribeDatagram(SubscriptionName(self.setup.endpoint, number)))
        self._flush(now)

    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        """Return the id for a new subscription."""
        return self._subscriptions.id_for(request)

    def acknowledge(self, receipt: object) -> None:
        """Acknowledge a message that the application has taken; without a session, when the edge resends it."""
        assert isinstance(receipt, MessageName), "receipts are made by this session"
        if self._inbound.acknowledge(receipt):
            self._send_received(receipt)

    def switch_edge(self, edge_key: bytes, now: Instant) -> None:
        """Switch from an unreachable edge to another one; no session is resumed there, and all subscriptions are sent again."""
        if self.phase in (UdpPhase.OPENING, UdpPhase.RECONNECTING):
            self._handshakes.protection.switch_edge(edge_key)
            self._current = None
            self._handshakes.begin(now, at_once=True)

    def leave_edge(self, reason: str, now: Instant) -> None:
        """Send CLOSE and look for a session elsewhere: the transport switches the edge."""
        if self.phase in _HAS_SESSION:
            self._send(Close(self._open_session.channel.token))
            self._reconnect(reason, now)

    def close(self, now: Instant) -> None:
        """Send CLOSE and end."""
        del now
        if self.phase in _HAS_SESSION:
            self._send(Close(self._open_session.channel.token))
        self._end(None)

    def on_tick(self, now: Instant) -> None:
        """Process the timers that are due."""
        if self.phase in _HAS_SESSION:
            self._check_timers(self._open_session, now)
        if self.phase in _HANDSHAKING:
            init = self._handshakes.maybe_init(now, lambda: self._init(now))
            self._outgoing += [] if init is None else [init]
        self._flush(now)

    def _check_timers(self, current: OpenSession, now: Instant) -> None:
        if now >= current.timeout_at:
            self._reconnect("no datagram from the edge arrived in time", now, may_resume=True)
        elif now >= current.keys_expire_at:
            self._reconnect("the session keys expired before the edge renewed them", now, may_resume=True)
        elif now >= current.renew_at:
            self.phase, current.renew_at = UdpPhase.RENEWING, FOREVER
            self._handshakes.reset_backoff()
            self._handshakes.begin(now, at_once=True)
        if now >= current.report_at and self.phase in _HAS_SESSION:
            self._send_report(now, now)
        elif self.phase in _HAS_SESSION and current.is_heartbeat_due(now):
            self._send(Heartbeat(current.channel.token))

    def on_datagram(self, data: bytes, now: Instant) -> None:
        """Process a datagram from any sender."""
        if self.phase in (UdpPhase.IDLE, UdpPhase.CLOSED):
            return
        try:
            match self._handshakes.protection.kind_of(data):
                case SealedType.DATA:
                    self._on_data(data, now)
                case SealedType.ACK:
                    self._on_answer(self._handshakes.answer(data), now)
                case SealedType.COOKIE:
                    init_with_cookie = self._handshakes.maybe_init_with_cookie(data, now)
                    self._outgoing += [] if init_with_cookie is None else [init_with_cookie]
                case SealedType.RESET:
                    self._on_reset(data, now)
                case _:
                    raise Malformed(Reason.MALFORMED, "a datagram that an edge does not send in a session")
        except Malformed:
            self.invalid_datagrams += 1
        self._flush(now)

    def on_multicast(self, data: bytes, now: Instant) -> None:
        """Process a multicast datagram from any sender; it does not name the subscriptions that it matches."""
        if self.phase in _HAS_SESSION:
            try:
                self._on_publish(PublishDatagram(multicast_message(data, is_sealed=self.setup.credentials is not None)), now)
            except Malformed:
                self.invalid_datagrams += 1

    def _on_answer(self, answer: AcceptedHandshake | Refusal, now: Instant) -> None:
        if isinstance(answer, Refusal):
            refused = refused_by(answer)
            self._end(refused) if is_final(answer) else self._events.append(ReportRefused(refused))
            return
        was_renewing = self.phase is UdpPhase.RENEWING
        if self._current is not None:
            self._previous = self._current.channel, Instant(now + PREVIOUS_NS)
        self._handshakes.end()
        self._current = OpenSession(answer, now, self._draw)
        self.phase = UdpPhase.OPEN
        if not was_renewing:
            self._events.append(Connected(answer.acknowledge.is_resumed, answer.acknowledge.edge))
        if not answer.acknowledge.is_resumed:
            for subscription in self._subscriptions:
                self._outbound.ensure(SubscribeDatagram(subscription))
        if not (was_renewing and answer.acknowledge.is_resumed):
            self._outbound.start_over(now)
        self._send_report(now, now)

    def _on_reset(self, data: bytes, now: Instant) -> None:
        if self.phase not in _HAS_SESSION or not self._open_session.channel.is_reset(data):
            raise Malformed(Reason.SESSION_UNKNOWN, "RESET of another session")
        self._reconnect(_UNKNOWN, now, at_once=True)

    def _on_data(self, data: bytes, now: Instant) -> None:
        value, is_previous = self._decrypt(data, now)
        if self._current is not None and not is_previous:
            self._current.on_received(now)
        match value:
            case PublishDatagram():
                self._on_publish(value, now)
            case ReceivedDatagram():
                self._complete(self._outbound.on_answer(value.name, None))
            case Refusal():
                self._on_refusal(value, now, is_previous=is_previous)
            case Close():
                if not is_previous and self.phase in _HAS_SESSION:
                    self._on_close(value.cause, now)
            case Heartbeat() | Notify():
                pass
            case _:
                raise Malformed(Reason.MALFORMED, f"{type(value).__name__} from an edge")

    def _decrypt(self, data: bytes, now: Instant) -> tuple[Datagram, bool]:
        """Decrypt a datagram; return it, and whether it came with the previous token."""
        channels = [] if self._current is None else [(self._current.channel, False)]
        if self._previous is not None and now <= self._previous[1]:
            channels.append((self._previous[0], True))
        for channel, is_previous in channels:
            try:
                return channel.open(data), is_previous
            except Malformed as fault:
                if fault.reason is not Reason.SESSION_UNKNOWN:
                    raise
        raise Malformed(Reason.SESSION_UNKNOWN, "a datagram of no known session")

    def _on_publish(self, value: PublishDatagram, now: Instant) -> None:
        message = value.message
        for ended in self._subscriptions.ended_among(value.matches):
            self._outbound.ensure(UnsubscribeDatagram(ended))
        name = MessageName(message.source, message.id)
        if message.topic == REVOCATIONS_TOPIC and self.setup.trust is not None:
            self._on_revoked_signers(self.setup.trust, message)
            return
        verdict, signer, detail = self._inbound.decide(message, self._last_position.place, now)
        match verdict:
            case InboundVerdict.DELIVER:
                received = received_from_message(message, now, signer)
                self._events.append(Arrival(received, value.matches, name if message.reliable else None))
            case InboundVerdict.OUTSIDE:
                self._events.append(Suppressed(Suppression.OUTSIDE, message.topic))
            case InboundVerdict.FORGED:
                self._events.append(Suppressed(Suppression.FORGED, message.topic, detail))
            case InboundVerdict.ACKNOWLEDGE | InboundVerdict.IGNORE:
                pass
        if verdict is InboundVerdict.ACKNOWLEDGE or (verdict is InboundVerdict.OUTSIDE and message.reliable):
            self._send_received(name)

    def _on_revoked_signers(self, trust: ClientTrust, message: Message) -> None:
        refused = trust.use_revoked_signers(message.body)
        if refused is not None:
            self._events.append(Suppressed(Suppression.FORGED, message.topic, str(refused)))
        if message.reliable:
            self._send_received(MessageName(message.source, message.id))

    def _send_received(self, name: MessageName) -> None:
        if self.phase in _HAS_SESSION:
            self._send(ReceivedDatagram(name, self._open_session.channel.token))

    def _on_refusal(self, value: Refusal, now: Instant, *, is_previous: bool) -> None:
        refused = refused_by(value)
        if value.reason == Reason.SESSION_UNKNOWN and value.about is None:
            if self.phase in _HAS_SESSION and not is_previous:
                self._reconnect(_UNKNOWN, now, at_once=True)
        elif value.about is not None:
            self._complete(self._outbound.on_answer(value.about, refused))
        elif value.reason != Reason.REPORT_OUT_OF_ORDER:  # reordered reports are harmless: the edge has the newer one
            self._events.append(ReportRefused(refused))

    def _on_close(self, cause: CloseCause, now: Instant) -> None:
        match cause:
            case CloseCause.EXPELLED:
                self._end(RefusedByEdge.of(Reason.NOT_ALLOWED, "the edge expelled this endpoint after repeated violations"))
            case CloseCause.REPLACED:
                self._end(RefusedByEdge.of(Reason.SESSION_TAKEN_OVER, f"{self.setup.endpoint!r} has a newer session"))
            case CloseCause.DONE | CloseCause.SILENT | CloseCause.MOVED | CloseCause.STOPPING:
                self._reconnect(f"the edge closed the session: {cause.name.lower()}", now)

    def _reconnect(self, reason: str, now: Instant, *, may_resume: bool = False, at_once: bool = False) -> None:
        """Request a session again: at once only if the last one was stable, to avoid an endless exchange of INIT and RESET."""
        current = self._open_session
        if current.is_stable(now):
            self._handshakes.reset_backoff()
        self._handshakes.begin(now, at_once=at_once and current.is_stable(now))
        self._current = current if may_resume else None
        self.phase = UdpPhase.RECONNECTING
        self._events.append(Lost(reason))

    def _end(self, fault: ClientFault | None) -> None:
        if self.phase is not UdpPhase.CLOSED:
            self.phase = UdpPhase.CLOSED
            self._handshakes.end()
            self._current = self._previous = None
            self._events.append(Ended(fault))

    @property
    def _open_session(self) -> OpenSession:
        assert self._current is not None, "the session is open"
        return self._current

    def _init(self, now: Instant) -> Init:
        previous = None if self._current is None else self._current.channel.token
        return Init(self._last_position.next_report(now, now), previous, self.setup.joins_multicast)

    def _send_report(self, seen_at: Instant, now: Instant) -> None:
        self._send(ReportSent(self._open_session.channel.token, self._last_position.next_report(seen_at, now)))
        self._open_session.on_report_sent(now)

    def _flush(self, now: Instant) -> None:
        """Send datagrams that are due, and give up expired ones."""
        if self.phase is UdpPhase.CLOSED:
            return
        datagrams, done = self._outbound.take(now, is_open=self.phase in _HAS_SESSION)
        for datagram in datagrams:
            self._send(replace(datagram, session=self._open_session.channel.token))
        self._complete(done)

    def _complete(self, done: list[Done]) -> None:
        for one in done:
            self._events.append(self._subscription_event(one, one.key) if isinstance(one.key, SubscriptionName) else one)

    def _subscription_event(self, done: Done, name: SubscriptionName) -> Event:
        """Return the event of an answered subscription; no caller waits if it was granted before and is refused now."""
        if done.refused is None:
            self._subscriptions.grant(name.id)
            return done
        was_granted = self._subscriptions.is_granted(name.id)
        self._subscriptions.remove(name.id)
        return SubscriptionRefused(name.id, done.refused) if was_granted else done

    def _send(self, value: Datagram) -> None:
        self._outgoing.append(self._open_session.channel.seal(value))
