"""Delivery: messages sent now, queued, dropped, and stored until they are acknowledged.

For each receiver of a message, by the QoS of the delivery:

| receiver                         | QoS 0              | QoS 1 and 2                        |
|----------------------------------|--------------------|------------------------------------|
| ready, nothing queued            | sent               | sent, while its window has room    |
| connected, but busy or window full | queued           | queued                             |
| disconnected                     | dropped, counted   | queued if the session is durable   |

Invariants:
- a delivery above QoS 0 has a packet id from the moment it is queued: the same when it is sent again, also by another process;
- queues are limited in messages and bytes per session, and in bytes over all; the oldest message of the lowest class goes first;
- every dropped message is counted under its reason;
- for a durable session every step is written to `changes` in the tick in which it is made.
"""

from collections.abc import Callable
from typing import Final

from milepost.broker.active_alerts import ActiveAlerts
from milepost.broker.counts import Counts
from milepost.broker.effects import Action, Changes, Deliver, Expel, Queued, Release
from milepost.broker.limits import Limits, SlowPolicy
from milepost.broker.outbound_queue import OutboundQueue, Waiting
from milepost.broker.persistence import details_to_bytes, publication_to_bytes
from milepost.broker.presence import Reaching
from milepost.broker.publication import Delivery, Heed, Publication
from milepost.broker.routing import Fan, Group
from milepost.broker.session import NOWHERE, NUMBERS_MAX, Session
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.instants import Instant
from milepost.model.pipeline_records import Fate
from milepost.model.reasons import Reason, Refused

# Delivery trace: an observer receives the fate of messages to areas, and of the last message on them, by endpoint (M24).
#
# Invariant: any other message costs a look at `publication.heed`, and nothing else.


def take_heed(heed: Heed | None, publication: Publication) -> None:
    """Trace a message from now on, if it is to an area or to those notified."""
    if heed is not None and isinstance(publication.address, ToArea | ToNotified):
        publication.heed = heed


def note_matched(publication: Publication, sessions: list[Session]) -> None:
    """Trace the sessions in the area of a message."""
    if publication.heed is not None:
        publication.heed(publication, [session.name for session in sessions], Fate.MATCHED, None)


def note_sent(delivery: Delivery, sessions: list[Session]) -> None:
    """Trace the sessions that a message is sent to."""
    publication = delivery.publication
    if publication.heed is not None:
        publication.heed(publication, [session.name for session in sessions], Fate.SENT, None)
        for session in sessions if delivery.qos else ():
            session.is_heeded = True


def note_acknowledged(session: Session, delivery: Delivery) -> None:
    """Trace an acknowledgement of a session that has a traced message in flight."""
    session.is_heeded = bool(session.in_flight)
    if delivery.publication.heed is not None:
        delivery.publication.heed(delivery.publication, [session.name], Fate.ACKNOWLEDGED, None)


def note_dropped(session: Session, delivery: Delivery, reason: Reason) -> None:
    """Trace a message dropped for a session."""
    if delivery.publication.heed is not None:
        delivery.publication.heed(delivery.publication, [session.name], Fate.DROPPED, reason)


# Storage of deliveries to durable sessions, message by message and delivery by delivery.
#
# Invariant: a message is stored with its first delivery, and deleted with the last.


class Shelf:
    """Numbers the stored messages, and adds messages and deliveries to the changes."""

    def __init__(self) -> None:
        self._last = 0

    def continue_from(self, message: int) -> None:
        """Skip message numbers up to this one: they are in use."""
        self._last = max(self._last, message)

    def keep(self, session: Session, number: int, delivery: Delivery, changes: Changes) -> None:
        """Store a delivery to a durable session."""
        publication = delivery.publication
        if not publication.number:
            self._last += 1
            publication.number = self._last
        if not publication.holders:
            changes.messages[publication.number] = publication_to_bytes(publication)
        publication.holders += 1
        is_bare = not delivery.labels and not delivery.is_from_store
        details = b"" if is_bare else details_to_bytes(delivery.labels, is_from_store=delivery.is_from_store)
        changes.queued[session.number, number] = Queued(publication.number, delivery.qos, False, details)

    def forget(self, session: Session, number: int, delivery: Delivery, changes: Changes) -> None:
        """Delete a delivery to a durable session."""
        publication = delivery.publication
        changes.queued[session.number, number] = None
        publication.holders -= 1
        if not publication.holders:
            changes.messages[publication.number] = None


def release(session: Session, number: int, delivery: Delivery, changes: Changes) -> None:
    """Store that the receiver of a durable session has a QoS 2 message; only PUBCOMP is outstanding."""
    changes.queued[session.number, number] = Queued(delivery.publication.number, delivery.qos, True, b"")


_EXACTLY_ONCE: Final = 2

_STEPS_MAX: Final = 1_000
"""Maximum packet ids freed in this tick that are skipped in search of another."""


class Deliveries:
    """All outbound deliveries of an edge."""

    def __init__(self, limits: Limits, counts: Counts, changes: Changes) -> None:
        self._limits = limits
        self._counts = counts
        self.changes = changes
        """The changes of this tick; the component that stores them puts an empty set here."""
        self.actions: list[Action] = []
        """The actions of this tick; the component that carries them out takes them away."""
        self.waiting_bytes = 0
        """Bytes queued for all sessions."""
        self.heed: Heed | None = None
        """Observer of the fate of messages to areas."""
        self.standing = ActiveAlerts(counts)
        self.reaching: Reaching | None = None
        """None: positions are not known."""
        self._number = 0
        self.shelf = Shelf()

    def hand_out(self, publication: Publication, fan: Fan) -> None:
        """Deliver a message to all its receivers."""
        if isinstance(publication.address, ToArea | ToNotified):
            takers = [session for group in fan.groups for session in group.sessions]
            self.standing.handed_out(publication, takers, self.changes)
            take_heed(self.heed, publication)
            note_matched(publication, takers)
        for group in fan.groups:
            delivery = Delivery(
                publication,
                min(publication.qos, group.qos),
                group.labels,
                is_from_store=publication.is_retained and group.is_retain_shown,
            )
            if delivery.qos:
                self._hand_out_numbered(delivery, group)
            else:
                self._hand_out_plain(delivery, group.sessions)

    def hand_one(self, delivery: Delivery, session: Session) -> None:
        """Deliver a message to one session."""
        self.standing.handed_one(delivery.publication, session, self.changes)
        take_heed(self.heed, delivery.publication)
        note_matched(delivery.publication, [session])
        if delivery.qos:
            group = Group((session.encoding, delivery.qos, delivery.labels, False), [session])
            self._hand_out_numbered(delivery, group)
        else:
            self._hand_out_plain(delivery, [session])

    def _hand_out_plain(self, delivery: Delivery, sessions: list[Session]) -> None:
        ready = [session for session in sessions if session.is_clear]
        if ready:
            self._counts.delivered += len(ready)
            self.actions.append(Deliver(delivery, 0, ready))
            if delivery.publication.heed is not None:
                note_sent(delivery, ready)
        if len(ready) < len(sessions):
            for session in sessions:
                if not session.is_clear:
                    self.hold(session, delivery)

    def _hand_out_numbered(self, delivery: Delivery, group: Group) -> None:
        """Send to all ready receivers under one packet id, so that they can be sent the same bytes."""
        number = self._number = self._number % NUMBERS_MAX + 1
        ready: list[Session] = []
        for session in group.sessions:
            in_flight, is_direct = session.in_flight, session.is_clear and session.waiting is None and not session.released
            is_direct = is_direct and len(in_flight) < session.window and number not in in_flight
            if is_direct and not (session.is_kept and self._was_in_use(session, number)):
                in_flight[number] = delivery
                ready.append(session)
                if session.is_kept:
                    self._keep(session, number, delivery)
            elif session.takes_numbered:
                self._send_apart(session, self._free_number(session), delivery)
            else:
                self._hold_numbered(session, delivery)
        if ready:
            self._counts.delivered += len(ready)
            self.actions.append(Deliver(delivery, number, ready))
            if delivery.publication.heed is not None:
                note_sent(delivery, ready)

    def _send_apart(self, session: Session, number: int, delivery: Delivery) -> None:
        """Send under a packet id of the session's own: the shared one may be in use with it."""
        session.in_flight[number] = delivery
        if session.is_kept:
            self._keep(session, number, delivery)
        self._send(session, number, delivery)

    def _send(self, session: Session, number: int, delivery: Delivery) -> None:
        self._counts.delivered += 1
        self.actions.append(Deliver(delivery, number, [session], is_again=delivery.is_again))
        note_sent(delivery, [session])

    def _hold_numbered(self, session: Session, delivery: Delivery) -> None:
        if session.link is NOWHERE and not session.is_kept:
            self._drop(session, delivery, Reason.RECEIVER_AWAY)
            return
        number = self._free_number(session)
        if session.is_kept:
            self._keep(session, number, delivery)
        self._put(session, number, delivery)

    def _free_number(self, session: Session) -> int:
        number, steps = self._number, 0
        while session.is_in_use(number) or (steps < _STEPS_MAX and session.is_kept and self._was_in_use(session, number)):
            number, steps = number % NUMBERS_MAX + 1, steps + 1
        return number

    def _was_in_use(self, session: Session, number: int) -> bool:
        """Return whether a packet id was freed in this tick: a new delivery would take the former one's place in the order."""
        return (session.number, number) in self.changes.queued

    def hold(self, session: Session, delivery: Delivery) -> None:
        """Queue a QoS 0 delivery for a session that is connected but busy."""
        if session.link is NOWHERE:
            self._drop(session, delivery, Reason.RECEIVER_AWAY)
        else:
            self._put(session, 0, delivery)

    def restore(self, session: Session, number: int, delivery: Delivery, *, is_released: bool) -> None:
        """Restore a stored delivery; the holders of its message are counted already."""
        take_heed(self.heed, delivery.publication)
        if is_released:
            session.released[number] = delivery
        else:
            self._put(session, number, delivery)

    def adopt(self, session: Session, number: int, delivery: Delivery, *, is_released: bool) -> None:
        """Take over a delivery to a session from another edge, under the packet id it had there."""
        if session.is_kept:
            self._keep(session, number, delivery)
            if is_released:
                release(session, number, delivery, self.changes)
        self.restore(session, number, delivery, is_released=is_released)

    def add(self, session: Session, number: int, delivery: Delivery, *, is_released: bool) -> None:
        """Take over a delivery to another session of the same endpoint, under its packet id if that is free here."""
        if session.is_in_use(number) or self._was_in_use(session, number):
            delivery.is_again = False
            if not is_released:
                self.hand_one(delivery, session)
        elif is_released or not session.takes_numbered:
            if session.is_kept or session.link is not NOWHERE:
                self.adopt(session, number, delivery, is_released=is_released)
            if is_released and session.link is not NOWHERE:
                self.actions.append(Release(session, number))
        else:
            take_heed(self.heed, delivery.publication)
            self._send_apart(session, number, delivery)

    def _drop(self, session: Session, delivery: Delivery, reason: Reason) -> None:
        self._counts.dropped[reason] += 1
        note_dropped(session, delivery, reason)

    def _put(self, session: Session, number: int, delivery: Delivery) -> None:
        queue = session.waiting
        if queue is None:
            queue = session.waiting = OutboundQueue()
        queue.put(number, delivery)
        if not number:
            session.is_clear = False
        self.waiting_bytes += delivery.publication.size
        limits = self._limits
        while (
            len(queue) > limits.queue_messages_max
            or queue.size > limits.queue_bytes_max
            or (self.waiting_bytes > limits.queues_bytes_max and queue)
        ):
            self._give_up(session, queue)

    def _give_up(self, session: Session, queue: OutboundQueue) -> None:
        number, delivery = queue.give_up()
        self._taken(session, number, delivery)
        self._drop(session, delivery, Reason.QUEUE_FULL)
        if session.link is not NOWHERE and self._limits.when_slow is SlowPolicy.DISCONNECT:
            self.actions.append(Expel(session.link, Refused(Reason.QUEUE_FULL, f"{len(queue)} messages wait")))

    def _taken(self, session: Session, number: int, delivery: Delivery) -> None:
        """Account for a queued delivery that is dropped."""
        self.waiting_bytes -= delivery.publication.size
        if number and session.is_kept:
            self.shelf.forget(session, number, delivery, self.changes)

    def resume(self, session: Session, now: Instant, size_max: int) -> int:
        """Send queued messages to a session that can take more, the most urgent first; return the bytes, 0 if none went."""
        queue = session.waiting
        size = 0
        if queue is None or session.link is NOWHERE:
            session.is_clear = session.link is not NOWHERE
            return 0
        if queue.has_roads:
            self._sift(session, queue)
        while size < size_max and (taken := queue.take(has_window=session.has_window)) is not None:
            number, delivery = taken
            if delivery.publication.valid_until < now:
                self._taken(session, number, delivery)
                self._drop(session, delivery, Reason.EXPIRED)
                continue
            self.waiting_bytes -= delivery.publication.size
            if number:
                session.in_flight[number] = delivery
            self._send(session, number, delivery)
            size += delivery.publication.size + 1
        session.is_clear = not queue.has_plain
        if not queue:
            session.waiting = None
        return size

    def _sift(self, session: Session, queue: OutboundQueue) -> None:
        """Drop queued messages about places that the endpoint has passed, and messages that newer ones replace."""
        for number, delivery, reason in self.reaching.sift(session, queue) if self.reaching is not None else ():
            self._taken(session, number, delivery)
            self._drop(session, delivery, reason)
            if reason is Reason.PASSED:
                self.standing.untell(session, delivery.publication, self.changes)

    def resend(self, session: Session, now: Instant) -> None:
        """Send in-flight messages again to a session that reconnected, in the order they were first sent. [MQTT-4.4.0-1]"""
        for number in session.released:
            self.actions.append(Release(session, number))
        room = session.window - len(session.released)
        back: list[Waiting] = []
        for number, delivery in list(session.in_flight.items()):
            if delivery.publication.valid_until < now:
                del session.in_flight[number]
                self._drop_kept(session, number, delivery)
                self._drop(session, delivery, Reason.EXPIRED)
            elif room > 0:
                room -= 1
                self.actions.append(Deliver(delivery, number, [session], is_again=True))
            else:  # the new Receive Maximum is lower. [MQTT-3.3.4-9]
                del session.in_flight[number]
                self._counts.delivered -= 1
                again = Delivery(
                    delivery.publication, delivery.qos, delivery.labels, is_from_store=delivery.is_from_store, is_again=True
                )
                back.append((number, again))
        if back:
            self._put_first(session, back)

    def _put_first(self, session: Session, back: list[Waiting]) -> None:
        """Requeue messages that were in flight, ahead of those already queued: they are older."""
        waiting = session.waiting.all() if session.waiting is not None else []
        self.waiting_bytes -= sum(delivery.publication.size for _, delivery in waiting)
        session.waiting = None
        for number, delivery in (*back, *waiting):
            self._put(session, number, delivery)

    def acknowledge(self, session: Session, number: int) -> bool:
        """Settle a QoS 1 delivery, or a refused one; return whether the packet id was in flight."""
        delivery = session.in_flight.pop(number, None)
        if delivery is None:
            return False
        if session.is_kept:
            self.shelf.forget(session, number, delivery, self.changes)
        if session.is_heeded:
            note_acknowledged(session, delivery)
        return True

    def lose(self, session: Session, number: int, delivery: Delivery, reason: Reason) -> None:
        """Count a message that a listener could not send as dropped; its packet id becomes free as if acknowledged."""
        self._counts.delivered -= 1
        self._drop(session, delivery, reason)
        if session.in_flight.pop(number, None) is not None:
            self._drop_kept(session, number, delivery)

    def release(self, session: Session, number: int) -> bool:
        """Note that a receiver has a QoS 2 message (PUBREC); PUBCOMP is outstanding. Return whether the packet id is in use."""
        delivery = session.in_flight.pop(number, None)
        if delivery is None:
            return number in session.released
        session.released[number] = delivery
        if session.is_kept:
            release(session, number, delivery, self.changes)
        if session.is_heeded:
            note_acknowledged(session, delivery)
        return True

    def complete(self, session: Session, number: int) -> bool:
        """End a QoS 2 exchange (PUBCOMP); return whether the packet id was in use."""
        delivery = session.released.pop(number, None)
        if delivery is None:
            return False
        self._drop_kept(session, number, delivery)
        return True

    def end(self, session: Session) -> None:
        """Drop all deliveries to a session that has ended, and count them."""
        for delivery in self.let_go(session):
            self._drop(session, delivery, Reason.SESSION_EXPIRED)

    def let_go(self, session: Session) -> list[Delivery]:
        """Forget all deliveries to a session; return those it did not receive."""
        for number, delivery in (*session.in_flight.items(), *session.released.items()):
            self._drop_kept(session, number, delivery)
        waiting = session.waiting.all() if session.waiting is not None else []
        for number, delivery in waiting:
            self._taken(session, number, delivery)
        lost = [*session.in_flight.values(), *(delivery for _, delivery in waiting)]
        session.in_flight, session.released, session.waiting = {}, {}, None
        return lost

    def withdraw(self, session: Session, is_had: Callable[[Delivery], bool]) -> None:
        """Remove deliveries that a disconnected endpoint received elsewhere; a QoS 2 exchange that may have begun is ended."""
        for number, delivery in list(session.in_flight.items()):
            if session.link is NOWHERE and is_had(delivery):
                del session.in_flight[number]
                self._take_back(session, number, delivery, has_begun=True)
        waiting, session.waiting = session.waiting.all() if session.waiting is not None else [], None
        for number, delivery in waiting:
            self.waiting_bytes -= delivery.publication.size
            if number and is_had(delivery):
                self._take_back(session, number, delivery, has_begun=delivery.is_again)
            else:
                self._put(session, number, delivery)

    def _take_back(self, session: Session, number: int, delivery: Delivery, *, has_begun: bool) -> None:
        if has_begun and delivery.qos == _EXACTLY_ONCE:
            session.released[number] = delivery
            if session.is_kept:
                release(session, number, delivery, self.changes)
        else:
            self._drop_kept(session, number, delivery)

    def unkeep(self, session: Session) -> None:
        """Delete the stored deliveries of a session that is no longer durable."""
        waiting = session.waiting.all() if session.waiting is not None else []
        for number, delivery in (*session.in_flight.items(), *session.released.items(), *waiting):
            if number:
                self.shelf.forget(session, number, delivery, self.changes)

    def leave(self, session: Session) -> None:
        """Handle a disconnect: drop queued QoS 0 messages; the others are sent when the endpoint is back."""
        session.is_clear = False
        if session.in_flight:
            for action in self.actions:
                if isinstance(action, Deliver) and session.in_flight.get(action.number) is action.delivery:
                    action.sessions = [one for one in action.sessions if one is not session]
        if session.waiting is None:
            return
        waiting, session.waiting = session.waiting.all(), None
        for number, delivery in waiting:
            self.waiting_bytes -= delivery.publication.size
            if number:
                self._put(session, number, delivery)
            else:
                self._drop(session, delivery, Reason.RECEIVER_AWAY)

    def _keep(self, session: Session, number: int, delivery: Delivery) -> None:
        self.shelf.keep(session, number, delivery, self.changes)

    def _drop_kept(self, session: Session, number: int, delivery: Delivery) -> None:
        if session.is_kept:
            self.shelf.forget(session, number, delivery, self.changes)
