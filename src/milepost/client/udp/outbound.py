"""Datagrams on their way to the edge: publications, subscriptions and unsubscriptions.

    stage      when                                      next
    queued     not sent yet                              a session, and room in the window ─▶ in flight; unreliable ─▶ done
    in flight  sent, not answered                        RECEIVED, refusal ─▶ done       not answered in time ─▶ resent
    done       answered, or given up: EXPIRED if it was never sent, UNACKNOWLEDGED if it was

Invariants:
- a datagram replaces the pending one of the same name;
- subscriptions are sent before publications, and emergencies before the rest;
- at most `WINDOW` are in flight; none is sent after its validity, or more often than `RESEND` allows
  in one session;
- in a new session everything in flight is resent.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from milepost.client.errors import RefusedByEdge
from milepost.client.events import Done
from milepost.client.transport import Draw, jitter
from milepost.model.instants import FOREVER, Instant
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.retry import RetryPolicy
from milepost.model.session_datagrams import (
    MessageName,
    Name,
    PublishDatagram,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
)

RESEND: Final = RetryPolicy(first_s=0.3, limit_s=5.0, spread=0.25, retries_max=16)
WINDOW: Final = 64
"""Maximum datagrams in flight: more would only displace each other."""

OutboundDatagram = PublishDatagram | SubscribeDatagram | UnsubscribeDatagram
_REQUESTS: Final = 0
_QUEUES: Final = 1 + len(Priority)


@dataclass(slots=True, eq=False)
class PendingDatagram:
    """One unanswered datagram."""

    name: Name
    datagram: OutboundDatagram
    sent_count: int = 0
    """How often it was sent in this session."""
    due_at: Instant = FOREVER

    @property
    def queue(self) -> int:
        """The index of its queue: subscriptions first, then by priority."""
        return 1 + self.datagram.message.priority if isinstance(self.datagram, PublishDatagram) else _REQUESTS

    @property
    def is_reliable(self) -> bool:
        """Whether the edge answers it."""
        return not isinstance(self.datagram, PublishDatagram) or self.datagram.message.reliable

    @property
    def valid_until(self) -> Instant:
        """When it expires."""
        return self.datagram.message.valid_until if isinstance(self.datagram, PublishDatagram) else FOREVER


class UdpOutbound:
    """All unanswered datagrams."""

    def __init__(self, pending_max: int, draw: Draw) -> None:
        self._pending_max = pending_max
        self._draw = draw
        self._queues: list[deque[PendingDatagram]] = [deque() for _ in range(_QUEUES)]
        self._in_flight: dict[Name, PendingDatagram] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues)) + len(self._in_flight)

    @property
    def is_full(self) -> bool:
        """Whether the limit of unanswered publications is reached."""
        requests = len(self._queues[_REQUESTS]) + sum(isinstance(name, SubscriptionName) for name in self._in_flight)
        return len(self) - requests >= self._pending_max

    @property
    def next_at(self) -> Instant:
        """When the next datagram is due to be resent; queued ones are sent as soon as there is room."""
        return min((pending.due_at for pending in self._in_flight.values()), default=FOREVER)

    def put(self, datagram: OutboundDatagram) -> None:
        """Queue a datagram, replacing the pending one of the same name."""
        name = name_of(datagram)
        self.drop(name)
        pending = PendingDatagram(name, datagram)
        self._queues[pending.queue].append(pending)

    def ensure(self, datagram: OutboundDatagram) -> None:
        """Queue a datagram, unless one of the same name is pending."""
        name = name_of(datagram)
        if name not in self._in_flight and not any(one.name == name for queue in self._queues for one in queue):
            self.put(datagram)

    def drop(self, name: Name, *, if_sent: bool = True) -> None:
        """Stop sending a datagram."""
        for number, queue in enumerate(self._queues):
            if any(one.name == name for one in queue):
                self._queues[number] = deque(one for one in queue if one.name != name)
        if if_sent:
            self._in_flight.pop(name, None)

    def on_answer(self, name: Name, refused: RefusedByEdge | None) -> list[Done]:
        """Process an answer; one to a datagram that is not in flight is a duplicate."""
        return [] if self._in_flight.pop(name, None) is None else [Done(name, refused)]

    def start_over(self, now: Instant) -> None:
        """Start a new session: resend everything in flight at once."""
        for pending in self._in_flight.values():
            pending.sent_count, pending.due_at = 0, now

    def take(self, now: Instant, *, is_open: bool) -> tuple[list[OutboundDatagram], list[Done]]:
        """Return the datagrams to send now, and the completed ones.

        Without a session nothing is sent; only timed-out datagrams are returned as completed.
        """
        done = self._given_up(now)
        if not is_open:
            return [], done
        datagrams = [self._sent(pending, now) for pending in self._in_flight.values() if now >= pending.due_at]
        while (pending := self._maybe_next()) is not None:
            if pending.is_reliable:
                self._in_flight[pending.name] = pending
            else:
                done.append(Done(pending.name))
            datagrams.append(self._sent(pending, now))
        return datagrams, done

    def _maybe_next(self) -> PendingDatagram | None:
        is_full = len(self._in_flight) >= WINDOW
        for queue in self._queues:
            if queue and not (is_full and queue[0].is_reliable):
                return queue.popleft()
        return None

    def _sent(self, pending: PendingDatagram, now: Instant) -> OutboundDatagram:
        pending.due_at = Instant(now + RESEND.wait_ns(pending.sent_count, jitter(self._draw)))
        pending.sent_count += 1
        return pending.datagram

    def _given_up(self, now: Instant) -> list[Done]:
        done = []
        for queue in self._queues[1:]:
            for pending in [one for one in queue if now > one.valid_until]:
                queue.remove(pending)
                done.append(Done(pending.name, _expired()))
        for pending in list(self._in_flight.values()):
            is_over = now > pending.valid_until or (RESEND.is_exhausted(pending.sent_count) and now >= pending.due_at)
            if is_over:
                del self._in_flight[pending.name]
                done.append(Done(pending.name, _unanswered(pending)))
        return done


def name_of(datagram: OutboundDatagram) -> Name:
    """Return the name by which the edge answers the datagram."""
    match datagram:
        case PublishDatagram():
            return MessageName(datagram.message.source, datagram.message.id)
        case SubscribeDatagram():
            return SubscriptionName(datagram.subscription.owner, datagram.subscription.id)
        case UnsubscribeDatagram():
            return datagram.subscription


def _expired() -> RefusedByEdge:
    return RefusedByEdge.of(Reason.EXPIRED, "the message expired before it could be sent")


def _unanswered(pending: PendingDatagram) -> RefusedByEdge:
    detail = f"the edge did not answer; it was sent {pending.sent_count} times"
    return RefusedByEdge.of(Reason.UNACKNOWLEDGED, detail)
