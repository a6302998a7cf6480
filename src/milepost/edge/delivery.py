"""Delivery: what goes to whom now, what waits, what is given up, and what is remembered until it has arrived.

For each taker of a message, by the quality it gets it with:

| taker                            | quality 0          | quality 1 and 2                    |
|----------------------------------|--------------------|------------------------------------|
| takes more, nothing waits        | sent               | sent, while its window has room    |
| connected, but busy or window full | waits            | waits                              |
| away                             | dropped, counted   | waits if the session is kept       |

What must hold:
- what has a quality above 0 has a number from the moment it is queued: the same when it is sent again, also by another process;
- what waits is limited in messages and bytes for each session, and in bytes for all; the oldest of the lowest class goes first;
- whatever is given up is counted under its reason;
- for a kept session every step is written to `changes` in the turn in which it is made.
"""

from collections.abc import Callable
from typing import Final

from milepost.edge.actions import Action, Deliver, Expel, Release
from milepost.edge.counts import Counts
from milepost.edge.heeding import note_acknowledged, note_dropped, note_matched, note_sent, take_heed
from milepost.edge.keeping import Changes
from milepost.edge.lanes import Lanes, Waiting
from milepost.edge.limits import Limits, SlowPolicy
from milepost.edge.parcels import Delivery, Heed, Parcel
from milepost.edge.plans import Fan, Group
from milepost.edge.reaching import Reaching
from milepost.edge.sessions import NOWHERE, NUMBERS_MAX, Session
from milepost.edge.shelf import Shelf, release
from milepost.edge.standing import Standing
from milepost.model.addresses import ToArea, ToTold
from milepost.model.instants import Instant
from milepost.model.reasons import Reason, Refused

_EXACTLY_ONCE: Final = 2

_STEPS_MAX: Final = 1_000
"""So many numbers that became free in this turn are passed over in search of another."""


class Deliveries:
    """Everything that is on its way out of an edge."""

    def __init__(self, limits: Limits, counts: Counts, changes: Changes) -> None:
        self._limits = limits
        self._counts = counts
        self.changes = changes
        """What this turn wants kept; whoever writes it puts an empty one here."""
        self.actions: list[Action] = []
        """What this turn wants done; whoever does it takes them away."""
        self.waiting_bytes = 0
        """Bytes of all that waits for anybody."""
        self.heed: Heed | None = None
        """Told what becomes of messages to areas."""
        self.standing = Standing(counts)
        self.reaching: Reaching | None = None
        """Nothing: it is not known where anybody is."""
        self._number = 0
        self.shelf = Shelf()

    def hand_out(self, parcel: Parcel, fan: Fan) -> None:
        """Give a message to all its takers."""
        if isinstance(parcel.address, ToArea | ToTold):
            takers = [session for group in fan.groups for session in group.sessions]
            self.standing.handed_out(parcel, takers, self.changes)
            take_heed(self.heed, parcel)
            note_matched(parcel, takers)
        for group in fan.groups:
            delivery = Delivery(
                parcel, min(parcel.qos, group.qos), group.labels, is_from_store=parcel.is_retained and group.is_retain_shown
            )
            if delivery.qos:
                self._hand_out_numbered(delivery, group)
            else:
                self._hand_out_plain(delivery, group.sessions)

    def hand_one(self, delivery: Delivery, session: Session) -> None:
        """Give a message to one taker."""
        self.standing.handed_one(delivery.parcel, session, self.changes)
        take_heed(self.heed, delivery.parcel)
        note_matched(delivery.parcel, [session])
        if delivery.qos:
            group = Group((session.dialect, delivery.qos, delivery.labels, False), [session])
            self._hand_out_numbered(delivery, group)
        else:
            self._hand_out_plain(delivery, [session])

    def _hand_out_plain(self, delivery: Delivery, sessions: list[Session]) -> None:
        ready = [session for session in sessions if session.is_clear]
        if ready:
            self._counts.delivered += len(ready)
            self.actions.append(Deliver(delivery, 0, ready))
            if delivery.parcel.heed is not None:
                note_sent(delivery, ready)
        if len(ready) < len(sessions):
            for session in sessions:
                if not session.is_clear:
                    self.hold(session, delivery)

    def _hand_out_numbered(self, delivery: Delivery, group: Group) -> None:
        """All that can take it now get it under one number, so that they can be sent the same bytes."""
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
            if delivery.parcel.heed is not None:
                note_sent(delivery, ready)

    def _send_apart(self, session: Session, number: int, delivery: Delivery) -> None:
        """The number that others get it under may be in use with this one."""
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
        """Whether a number became free in this turn: what is kept under it now would take the other's place in the order."""
        return (session.number, number) in self.changes.queued

    def hold(self, session: Session, delivery: Delivery) -> None:
        """Let what needs no acknowledgement wait for somebody who is connected but busy."""
        if session.link is NOWHERE:
            self._drop(session, delivery, Reason.RECEIVER_AWAY)
        else:
            self._put(session, 0, delivery)

    def restore(self, session: Session, number: int, delivery: Delivery, *, is_released: bool) -> None:
        """Take up again what was kept for a session; its message knows of all its holders already."""
        take_heed(self.heed, delivery.parcel)
        if is_released:
            session.released[number] = delivery
        else:
            self._put(session, number, delivery)

    def adopt(self, session: Session, number: int, delivery: Delivery, *, is_released: bool) -> None:
        """Take over what was on its way to a session at another edge, under the number it had there."""
        if session.is_kept:
            self._keep(session, number, delivery)
            if is_released:
                release(session, number, delivery, self.changes)
        self.restore(session, number, delivery, is_released=is_released)

    def add(self, session: Session, number: int, delivery: Delivery, *, is_released: bool) -> None:
        """Take over what was on its way to another session of the endpoint, under its number if that is free here."""
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
            take_heed(self.heed, delivery.parcel)
            self._send_apart(session, number, delivery)

    def _drop(self, session: Session, delivery: Delivery, reason: Reason) -> None:
        self._counts.dropped[reason] += 1
        note_dropped(session, delivery, reason)

    def _put(self, session: Session, number: int, delivery: Delivery) -> None:
        lanes = session.waiting
        if lanes is None:
            lanes = session.waiting = Lanes()
        lanes.put(number, delivery)
        if not number:
            session.is_clear = False
        self.waiting_bytes += delivery.parcel.size
        limits = self._limits
        while (
            len(lanes) > limits.queue_messages_max
            or lanes.size > limits.queue_bytes_max
            or (self.waiting_bytes > limits.queues_bytes_max and lanes)
        ):
            self._give_up(session, lanes)

    def _give_up(self, session: Session, lanes: Lanes) -> None:
        number, delivery = lanes.give_up()
        self._taken(session, number, delivery)
        self._drop(session, delivery, Reason.QUEUE_FULL)
        if session.link is not NOWHERE and self._limits.when_slow is SlowPolicy.DISCONNECT:
            self.actions.append(Expel(session.link, Refused(Reason.QUEUE_FULL, f"{len(lanes)} messages wait")))

    def _taken(self, session: Session, number: int, delivery: Delivery) -> None:
        """What waited is given up."""
        self.waiting_bytes -= delivery.parcel.size
        if number and session.is_kept:
            self.shelf.forget(session, number, delivery, self.changes)

    def resume(self, session: Session, now: Instant, size_max: int) -> int:
        """Send what waits for a session that takes more, the most urgent first; gives the bytes of it, 0 when nothing can go."""
        lanes = session.waiting
        size = 0
        if lanes is None or session.link is NOWHERE:
            session.is_clear = session.link is not NOWHERE
            return 0
        if lanes.has_roads:
            self._sift(session, lanes)
        while size < size_max and (taken := lanes.take(has_window=session.has_window)) is not None:
            number, delivery = taken
            if delivery.parcel.valid_until < now:
                self._taken(session, number, delivery)
                self._drop(session, delivery, Reason.EXPIRED)
                continue
            self.waiting_bytes -= delivery.parcel.size
            if number:
                session.in_flight[number] = delivery
            self._send(session, number, delivery)
            size += delivery.parcel.size + 1
        session.is_clear = not lanes.has_plain
        if not lanes:
            session.waiting = None
        return size

    def _sift(self, session: Session, lanes: Lanes) -> None:
        """Give up what an endpoint has passed, or what something newer takes the place of."""
        for number, delivery, reason in self.reaching.sift(session, lanes) if self.reaching is not None else ():
            self._taken(session, number, delivery)
            self._drop(session, delivery, reason)
            if reason is Reason.PASSED:
                self.standing.untell(session, delivery.parcel, self.changes)

    def resend(self, session: Session, now: Instant) -> None:
        """Begin again with somebody who came back: first what was in flight, in the order it was sent. [MQTT-4.4.0-1]"""
        for number in session.released:
            self.actions.append(Release(session, number))
        room = session.window - len(session.released)
        back: list[Waiting] = []
        for number, delivery in list(session.in_flight.items()):
            if delivery.parcel.valid_until < now:
                del session.in_flight[number]
                self._drop_kept(session, number, delivery)
                self._drop(session, delivery, Reason.EXPIRED)
            elif room > 0:
                room -= 1
                self.actions.append(Deliver(delivery, number, [session], is_again=True))
            else:  # it takes fewer at a time than before. [MQTT-3.3.4-9]
                del session.in_flight[number]
                self._counts.delivered -= 1
                again = Delivery(
                    delivery.parcel, delivery.qos, delivery.labels, is_from_store=delivery.is_from_store, is_again=True
                )
                back.append((number, again))
        if back:
            self._put_first(session, back)

    def _put_first(self, session: Session, back: list[Waiting]) -> None:
        """Let what was in flight wait before what waits already: it came before."""
        waiting = session.waiting.all() if session.waiting is not None else []
        self.waiting_bytes -= sum(delivery.parcel.size for _, delivery in waiting)
        session.waiting = None
        for number, delivery in (*back, *waiting):
            self._put(session, number, delivery)

    def acknowledge(self, session: Session, number: int) -> bool:
        """A receiver has what it was sent at quality 1, or will not have it; tells whether the number meant anything."""
        delivery = session.in_flight.pop(number, None)
        if delivery is None:
            return False
        if session.is_kept:
            self.shelf.forget(session, number, delivery, self.changes)
        if session.is_heeded:
            note_acknowledged(session, delivery)
        return True

    def lose(self, session: Session, number: int, delivery: Delivery, reason: Reason) -> None:
        """A door could not send what it was to send: as if it had been sent and acknowledged, and dropped."""
        self._counts.delivered -= 1
        self._drop(session, delivery, reason)
        if session.in_flight.pop(number, None) is not None:
            self._drop_kept(session, number, delivery)

    def release(self, session: Session, number: int) -> bool:
        """A receiver has what it was sent at quality 2; the exchange is still to be ended."""
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
        """An exchange of quality 2 is over."""
        delivery = session.released.pop(number, None)
        if delivery is None:
            return False
        self._drop_kept(session, number, delivery)
        return True

    def end(self, session: Session) -> None:
        """The session is over; what it did not get is counted."""
        for delivery in self.let_go(session):
            self._drop(session, delivery, Reason.SESSION_EXPIRED)

    def let_go(self, session: Session) -> list[Delivery]:
        """Forget all that is on its way to a session; gives what it did not get."""
        for number, delivery in (*session.in_flight.items(), *session.released.items()):
            self._drop_kept(session, number, delivery)
        waiting = session.waiting.all() if session.waiting is not None else []
        for number, delivery in waiting:
            self._taken(session, number, delivery)
        lost = [*session.in_flight.values(), *(delivery for _, delivery in waiting)]
        session.in_flight, session.released, session.waiting = {}, {}, None
        return lost

    def withdraw(self, session: Session, is_had: Callable[[Delivery], bool]) -> None:
        """Take back from who is away what it has had elsewhere; an exchange of quality 2 that may have begun is only ended."""
        for number, delivery in list(session.in_flight.items()):
            if session.link is NOWHERE and is_had(delivery):
                del session.in_flight[number]
                self._take_back(session, number, delivery, has_begun=True)
        waiting, session.waiting = session.waiting.all() if session.waiting is not None else [], None
        for number, delivery in waiting:
            self.waiting_bytes -= delivery.parcel.size
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
        """The session will not outlive its connection any more."""
        waiting = session.waiting.all() if session.waiting is not None else []
        for number, delivery in (*session.in_flight.items(), *session.released.items(), *waiting):
            if number:
                self.shelf.forget(session, number, delivery, self.changes)

    def leave(self, session: Session) -> None:
        """The endpoint is away: what needs no acknowledgement waits no longer, the rest is sent when it is back."""
        session.is_clear = False
        if session.in_flight:
            for action in self.actions:
                if isinstance(action, Deliver) and session.in_flight.get(action.number) is action.delivery:
                    action.sessions = [one for one in action.sessions if one is not session]
        if session.waiting is None:
            return
        waiting, session.waiting = session.waiting.all(), None
        for number, delivery in waiting:
            self.waiting_bytes -= delivery.parcel.size
            if number:
                self._put(session, number, delivery)
            else:
                self._drop(session, delivery, Reason.RECEIVER_AWAY)

    def _keep(self, session: Session, number: int, delivery: Delivery) -> None:
        self.shelf.keep(session, number, delivery, self.changes)

    def _drop_kept(self, session: Session, number: int, delivery: Delivery) -> None:
        if session.is_kept:
            self.shelf.forget(session, number, delivery, self.changes)
