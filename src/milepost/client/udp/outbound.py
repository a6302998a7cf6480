"""Datagrams on their way to the edge: publications, subscriptions and unsubscriptions.

    stage      when                                      next
    waiting    not sent yet                              a session, and room in the window ─▶ flight; unreliable ─▶ done
    flight     sent, not answered                        RECEIVED, refusal ─▶ done       not answered in time ─▶ resent
    done       answered, or given up: EXPIRED if it was never sent, UNANSWERED if it was

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

from milepost.client.carrier import Draw, jitter
from milepost.client.errors import RefusedByEdge
from milepost.client.events import Done
from milepost.model.instants import FOREVER, Instant
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.retry import RetryPolicy
from milepost.model.sessions import MessageName, Name, Publish, Subscribe, SubscriptionName, Unsubscribe

RESEND: Final = RetryPolicy(first_s=0.3, limit_s=5.0, spread=0.25, retries_max=16)
WINDOW: Final = 64
"""Maximum datagrams in flight: more would only displace each other."""

OutboundDatagram = Publish | Subscribe | Unsubscribe
_REQUESTS: Final = 0
_QUEUES: Final = 1 + len(Priority)


@dataclass(slots=True, eq=False)
class PendingDatagram:
    """One unanswered datagram."""

    name: Name
    datagram: OutboundDatagram
    times: int = 0
    """How often it was sent in this session."""
    due_at: Instant = FOREVER

    @property
    def queue(self) -> int:
        """The index of its queue: subscriptions first, then by priority."""
        return 1 + self.datagram.message.priority if isinstance(self.datagram, Publish) else _REQUESTS

    @property
    def is_reliable(self) -> bool:
        """Whether the edge answers it."""
        return not isinstance(self.datagram, Publish) or self.datagram.message.reliable

    @property
    def valid_until(self) -> Instant:
        """When it expires."""
        return self.datagram.message.valid_until if isinstance(self.datagram, Publish) else FOREVER


class UdpOutbound:
    """All unanswered datagrams."""

    def __init__(self, waiting_max: int, draw: Draw) -> None:
        self._waiting_max = waiting_max
        self._draw = draw
        self._queues: list[deque[PendingDatagram]] = [deque() for _ in range(_QUEUES)]
        self._flight: dict[Name, PendingDatagram] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues)) + len(self._flight)

    @property
    def is_full(self) -> bool:
        """Whether the limit of unanswered publications is reached."""
        asked = len(self._queues[_REQUESTS]) + sum(isinstance(name, SubscriptionName) for name in self._flight)
        return len(self) - asked >= self._waiting_max

    @property
    def next_at(self) -> Instant:
        """When the next datagram is due to be resent; queued ones are sent as soon as there is room."""
        return min((pending.due_at for pending in self._flight.values()), default=FOREVER)

    def put(self, datagram: OutboundDatagram) -> None:
        """Queue a datagram, replacing the pending one of the same name."""
        name = name_of(datagram)
        self.drop(name)
        pending = PendingDatagram(name, datagram)
        self._queues[pending.queue].append(pending)

    def ensure(self, datagram: OutboundDatagram) -> None:
        """Queue a datagram, unless one of the same name is pending."""
        name = name_of(datagram)
        if name not in self._flight and not any(one.name == name for queue in self._queues for one in queue):
            self.put(datagram)

    def drop(self, name: Name, *, if_sent: bool = True) -> None:
        """Stop sending a datagram."""
        for number, queue in enumerate(self._queues):
            if any(one.name == name for one in queue):
                self._queues[number] = deque(one for one in queue if one.name != name)
        if if_sent:
            self._flight.pop(name, None)

    def on_answer(self, name: Name, refused: RefusedByEdge | None) -> list[Done]:
        """Process an answer; one to a datagram that is not in flight is a duplicate."""
        return [] if self._flight.pop(name, None) is None else [Done(name, refused)]

    def start_over(self, now: Instant) -> None:
        """Start a new session: resend everything in flight at once."""
        for pending in self._flight.values():
            pending.times, pending.due_at = 0, now

    def take(self, now: Instant, *, is_open: bool) -> tuple[list[OutboundDatagram], list[Done]]:
        """Return the datagrams to send now, and the completed ones; without a session only those that are given up."""
        done = self._given_up(now)
        if not is_open:
            return [], done
        datagrams = [self._sent(pending, now) for pending in self._flight.values() if now >= pending.due_at]
        while (pending := self._maybe_next()) is not None:
            if pending.is_reliable:
                self._flight[pending.name] = pending
            else:
                done.append(Done(pending.name))
            datagrams.append(self._sent(pending, now))
        return datagrams, done

    def _maybe_next(self) -> PendingDatagram | None:
        is_full = len(self._flight) >= WINDOW
        for queue in self._queues:
            if queue and not (is_full and queue[0].is_reliable):
                return queue.popleft()
        return None

    def _sent(self, pending: PendingDatagram, now: Instant) -> OutboundDatagram:
        pending.due_at = Instant(now + RESEND.wait_ns(pending.times, jitter(self._draw)))
        pending.times += 1
        return pending.datagram

    def _given_up(self, now: Instant) -> list[Done]:
        done = []
        for queue in self._queues[1:]:
            for pending in [one for one in queue if now > one.valid_until]:
                queue.remove(pending)
                done.append(Done(pending.name, _expired()))
        for pending in list(self._flight.values()):
            is_over = now > pending.valid_until or (RESEND.is_exhausted(pending.times) and now >= pending.due_at)
            if is_over:
                del self._flight[pending.name]
                done.append(Done(pending.name, _unanswered(pending)))
        return done


def name_of(datagram: OutboundDatagram) -> Name:
    """Return the name by which the edge answers the datagram."""
    match datagram:
        case Publish():
            return MessageName(datagram.message.source, datagram.message.id)
        case Subscribe():
            return SubscriptionName(datagram.subscription.owner, datagram.subscription.id)
        case Unsubscribe():
            return datagram.subscription


def _expired() -> RefusedByEdge:
    return RefusedByEdge.of(Reason.EXPIRED, "it was not sent before its validity ended")


def _unanswered(pending: PendingDatagram) -> RefusedByEdge:
    how = f"the edge did not answer; it was sent {pending.times} times"
    return RefusedByEdge.of(Reason.UNANSWERED, how)
