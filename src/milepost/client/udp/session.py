"""One endpoint's session with its edge over UDP: datagrams, ticks and calls in; datagrams and events out.

    phase      when                                    next
    IDLE       nothing was sent yet                    start ─▶ OPENING
    OPENING    INIT is sent until it is answered       ACKNOWLEDGE ─▶ OPEN                     a final refusal ─▶ CLOSED
    OPEN       reports go out, messages both ways      2/3 of the keys' lifetime is over ─▶ RENEWING
    RENEWING   open, and INIT with `former` is sent    ACKNOWLEDGE ─▶ OPEN                     keys expired ─▶ AWAY
    AWAY       the session was lost; INIT is sent      ACKNOWLEDGE ─▶ OPEN                     a final refusal ─▶ CLOSED
    CLOSED     the end; all calls are no-ops           -
    from OPEN, RENEWING: silence of the edge, a valid RESET, SESSION_UNKNOWN, CLOSE ─▶ AWAY; CLOSE expelled, replaced ─▶ CLOSED
    from each: close ─▶ CLOSED

Invariants:
- no clock, no socket, no randomness: `now` is an argument, random bytes come from `draw`; the same calls produce the same bytes;
- no datagram raises; one that is not from the edge changes nothing but a counter;
- publications, subscriptions and the names of delivered messages belong to the endpoint, and outlast the session with the edge.
"""

from dataclasses import replace
from enum import Enum
from typing import Final

from milepost.client.carrier import Draw
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
from milepost.client.udp.handshake import Opening, UdpSetup
from milepost.client.udp.inbound import InboundVerdict, UdpInbound
from milepost.client.udp.mapping import is_final, received_from, refused_by
from milepost.client.udp.multicast import overheard
from milepost.client.udp.open_session import LastPosition, OpenSession
from milepost.client.udp.outbound import UdpOutbound
from milepost.client.udp.seals import Channel, Opened, Plain, Sealed
from milepost.client.udp.subscriptions import UdpSubscriptions
from milepost.client.values import SubscriptionRequest
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message
from milepost.model.multicast_cells import Cells
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.sessions import (
    Close,
    CloseCause,
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
    SessionToken,
    Subscribe,
    SubscriptionName,
    Unsubscribe,
)
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.trust.signing import Verifier
from milepost.wire.datagrams import encode
from milepost.wire.sealed import Kind

FORMER_NS: Final = 10 * SECOND_NS
"""How long datagrams under the former token are still accepted."""

_ANY_TOKEN: Final = SessionToken(1)
_UNKNOWN: Final = "the edge does not know the session any more"


class Phase(Enum):
    """Phase of a session."""

    IDLE = 0
    OPENING = 1
    OPEN = 2
    RENEWING = 3
    AWAY = 4
    CLOSED = 5


_HAS_SESSION: Final = frozenset({Phase.OPEN, Phase.RENEWING})
_ASKS: Final = frozenset({Phase.OPENING, Phase.RENEWING, Phase.AWAY})


class UdpSession:
    """One endpoint at one edge."""

    def __init__(self, setup: UdpSetup, draw: Draw) -> None:
        self.setup = setup
        self.phase = Phase.IDLE
        self.broken = 0
        """Datagrams that were undecodable, not from the edge, or replayed."""
        self._draw = draw
        self._opening = Opening(Plain() if setup.trust is None else Sealed(setup.trust), draw)
        self._outbound = UdpOutbound(setup.waiting_max, draw)
        self._inbound = UdpInbound(None if setup.authority is None else Verifier(setup.authority), setup.held_max)
        self._subscriptions = UdpSubscriptions(setup.endpoint)
        self._line: OpenSession | None = None
        """The session; while the edge is unreachable, the one that may still exist there."""
        self._former: tuple[Channel, Instant] | None = None
        """The previous channel, and until when its datagrams are accepted."""
        self._last_position = LastPosition()
        self._outgoing: list[bytes] = []
        self._events: list[Event] = []

    @property
    def next_at(self) -> Instant:
        """When `on_tick` must be called next."""
        if self.phase not in _HAS_SESSION:
            return self._opening.next_at
        return min(self._open_line.next_at, self._opening.next_at, self._outbound.next_at)

    @property
    def cells(self) -> Cells | None:
        """The grid of multicast groups to join for messages to an area."""
        return self._line.cells if self._line is not None and self.setup.hears_cells else None

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
        if self.phase is Phase.IDLE:
            self._last_position.change(report)
            self.phase = Phase.OPENING
            self._opening.begin(now, at_once=True)
            self.on_tick(now)
        else:
            self.report(report, now)

    def report(self, report: Report, now: Instant) -> None:
        """Report the endpoint's position; without a session, the next INIT carries it."""
        self._last_position.change(report)
        if self.phase in _HAS_SESSION:
            self._say_report(report.seen_at, now)

    def publish(self, message: Message, now: Instant) -> None:
        """Queue a message; raise `Malformed` if it does not fit into a datagram."""
        if self.phase is Phase.CLOSED:
            return
        datagram = Publish(message)
        encode(replace(datagram, session=_ANY_TOKEN))
        if self._outbound.is_full:
            full = RefusedByEdge.of(Reason.QUEUE_FULL, f"{self.setup.waiting_max} are not answered")
            self._events.append(Done(MessageName(message.source, message.id), full))
            return
        self._outbound.put(datagram)
        self._flush(now)

    def withdraw(self, name: Name) -> None:
        """Discard a message whose caller no longer waits, if it is not sent yet."""
        self._outbound.drop(name, if_sent=False)

    def subscribe(self, subscription: Subscription, now: Instant) -> None:
        """Add a subscription, for this session and all that follow; raise `Malformed` if it does not fit into a datagram."""
        if self.phase is Phase.CLOSED:
            return
        datagram = Subscribe(subscription)
        encode(replace(datagram, session=_ANY_TOKEN))
        self._subscriptions.add(subscription)
        self._outbound.put(datagram)
        self._flush(now)

    def unsubscribe(self, number: SubscriptionId, now: Instant) -> None:
        """End a subscription."""
        if self.phase is Phase.CLOSED:
            return
        self._subscriptions.remove(number)
        self._outbound.put(Unsubscribe(SubscriptionName(self.setup.endpoint, number)))
        self._flush(now)

    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        """Return the id for a new subscription."""
        return self._subscriptions.id_for(request)

    def acknowledge(self, receipt: object) -> None:
        """Acknowledge a message that the application has taken; without a session, when the edge resends it."""
        assert isinstance(receipt, MessageName), "receipts are made by this session"
        if self._inbound.acknowledge(receipt):
            self._confirm(receipt)

    def meet(self, edge_key: bytes, now: Instant) -> None:
        """Switch from an unreachable edge to another one; no session is resumed there, and all subscriptions are sent again."""
        if self.phase in (Phase.OPENING, Phase.AWAY):
            self._opening.seal.meet(edge_key)
            self._line = None
            self._opening.begin(now, at_once=True)

    def close(self, now: Instant) -> None:
        """Send CLOSE and end."""
        del now
        if self.phase in _HAS_SESSION:
            self._say(Close(self._open_line.channel.token))
        self._end(None)

    def on_tick(self, now: Instant) -> None:
        """Process the timers that are due."""
        if self.phase in _HAS_SESSION:
            self._look_at_line(self._open_line, now)
        if self.phase in _ASKS:
            init = self._opening.maybe_init(now, lambda: self._init(now))
            self._outgoing += [] if init is None else [init]
        self._flush(now)

    def _look_at_line(self, line: OpenSession, now: Instant) -> None:
        if now >= line.silent_at:
            self._go_away("the edge is silent", now, may_live=True)
        elif now >= line.worn_at:
            self._go_away("the keys are worn out, and the edge gives no new ones", now, may_live=True)
        elif now >= line.renew_at:
            self.phase, line.renew_at = Phase.RENEWING, FOREVER
            self._opening.settle()
            self._opening.begin(now, at_once=True)
        if now >= line.report_at and self.phase in _HAS_SESSION:
            self._say_report(now, now)
        elif self.phase in _HAS_SESSION and line.is_alive_due(now):
            self._say(Heartbeat(line.channel.token))

    def on_datagram(self, data: bytes, now: Instant) -> None:
        """Process a datagram from any sender."""
        if self.phase in (Phase.IDLE, Phase.CLOSED):
            return
        try:
            match self._opening.seal.kind_of(data):
                case Kind.DATA:
                    self._on_data(data, now)
                case Kind.ACK:
                    self._on_answer(self._opening.answer(data), now)
                case Kind.COOKIE:
                    again = self._opening.maybe_again(data, now)
                    self._outgoing += [] if again is None else [again]
                case Kind.RESET:
                    self._on_reset(data, now)
                case _:
                    raise Malformed(Reason.MALFORMED, "nothing that an edge says in a session")
        except Malformed:
            self.broken += 1
        self._flush(now)

    def on_multicast(self, data: bytes, now: Instant) -> None:
        """Process a multicast datagram from any sender; it does not name the subscriptions that it matches."""
        if self.phase in _HAS_SESSION:
            try:
                self._on_publish(Publish(overheard(data, is_sealed=self.setup.trust is not None)), now)
            except Malformed:
                self.broken += 1

    def _on_answer(self, answer: Opened | Refusal, now: Instant) -> None:
        if isinstance(answer, Refusal):
            refused = refused_by(answer)
            self._end(refused) if is_final(answer) else self._events.append(ReportRefused(refused))
            return
        was_renewing = self.phase is Phase.RENEWING
        if self._line is not None:
            self._former = self._line.channel, Instant(now + FORMER_NS)
        self._opening.end()
        self._line = OpenSession(answer, now, self._draw)
        self.phase = Phase.OPEN
        if not was_renewing:
            self._events.append(Connected(answer.said.is_resumed, answer.said.edge))
        if not answer.said.is_resumed:
            for subscription in self._subscriptions:
                self._outbound.ensure(Subscribe(subscription))
        if not (was_renewing and answer.said.is_resumed):
            self._outbound.start_over(now)
        self._say_report(now, now)

    def _on_reset(self, data: bytes, now: Instant) -> None:
        if self.phase not in _HAS_SESSION or not self._open_line.channel.is_reset(data):
            raise Malformed(Reason.SESSION_UNKNOWN, "a reset of another session")
        self._go_away(_UNKNOWN, now, at_once=True)

    def _on_data(self, data: bytes, now: Instant) -> None:
        value, is_former = self._opened(data, now)
        if self._line is not None and not is_former:
            self._line.heard(now)
        match value:
            case Publish():
                self._on_publish(value, now)
            case Received():
                self._finish(self._outbound.on_answer(value.name, None))
            case Refusal():
                self._on_refusal(value, now, is_former=is_former)
            case Close():
                if not is_former and self.phase in _HAS_SESSION:
                    self._on_close(value.cause, now)
            case Heartbeat() | Notify():
                pass
            case _:
                raise Malformed(Reason.MALFORMED, f"{type(value).__name__} from an edge")

    def _opened(self, data: bytes, now: Instant) -> tuple[Datagram, bool]:
        """Decrypt a datagram; return it, and whether it came under the former token."""
        channels = [] if self._line is None else [(self._line.channel, False)]
        if self._former is not None and now <= self._former[1]:
            channels.append((self._former[0], True))
        for channel, is_former in channels:
            try:
                return channel.open(data), is_former
            except Malformed as fault:
                if fault.reason is not Reason.SESSION_UNKNOWN:
                    raise
        raise Malformed(Reason.SESSION_UNKNOWN, "a datagram of no session")

    def _on_publish(self, value: Publish, now: Instant) -> None:
        message = value.message
        for stray in self._subscriptions.strays(value.matches):
            self._outbound.ensure(Unsubscribe(stray))
        name = MessageName(message.source, message.id)
        verdict = self._inbound.judge(message, self._last_position.place, now)
        match verdict:
            case InboundVerdict.SHOW:
                is_signed = self._inbound.is_vouched_for(message)
                received = received_from(message, now, is_signed=is_signed)
                self._events.append(Arrival(received, value.matches, name if message.reliable else None))
            case InboundVerdict.OUTSIDE:
                self._events.append(Suppressed(Suppression.OUTSIDE))
            case InboundVerdict.FORGED:
                self._events.append(Suppressed(Suppression.FORGED))
            case InboundVerdict.ANSWER | InboundVerdict.IGNORE:
                pass
        if verdict is InboundVerdict.ANSWER or (verdict is InboundVerdict.OUTSIDE and message.reliable):
            self._confirm(name)

    def _confirm(self, name: MessageName) -> None:
        if self.phase in _HAS_SESSION:
            self._say(Received(name, self._open_line.channel.token))

    def _on_refusal(self, value: Refusal, now: Instant, *, is_former: bool) -> None:
        refused = refused_by(value)
        if value.reason == Reason.SESSION_UNKNOWN and value.about is None:
            if self.phase in _HAS_SESSION and not is_former:
                self._go_away(_UNKNOWN, now, at_once=True)
        elif value.about is not None:
            self._finish(self._outbound.on_answer(value.about, refused))
        elif value.reason != Reason.REPORT_OUT_OF_ORDER:  # reordered reports are harmless: the edge has the newer one
            self._events.append(ReportRefused(refused))

    def _on_close(self, cause: CloseCause, now: Instant) -> None:
        match cause:
            case CloseCause.EXPELLED:
                self._end(RefusedByEdge.of(Reason.NOT_ALLOWED, "the edge expelled this endpoint: it broke the rules too often"))
            case CloseCause.REPLACED:
                self._end(RefusedByEdge.of(Reason.SESSION_TAKEN_OVER, f"{self.setup.endpoint!r} has a newer session"))
            case CloseCause.DONE | CloseCause.SILENT | CloseCause.MOVED | CloseCause.STOPPING:
                self._go_away(f"the edge closed the session: {cause.name.lower()}", now)

    def _go_away(self, why: str, now: Instant, *, may_live: bool = False, at_once: bool = False) -> None:
        """Request a session again: at once only if the last one was stable, to avoid an endless exchange of INIT and RESET."""
        line = self._open_line
        if line.is_settled(now):
            self._opening.settle()
        self._opening.begin(now, at_once=at_once and line.is_settled(now))
        self._line = line if may_live else None
        self.phase = Phase.AWAY
        self._events.append(Lost(why))

    def _end(self, fault: ClientFault | None) -> None:
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.CLOSED
            self._opening.end()
            self._line = self._former = None
            self._events.append(Ended(fault))

    @property
    def _open_line(self) -> OpenSession:
        assert self._line is not None, "there is a session"
        return self._line

    def _init(self, now: Instant) -> Init:
        former = None if self._line is None else self._line.channel.token
        return Init(self._last_position.as_of(now, now), former, self.setup.hears_cells)

    def _say_report(self, seen_at: Instant, now: Instant) -> None:
        self._say(ReportSent(self._open_line.channel.token, self._last_position.as_of(seen_at, now)))
        self._open_line.reported(now)

    def _flush(self, now: Instant) -> None:
        """Send datagrams that are due, and give up expired ones."""
        if self.phase is Phase.CLOSED:
            return
        datagrams, done = self._outbound.take(now, is_open=self.phase in _HAS_SESSION)
        for datagram in datagrams:
            self._say(replace(datagram, session=self._open_line.channel.token))
        self._finish(done)

    def _finish(self, done: list[Done]) -> None:
        for one in done:
            self._events.append(self._settled(one, one.key) if isinstance(one.key, SubscriptionName) else one)

    def _settled(self, done: Done, name: SubscriptionName) -> Event:
        """Return the event of an answered subscription; no caller waits if it was granted before and is refused now."""
        if done.refused is None:
            self._subscriptions.grant(name.id)
            return done
        was_granted = self._subscriptions.is_granted(name.id)
        self._subscriptions.remove(name.id)
        return SubscriptionRefused(name.id, done.refused) if was_granted else done

    def _say(self, value: Datagram) -> None:
        self._outgoing.append(self._open_line.channel.seal(value))
