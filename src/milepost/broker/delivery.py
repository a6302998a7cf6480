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
from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.effects import Action, CloseConnection, Deliver, Queued, Release, StateChanges
from milepost.broker.limits import BrokerLimits, SlowPolicy
from milepost.broker.outbound_queue import OutboundQueue, QueuedDelivery
from milepost.broker.presence import ArrivalEstimator
from milepost.broker.publication import Delivery, DeliveryObserver, Publication
from milepost.broker.routing import ReceiverGroup, ReceiverGroups
from milepost.broker.session import NO_CONNECTION, PACKET_ID_MAX, Session
from milepost.broker.state_codec import details_to_bytes, publication_to_bytes
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.instants import Instant
from milepost.model.pipeline_records import DeliveryState
from milepost.model.reasons import Reason, Refused

# Delivery trace: an observer receives the state of messages to areas, and of the last message on them, by endpoint (M24).
#
# Invariant: any other message costs a look at `publication.observer`, and nothing else.


def start_trace(observer: DeliveryObserver | None, publication: Publication) -> None:
    """Trace a message from now on, if it is to an area or to those notified."""
    if observer is not None and isinstance(publication.address, ToArea | ToNotified):
        publication.observer = observer


def note_matched(publication: Publication, sessions: list[Session]) -> None:
    """Trace the sessions in the area of a message."""
    if publication.observer is not None:
        publication.observer(publication, [session.name for session in sessions], DeliveryState.MATCHED, None)


def note_sent(delivery: Delivery, sessions: list[Session]) -> None:
    """Trace the sessions that a message is sent to."""
    publication = delivery.publication
    if publication.observer is not None:
        publication.observer(publication, [session.name for session in sessions], DeliveryState.SENT, None)
        for session in sessions if delivery.qos else ():
            session.is_traced = True


def note_acknowledged(session: Session, delivery: Delivery) -> None:
    """Trace an acknowledgement of a session that has a traced message in flight."""
    session.is_traced = bool(session.in_flight)
    if delivery.publication.observer is not None:
        delivery.publication.observer(delivery.publication, [session.name], DeliveryState.ACKNOWLEDGED, None)


def note_dropped(session: Session, delivery: Delivery, reason: Reason) -> None:
    """Trace a message dropped for a session."""
    if delivery.publication.observer is not None:
        delivery.publication.observer(delivery.publication, [session.name], DeliveryState.DROPPED, reason)


# Storage of deliveries to durable sessions, message by message and delivery by delivery.
#
# Invariant: a message is stored with its first delivery, and deleted with the last.


class DeliveryStore:
    """Numbers the stored messages, and adds messages and deliveries to the changes."""

    def __init__(self) -> None:
        self._last = 0

    def continue_from(self, message: int) -> None:
        """Skip message numbers up to this one: they are in use."""
        self._last = max(self._last, message)

    def add(self, session: Session, packet_id: int, delivery: Delivery, changes: StateChanges) -> None:
        """Store a delivery to a durable session."""
        publication = delivery.publication
        if not publication.number:
            self._last += 1
            publication.number = self._last
        if not publication.stored_references:
            changes.messages[publication.number] = publication_to_bytes(publication)
        publication.stored_references += 1
        is_bare = not delivery.subscription_ids and not delivery.has_retain_flag
        details = b"" if is_bare else details_to_bytes(delivery.subscription_ids, has_retain_flag=delivery.has_retain_flag)
        changes.queued[session.number, packet_id] = Queued(publication.number, delivery.qos, False, details)

    def remove(self, session: Session, packet_id: int, delivery: Delivery, changes: StateChanges) -> None:
        """Delete a delivery to a durable session."""
        publication = delivery.publication
        changes.queued[session.number, packet_id] = None
        publication.stored_references -= 1
        if not publication.stored_references:
            changes.messages[publication.number] = None


def store_release(session: Session, packet_id: int, delivery: Delivery, changes: StateChanges) -> None:
    """Store that the receiver of a durable session has a QoS 2 message; only PUBCOMP is outstanding."""
    changes.queued[session.number, packet_id] = Queued(delivery.publication.number, delivery.qos, True, b"")


_EXACTLY_ONCE: Final = 2

_STEPS_MAX: Final = 1_000
"""Maximum packet ids freed in this tick that are skipped in search of another."""


class Deliveries:
    """All outbound deliveries of an edge."""

    def __init__(self, limits: BrokerLimits, counts: BrokerCounters, changes: StateChanges) -> None:
        self._limits = limits
        self._counts = counts
        self.changes = changes
        """The changes of this tick; the component that stores them puts an empty set here."""
        self.actions: list[Action] = []
        """The actions of this tick; the component that carries them out takes them away."""
        self.queued_bytes = 0
        """Bytes queued for all sessions."""
        self.observer: DeliveryObserver | None = None
        """Observer of the delivery states of messages to areas."""
        self.active_alerts = ActiveAlerts(counts)
        self.arrivals: ArrivalEstimator | None = None
        """None: positions are not known."""
        self._last_packet_id = 0
        self.store = DeliveryStore()

    def deliver(self, publication: Publication, receivers: ReceiverGroups) -> None:
        """Deliver a message to all its receivers; a forged one about an active alert to none."""
        if isinstance(publication.address, ToArea | ToNotified):
            if self.active_alerts.is_forged(publication):
                self._counts.dropped[Reason.SIGNATURE_INVALID] += 1
                return
            matched = [session for group in receivers.groups for session in group.sessions]
            self.active_alerts.note_delivered(publication, matched, self.changes)
            start_trace(self.observer, publication)
            note_matched(publication, matched)
        for group in receivers.groups:
            delivery = Delivery(
                publication,
                min(publication.qos, group.qos),
                group.subscription_ids,
                has_retain_flag=publication.is_retained and group.retain_as_published,
            )
            if delivery.qos:
                self._deliver_numbered(delivery, group)
            else:
                self._deliver_plain(delivery, group.sessions)

    def deliver_to(self, delivery: Delivery, session: Session) -> None:
        """Deliver a message to one session."""
        if self.active_alerts.is_forged(delivery.publication):
            self._counts.dropped[Reason.SIGNATURE_INVALID] += 1
            return
        self.active_alerts.note_delivered_to(delivery.publication, session, self.changes)
        start_trace(self.observer, delivery.publication)
        note_matched(delivery.publication, [session])
        if delivery.qos:
            group = ReceiverGroup((session.encoding, delivery.qos, delivery.subscription_ids, False), [session])
            self._deliver_numbered(delivery, group)
        else:
            self._deliver_plain(delivery, [session])

    def _deliver_plain(self, delivery: Delivery, sessions: list[Session]) -> None:
        ready = [session for session in sessions if session.is_ready]
        if ready:
            self._counts.delivered += len(ready)
            self.actions.append(Deliver(delivery, 0, ready))
            if delivery.publication.observer is not None:
                note_sent(delivery, ready)
        if len(ready) < len(sessions):
            for session in sessions:
                if not session.is_ready:
                    self.enqueue_plain(session, delivery)

    def _deliver_numbered(self, delivery: Delivery, group: ReceiverGroup) -> None:
        """Send to all ready receivers under one packet id, so that they can be sent the same bytes."""
        packet_id = self._last_packet_id = self._last_packet_id % PACKET_ID_MAX + 1
        ready: list[Session] = []
        for session in group.sessions:
            in_flight, is_direct = session.in_flight, session.is_ready and session.queue is None and not session.released
            is_direct = is_direct and len(in_flight) < session.window and packet_id not in in_flight
            if is_direct and not (session.is_durable and self._was_in_use(session, packet_id)):
                in_flight[packet_id] = delivery
                ready.append(session)
                if session.is_durable:
                    self._store(session, packet_id, delivery)
            elif session.can_send_numbered:
                self._send_apart(session, self._free_packet_id(session), delivery)
            else:
                self._enqueue_numbered(session, delivery)
        if ready:
            self._counts.delivered += len(ready)
            self.actions.append(Deliver(delivery, packet_id, ready))
            if delivery.publication.observer is not None:
                note_sent(delivery, ready)

    def _send_apart(self, session: Session, packet_id: int, delivery: Delivery) -> None:
        """Send under a packet id of the session's own: the shared one may be in use with it."""
        session.in_flight[packet_id] = delivery
        if session.is_durable:
            self._store(session, packet_id, delivery)
        self._send(session, packet_id, delivery)

    def _send(self, session: Session, packet_id: int, delivery: Delivery) -> None:
        self._counts.delivered += 1
        self.actions.append(Deliver(delivery, packet_id, [session], is_duplicate=delivery.is_duplicate))
        note_sent(delivery, [session])

    def _enqueue_numbered(self, session: Session, delivery: Delivery) -> None:
        if session.connection is NO_CONNECTION and not session.is_durable:
            self._drop(session, delivery, Reason.RECEIVER_OFFLINE)
            return
        packet_id = self._free_packet_id(session)
        if session.is_durable:
            self._store(session, packet_id, delivery)
        self._enqueue(session, packet_id, delivery)

    def _free_packet_id(self, session: Session) -> int:
        packet_id, steps = self._last_packet_id, 0
        while session.is_in_use(packet_id) or (
            steps < _STEPS_MAX and session.is_durable and self._was_in_use(session, packet_id)
        ):
            packet_id, steps = packet_id % PACKET_ID_MAX + 1, steps + 1
        return packet_id

    def _was_in_use(self, session: Session, packet_id: int) -> bool:
        """Return whether a packet id was freed in this tick: a new delivery would take the former one's place in the order."""
        return (session.number, packet_id) in self.changes.queued

    def enqueue_plain(self, session: Session, delivery: Delivery) -> None:
        """Queue a QoS 0 delivery for a session that is connected but busy."""
        if session.connection is NO_CONNECTION:
            self._drop(session, delivery, Reason.RECEIVER_OFFLINE)
        else:
            self._enqueue(session, 0, delivery)

    def restore(self, session: Session, packet_id: int, delivery: Delivery, *, is_released: bool) -> None:
        """Restore a stored delivery; the references to its message are counted already."""
        start_trace(self.observer, delivery.publication)
        if is_released:
            session.released[packet_id] = delivery
        else:
            self._enqueue(session, packet_id, delivery)

    def adopt(self, session: Session, packet_id: int, delivery: Delivery, *, is_released: bool) -> None:
        """Take over a delivery to a session from another edge, under the packet id it had there."""
        if session.is_durable:
            self._store(session, packet_id, delivery)
            if is_released:
                store_release(session, packet_id, delivery, self.changes)
        self.restore(session, packet_id, delivery, is_released=is_released)

    def add(self, session: Session, packet_id: int, delivery: Delivery, *, is_released: bool) -> None:
        """Take over a delivery to another session of the same endpoint, under its packet id if that is free here."""
        if session.is_in_use(packet_id) or self._was_in_use(session, packet_id):
            delivery.is_duplicate = False
            if not is_released:
                self.deliver_to(delivery, session)
        elif is_released or not session.can_send_numbered:
            if session.is_durable or session.connection is not NO_CONNECTION:
                self.adopt(session, packet_id, delivery, is_released=is_released)
            if is_released and session.connection is not NO_CONNECTION:
                self.actions.append(Release(session, packet_id))
        else:
            start_trace(self.observer, delivery.publication)
            self._send_apart(session, packet_id, delivery)

    def _drop(self, session: Session, delivery: Delivery, reason: Reason) -> None:
        self._counts.dropped[reason] += 1
        note_dropped(session, delivery, reason)

    def _enqueue(self, session: Session, packet_id: int, delivery: Delivery) -> None:
        queue = session.queue
        if queue is None:
            queue = session.queue = OutboundQueue()
        queue.put(packet_id, delivery)
        if not packet_id:
            session.is_ready = False
        self.queued_bytes += delivery.publication.size
        limits = self._limits
        while (
            len(queue) > limits.queue_messages_max
            or queue.size > limits.queue_bytes_max
            or (self.queued_bytes > limits.total_queue_bytes_max and queue)
        ):
            self._evict(session, queue)

    def _evict(self, session: Session, queue: OutboundQueue) -> None:
        packet_id, delivery = queue.evict()
        self._account_removed(session, packet_id, delivery)
        self._drop(session, delivery, Reason.QUEUE_FULL)
        if session.connection is not NO_CONNECTION and self._limits.slow_consumer is SlowPolicy.DISCONNECT:
            self.actions.append(
                CloseConnection(session.connection, Refused(Reason.QUEUE_FULL, f"{len(queue)} messages are queued"))
            )

    def _account_removed(self, session: Session, packet_id: int, delivery: Delivery) -> None:
        """Account for a queued delivery that is dropped."""
        self.queued_bytes -= delivery.publication.size
        if packet_id and session.is_durable:
            self.store.remove(session, packet_id, delivery, self.changes)

    def drain(self, session: Session, now: Instant, size_max: int) -> int:
        """Send queued messages to a session that can take more, the most urgent first; return the bytes, 0 if none went."""
        queue = session.queue
        size = 0
        if queue is None or session.connection is NO_CONNECTION:
            session.is_ready = session.connection is not NO_CONNECTION
            return 0
        if queue.has_roads:
            self._sort_by_arrival(session, queue)
        while size < size_max and (taken := queue.take(has_window=session.has_window)) is not None:
            packet_id, delivery = taken
            if delivery.publication.valid_until < now:
                self._account_removed(session, packet_id, delivery)
                self._drop(session, delivery, Reason.EXPIRED)
                continue
            self.queued_bytes -= delivery.publication.size
            if packet_id:
                session.in_flight[packet_id] = delivery
            self._send(session, packet_id, delivery)
            size += delivery.publication.size + 1
        session.is_ready = not queue.has_plain
        if not queue:
            session.queue = None
        return size

    def _sort_by_arrival(self, session: Session, queue: OutboundQueue) -> None:
        """Drop queued messages about places that the endpoint has passed, and messages that newer ones replace."""
        for packet_id, delivery, reason in self.arrivals.sort_by_arrival(session, queue) if self.arrivals is not None else ():
            self._account_removed(session, packet_id, delivery)
            self._drop(session, delivery, reason)
            if reason is Reason.PLACE_PASSED:
                self.active_alerts.undo_notified(session, delivery.publication, self.changes)

    def resend(self, session: Session, now: Instant) -> None:
        """Send in-flight messages again to a session that reconnected, in the order they were first sent. [MQTT-4.4.0-1]"""
        for packet_id in session.released:
            self.actions.append(Release(session, packet_id))
        room = session.window - len(session.released)
        back: list[QueuedDelivery] = []
        for packet_id, delivery in list(session.in_flight.items()):
            if delivery.publication.valid_until < now:
                del session.in_flight[packet_id]
                self._delete_if_durable(session, packet_id, delivery)
                self._drop(session, delivery, Reason.EXPIRED)
            elif room > 0:
                room -= 1
                self.actions.append(Deliver(delivery, packet_id, [session], is_duplicate=True))
            else:  # the new Receive Maximum is lower. [MQTT-3.3.4-9]
                del session.in_flight[packet_id]
                self._counts.delivered -= 1
                again = Delivery(
                    delivery.publication,
                    delivery.qos,
                    delivery.subscription_ids,
                    has_retain_flag=delivery.has_retain_flag,
                    is_duplicate=True,
                )
                back.append((packet_id, again))
        if back:
            self._requeue_first(session, back)

    def _requeue_first(self, session: Session, back: list[QueuedDelivery]) -> None:
        """Requeue messages that were in flight, ahead of those already queued: they are older."""
        waiting = session.queue.all() if session.queue is not None else []
        self.queued_bytes -= sum(delivery.publication.size for _, delivery in waiting)
        session.queue = None
        for packet_id, delivery in (*back, *waiting):
            self._enqueue(session, packet_id, delivery)

    def acknowledge(self, session: Session, packet_id: int) -> bool:
        """Settle a QoS 1 delivery, or a refused one; return whether the packet id was in flight."""
        delivery = session.in_flight.pop(packet_id, None)
        if delivery is None:
            return False
        if session.is_durable:
            self.store.remove(session, packet_id, delivery, self.changes)
        if session.is_traced:
            note_acknowledged(session, delivery)
        return True

    def fail(self, session: Session, packet_id: int, delivery: Delivery, reason: Reason) -> None:
        """Count a message that a listener could not send as dropped; its packet id becomes free as if acknowledged."""
        self._counts.delivered -= 1
        self._drop(session, delivery, reason)
        if session.in_flight.pop(packet_id, None) is not None:
            self._delete_if_durable(session, packet_id, delivery)

    def release(self, session: Session, packet_id: int) -> bool:
        """Note that a receiver has a QoS 2 message (PUBREC); PUBCOMP is outstanding. Return whether the packet id is in use."""
        delivery = session.in_flight.pop(packet_id, None)
        if delivery is None:
            return packet_id in session.released
        session.released[packet_id] = delivery
        if session.is_durable:
            store_release(session, packet_id, delivery, self.changes)
        if session.is_traced:
            note_acknowledged(session, delivery)
        return True

    def complete(self, session: Session, packet_id: int) -> bool:
        """End a QoS 2 exchange (PUBCOMP); return whether the packet id was in use."""
        delivery = session.released.pop(packet_id, None)
        if delivery is None:
            return False
        self._delete_if_durable(session, packet_id, delivery)
        return True

    def end(self, session: Session, reason: Reason = Reason.SESSION_EXPIRED) -> None:
        """Drop all deliveries to a session that has ended, and count them."""
        for delivery in self.remove_all(session):
            self._drop(session, delivery, reason)

    def remove_all(self, session: Session) -> list[Delivery]:
        """Forget all deliveries to a session; return those it did not receive."""
        for packet_id, delivery in (*session.in_flight.items(), *session.released.items()):
            self._delete_if_durable(session, packet_id, delivery)
        waiting = session.queue.all() if session.queue is not None else []
        for packet_id, delivery in waiting:
            self._account_removed(session, packet_id, delivery)
        lost = [*session.in_flight.values(), *(delivery for _, delivery in waiting)]
        session.in_flight, session.released, session.queue = {}, {}, None
        return lost

    def withdraw(self, session: Session, was_delivered: Callable[[Delivery], bool]) -> None:
        """Remove deliveries that a disconnected endpoint received elsewhere; a QoS 2 exchange that may have begun is ended."""
        for packet_id, delivery in list(session.in_flight.items()):
            if session.connection is NO_CONNECTION and was_delivered(delivery):
                del session.in_flight[packet_id]
                self._take_back(session, packet_id, delivery, has_begun=True)
        waiting, session.queue = session.queue.all() if session.queue is not None else [], None
        for packet_id, delivery in waiting:
            self.queued_bytes -= delivery.publication.size
            if packet_id and was_delivered(delivery):
                self._take_back(session, packet_id, delivery, has_begun=delivery.is_duplicate)
            else:
                self._enqueue(session, packet_id, delivery)

    def drop_denied(self, session: Session, may_receive: Callable[[Publication], bool]) -> int:
        """Drop the messages that a session may no longer receive; return how many.

        Messages in flight are only dropped while the endpoint is disconnected: they are not sent again. A QoS 2 exchange that has
        begun goes on with PUBREL, without the message.
        """
        denied: list[tuple[int, Delivery, bool]] = []
        if session.connection is NO_CONNECTION:
            denied += [(number, one, True) for number, one in session.in_flight.items() if not may_receive(one.publication)]
            for packet_id, _, _ in denied:
                del session.in_flight[packet_id]
        waiting = session.queue.all() if session.queue is not None else []
        if not all(may_receive(delivery.publication) for _, delivery in waiting):
            session.queue = None
            for packet_id, delivery in waiting:
                self.queued_bytes -= delivery.publication.size
                if may_receive(delivery.publication):
                    self._enqueue(session, packet_id, delivery)
                else:
                    denied.append((packet_id, delivery, delivery.is_duplicate))
        for packet_id, delivery, has_begun in denied:
            if packet_id:
                self._take_back(session, packet_id, delivery, has_begun=has_begun)
            self._drop(session, delivery, Reason.NOT_ALLOWED)
            if isinstance(delivery.publication.address, ToArea):
                self.active_alerts.undo_notified(session, delivery.publication, self.changes)
        return len(denied)

    def count_denied(self, session: Session, publication: Publication) -> None:
        """Count a message to an endpoint that may not read its topic."""
        self._drop(session, Delivery(publication, 0), Reason.NOT_ALLOWED)

    def _take_back(self, session: Session, packet_id: int, delivery: Delivery, *, has_begun: bool) -> None:
        if has_begun and delivery.qos == _EXACTLY_ONCE:
            session.released[packet_id] = delivery
            if session.is_durable:
                store_release(session, packet_id, delivery, self.changes)
        else:
            self._delete_if_durable(session, packet_id, delivery)

    def delete_stored(self, session: Session) -> None:
        """Delete the stored deliveries of a session that is no longer durable."""
        waiting = session.queue.all() if session.queue is not None else []
        for packet_id, delivery in (*session.in_flight.items(), *session.released.items(), *waiting):
            if packet_id:
                self.store.remove(session, packet_id, delivery, self.changes)

    def disconnect(self, session: Session) -> None:
        """Handle a disconnect: drop queued QoS 0 messages; the others are sent when the endpoint is back."""
        session.is_ready = False
        if session.in_flight:
            for action in self.actions:
                if isinstance(action, Deliver) and session.in_flight.get(action.packet_id) is action.delivery:
                    action.sessions = [one for one in action.sessions if one is not session]
        if session.queue is None:
            return
        waiting, session.queue = session.queue.all(), None
        for packet_id, delivery in waiting:
            self.queued_bytes -= delivery.publication.size
            if packet_id:
                self._enqueue(session, packet_id, delivery)
            else:
                self._drop(session, delivery, Reason.RECEIVER_OFFLINE)

    def _store(self, session: Session, packet_id: int, delivery: Delivery) -> None:
        self.store.add(session, packet_id, delivery, self.changes)

    def _delete_if_durable(self, session: Session, packet_id: int, delivery: Delivery) -> None:
        if session.is_durable:
            self.store.remove(session, packet_id, delivery, self.changes)
