"""One endpoint's session with its edge over datagrams: datagrams, ticks and wishes in; datagrams and events out.

    phase      what is going on                        goes to
    IDLE       nothing was said yet                    start ─▶ OPENING
    OPENING    INIT is sent until it is answered       ACKNOWLEDGE ─▶ OPEN                     a final refusal ─▶ CLOSED
    OPEN       reports go out, messages both ways      2/3 of the keys' life is over ─▶ RENEWING
    RENEWING   open, and INIT with `former` is sent    ACKNOWLEDGE ─▶ OPEN                     keys worn out ─▶ AWAY
    AWAY       the edge was there; INIT is sent        ACKNOWLEDGE ─▶ OPEN                     a final refusal ─▶ CLOSED
    CLOSED     it is over, nothing does anything       -
    from OPEN, RENEWING: silence of the edge, a right RESET, SESSION_UNKNOWN, CLOSE ─▶ AWAY; CLOSE expelled, replaced ─▶ CLOSED
    from each: close ─▶ CLOSED

What must hold:
- no clock, no socket, no randomness: `now` is an argument, random bytes come from `draw`; the same calls give the same bytes;
- whatever datagram arrives, nothing is raised; what is not the edge's changes nothing but a count;
- messages, subscriptions and what was shown belong to the endpoint, not to the session with the edge: they outlast it.
"""

from dataclasses import replace
from enum import Enum
from typing import Final

from milepost.client.carriers import Unshown
from milepost.client.faults import ClientFault, RefusedByEdge
from milepost.client.udp.cells import overheard
from milepost.client.udp.events import Arrived, Away, Complained, Connected, Done, Ended, Event, Hidden
from milepost.client.udp.lines import Line
from milepost.client.udp.opening import Opening
from milepost.client.udp.receiving import Arrivals, Verdict
from milepost.client.udp.refusals import is_final, refused_by
from milepost.client.udp.seals import Channel, Opened, Plain, Sealed
from milepost.client.udp.sending import Outbox
from milepost.client.udp.setup import Setup
from milepost.client.udp.waits import Draw
from milepost.client.udp.whereabouts import Whereabouts
from milepost.client.udp.wishes import Wishes
from milepost.model.cells import Cells
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.sessions import (
    Close,
    CloseCause,
    Datagram,
    Heartbeat,
    Init,
    MessageName,
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
"""So long datagrams under the former token are still taken."""

_ANY_TOKEN: Final = SessionToken(1)
_UNKNOWN: Final = "the edge does not know the session any more"


class Phase(Enum):
    """Where a session is."""

    IDLE = 0
    OPENING = 1
    OPEN = 2
    RENEWING = 3
    AWAY = 4
    CLOSED = 5


_HAS_SESSION: Final = frozenset({Phase.OPEN, Phase.RENEWING})
_ASKS: Final = frozenset({Phase.OPENING, Phase.RENEWING, Phase.AWAY})


class Session:
    """One endpoint at one edge."""

    def __init__(self, setup: Setup, draw: Draw) -> None:
        self.setup = setup
        self.phase = Phase.IDLE
        self.broken = 0
        """How many datagrams came that could not be read, were not the edge's, or had come before."""
        self._draw = draw
        self._opening = Opening(Plain() if setup.trust is None else Sealed(setup.trust), draw)
        self._outbox = Outbox(setup.waiting_max, draw)
        self._arrivals = Arrivals(None if setup.authority is None else Verifier(setup.authority), setup.held_max)
        self._wishes = Wishes(setup.endpoint)
        self._line: Line | None = None
        """The session; while the edge is away, the one that may still live."""
        self._former: tuple[Channel, Instant] | None = None
        """The channel before this one, and until when it is listened to."""
        self._whereabouts = Whereabouts()
        self._outgoing: list[bytes] = []
        self._events: list[Event] = []

    @property
    def next_at(self) -> Instant:
        """When `on_tick` is wanted next."""
        if self.phase not in _HAS_SESSION:
            return self._opening.next_at
        return min(self._open_line.next_at, self._opening.next_at, self._outbox.next_at)

    @property
    def cells(self) -> Cells | None:
        """Where to listen for messages to an area."""
        return self._line.cells if self._line is not None and self.setup.hears_cells else None

    def take_outgoing(self) -> list[bytes]:
        """What to send, in this order."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing

    def take_events(self) -> list[Event]:
        """What happened."""
        events, self._events = self._events, []
        return events

    def start(self, report: Report, now: Instant) -> None:
        """Ask for a session; once it was asked for, this is a report like any other."""
        if self.phase is Phase.IDLE:
            self._whereabouts.change(report)
            self.phase = Phase.OPENING
            self._opening.begin(now, at_once=True)
            self.on_tick(now)
        else:
            self.report(report, now)

    def report(self, report: Report, now: Instant) -> None:
        """Say where the endpoint is; while there is no session, the next one begins with it."""
        self._whereabouts.change(report)
        if self.phase in _HAS_SESSION:
            self._say_report(report.seen_at, now)

    def publish(self, message: Message, now: Instant) -> None:
        """Have a message sent; what does not fit into a datagram is `Malformed`."""
        if self.phase is Phase.CLOSED:
            return
        letter = Publish(message)
        encode(replace(letter, session=_ANY_TOKEN))
        if self._outbox.is_full:
            full = RefusedByEdge.of(Reason.QUEUE_FULL, f"{self.setup.waiting_max} are not answered")
            self._events.append(Done(MessageName(message.source, message.id), full))
            return
        self._outbox.put(letter)
        self._flush(now)

    def withdraw(self, name: MessageName) -> None:
        """Nobody waits for a message any more: do not send it, if it was not sent yet."""
        self._outbox.drop(name, if_sent=False)

    def subscribe(self, subscription: Subscription, now: Instant) -> None:
        """Have a subscription, in this session and all that follow; what does not fit into a datagram is `Malformed`."""
        if self.phase is Phase.CLOSED:
            return
        letter = Subscribe(subscription)
        encode(replace(letter, session=_ANY_TOKEN))
        self._wishes.add(subscription)
        self._outbox.put(letter)
        self._flush(now)

    def unsubscribe(self, number: SubscriptionId, now: Instant) -> None:
        """Have it no more."""
        if self.phase is Phase.CLOSED:
            return
        self._wishes.remove(number)
        self._outbox.put(Unsubscribe(SubscriptionName(self.setup.endpoint, number)))
        self._flush(now)

    def is_label_free(self, number: SubscriptionId) -> bool:
        """Whether a new subscription may have that number."""
        return self._wishes.is_free(number)

    def took(self, receipt: MessageName) -> None:
        """The application has a message; without a session the edge is told when it repeats it."""
        if self._arrivals.took(receipt):
            self._confirm(receipt)

    def meet(self, edge_key: bytes, now: Instant) -> None:
        """Ask another edge than the one that does not answer; with it nothing goes on, all is subscribed to anew."""
        if self.phase in (Phase.OPENING, Phase.AWAY):
            self._opening.seal.meet(edge_key)
            self._line = None
            self._opening.begin(now, at_once=True)

    def close(self, now: Instant) -> None:
        """Say goodbye."""
        del now
        if self.phase in _HAS_SESSION:
            self._say(Close(self._open_line.channel.token))
        self._end(None)

    def on_tick(self, now: Instant) -> None:
        """Time has passed."""
        if self.phase in _HAS_SESSION:
            self._look_at_line(self._open_line, now)
        if self.phase in _ASKS:
            init = self._opening.maybe_init(now, lambda: self._init(now))
            self._outgoing += [] if init is None else [init]
        self._flush(now)

    def _look_at_line(self, line: Line, now: Instant) -> None:
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
        """A datagram came, from whomever."""
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
        """A datagram came to a group that is listened to, from whomever; whose subscriptions it matches is not said there."""
        if self.phase in _HAS_SESSION:
            try:
                self._on_publish(Publish(overheard(data, is_sealed=self.setup.trust is not None)), now)
            except Malformed:
                self.broken += 1

    def _on_answer(self, answer: Opened | Refusal, now: Instant) -> None:
        if isinstance(answer, Refusal):
            refused = refused_by(answer)
            self._end(refused) if is_final(answer) else self._events.append(Complained(refused))
            return
        was_renewing = self.phase is Phase.RENEWING
        if self._line is not None:
            self._former = self._line.channel, Instant(now + FORMER_NS)
        self._opening.end()
        self._line = Line(answer, now, self._draw)
        self.phase = Phase.OPEN
        if not was_renewing:
            self._events.append(Connected(answer.said.edge, answer.said.is_resumed))
        if not answer.said.is_resumed:
            for subscription in self._wishes:
                self._outbox.ensure(Subscribe(subscription))
        if not (was_renewing and answer.said.is_resumed):
            self._outbox.start_over(now)
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
                self._finish(self._outbox.on_answer(value.name, None))
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
        """What a datagram says, and whether it came under the former token."""
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
        for stray in self._wishes.strays(value.matches):
            self._outbox.ensure(Unsubscribe(stray))
        name = MessageName(message.source, message.id)
        verdict = self._arrivals.judge(message, self._whereabouts.place, now)
        match verdict:
            case Verdict.SHOW:
                is_signed = self._arrivals.is_vouched_for(message)
                self._events.append(Arrived(message, value.matches, is_signed, name if message.reliable else None))
            case Verdict.OUTSIDE:
                self._events.append(Hidden(Unshown.OUTSIDE))
            case Verdict.FORGED:
                self._events.append(Hidden(Unshown.FORGED))
            case Verdict.ANSWER | Verdict.IGNORE:
                pass
        if verdict is Verdict.ANSWER or (verdict is Verdict.OUTSIDE and message.reliable):
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
            self._finish(self._outbox.on_answer(value.about, refused))
        elif value.reason != Reason.REPORT_OUT_OF_ORDER:  # of two reports the newer one came first: nothing is lost
            self._events.append(Complained(refused))

    def _on_close(self, cause: CloseCause, now: Instant) -> None:
        match cause:
            case CloseCause.EXPELLED:
                self._end(RefusedByEdge.of(Reason.NOT_ALLOWED, "the edge expelled this endpoint: it broke the rules too often"))
            case CloseCause.REPLACED:
                self._end(RefusedByEdge.of(Reason.SESSION_TAKEN_OVER, f"{self.setup.endpoint!r} has a newer session"))
            case CloseCause.DONE | CloseCause.SILENT | CloseCause.MOVED | CloseCause.STOPPING:
                self._go_away(f"the edge closed the session: {cause.name.lower()}", now)

    def _go_away(self, why: str, now: Instant, *, may_live: bool = False, at_once: bool = False) -> None:
        """Ask for a session again: at once only if the last one lasted, so that two who disagree do not talk for ever."""
        line = self._open_line
        if line.is_settled(now):
            self._opening.settle()
        self._opening.begin(now, at_once=at_once and line.is_settled(now))
        self._line = line if may_live else None
        self.phase = Phase.AWAY
        self._events.append(Away(why))

    def _end(self, fault: ClientFault | None) -> None:
        if self.phase is not Phase.CLOSED:
            self.phase = Phase.CLOSED
            self._opening.end()
            self._line = self._former = None
            self._events.append(Ended(fault))

    @property
    def _open_line(self) -> Line:
        assert self._line is not None, "there is a session"
        return self._line

    def _init(self, now: Instant) -> Init:
        former = None if self._line is None else self._line.channel.token
        return Init(self._whereabouts.as_of(now, now), former, self.setup.hears_cells)

    def _say_report(self, seen_at: Instant, now: Instant) -> None:
        self._say(ReportSent(self._open_line.channel.token, self._whereabouts.as_of(seen_at, now)))
        self._open_line.reported(now)

    def _flush(self, now: Instant) -> None:
        """Send what is due, and give up what is too late."""
        if self.phase is Phase.CLOSED:
            return
        letters, done = self._outbox.take(now, is_open=self.phase in _HAS_SESSION)
        for letter in letters:
            self._say(replace(letter, session=self._open_line.channel.token))
        self._finish(done)

    def _finish(self, done: list[Done]) -> None:
        for one in done:
            if one.refused is not None and isinstance(one.name, SubscriptionName):
                self._wishes.remove(one.name.id)
        self._events += done

    def _say(self, value: Datagram) -> None:
        self._outgoing.append(self._open_line.channel.seal(value))
