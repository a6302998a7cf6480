"""Sending: the actions of a turn, put into bytes and handed to connections, each connection once.

What must hold:
- a message to many is put into bytes once for each dialect;
- a connection that does not take all it is handed is not clear: what comes after waits in its session's queue, by class and
  deadline, and not here;
- what a connection has not taken is limited; one that takes nothing and still asks for answers is not read any more.
"""

from milepost.doors.mqtt.link import MqttLink, State
from milepost.doors.mqtt.outgoing import chunk_for, is_shared_form, packet_for, packet_of, parcel_of
from milepost.edge.actions import Deliver, Release, Run
from milepost.edge.corridor import Corridor
from milepost.edge.parcels import Delivery
from milepost.edge.plans import Fan, Group
from milepost.edge.sessions import NOWHERE, Link, Session
from milepost.model.instants import Instant
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Acknowledge, Kind, encode


class Sender:
    """What is to be sent in this turn."""

    def __init__(self, corridor: Corridor, unsent_max: int) -> None:
        self._corridor = corridor
        self._unsent_max = unsent_max
        self._dirty: list[Link] = []
        self.bytes_sent = 0

    def put(self, link: Link, data: bytes) -> None:
        """Send something to one connection, after what it is to get already."""
        if not link.out:
            self._dirty.append(link)
        link.out.append(data)

    def unsay(self) -> list[MqttLink]:
        """Take back answers that rest on what was to be kept; gives the connections that were to get them."""
        taken = [link for link in self._dirty if isinstance(link, MqttLink) and _rests_on_kept(link)]
        for link in taken:
            link.out.clear()
        self._dirty = [link for link in self._dirty if link.out]
        return taken

    def release(self, action: Release) -> None:
        """Go on with the exchange of quality 2."""
        link = action.session.link
        if isinstance(link, MqttLink):
            self.put(link, encode(Acknowledge(Kind.PUBREL, action.number), link.version))  # [MQTT-4.3.3-4]

    def run(self, run: Run, now: Instant) -> None:
        """Messages as they came: the path on which nearly everything goes."""
        corridor, dirty = self._corridor, self._dirty
        packets = run.packets
        held: list[Group] = []
        corridor.counts.accepted += len(packets)
        for group in run.fan.groups:
            if not is_shared_form(group.dialect):
                held.append(group)
                continue
            chunk = chunk_for(group, packets, run.dialect)
            busy: list[Session] = []
            for session in group.sessions:
                if session.is_clear:
                    out = session.link.out
                    if not out:
                        dirty.append(session.link)
                    out.append(chunk)
                else:
                    busy.append(session)
            corridor.counts.delivered += (len(group.sessions) - len(busy)) * len(packets)
            if busy:
                held.append(Group((group.dialect, 0, group.labels, False), busy))
        if held:
            self._hand_over(run, Fan(tuple(held)), now)

    def _hand_over(self, run: Run, fan: Fan, now: Instant) -> None:
        """Some takers cannot be sent the bytes as they are: they get the messages one by one, or these wait for them."""
        for packet, origin in zip(run.packets, run.origins, strict=True):
            self._corridor.deliveries.hand_out(parcel_of(packet, run.dialect, origin, run.priority, now), fan)

    def deliver(self, action: Deliver, now: Instant) -> None:
        """A message for sessions of one dialect."""
        delivery, number = action.delivery, action.number
        dialect = action.dialect
        if not is_shared_form(dialect):
            for session in action.sessions:
                self._deliver_own(session, delivery, number, now, is_again=action.is_again)
            return
        packet = packet_of(delivery, number, dialect, now, is_again=action.is_again)
        dirty = self._dirty
        for session in action.sessions:
            link = session.link
            if link is NOWHERE or session.dialect != dialect:  # it left in this turn, or came back as another
                continue
            if not link.out:
                dirty.append(link)
            link.out.append(packet)

    def _deliver_own(self, session: Session, delivery: Delivery, number: int, now: Instant, *, is_again: bool) -> None:
        link = session.link
        if not isinstance(link, MqttLink):
            return
        packet = packet_for(link, delivery, number, now, is_again=is_again)
        if packet is not None:
            self.put(link, packet)
            return
        # As if it had been sent and acknowledged. [MQTT-3.1.2-25]
        self._corridor.deliveries.lose(session, number, delivery, Reason.PACKET_OVER_RECEIVER_LIMIT)

    def send_all(self) -> list[MqttLink]:
        """Hand everything to its connection; gives those that could not take all of it."""
        stuck = []
        dirty, self._dirty = self._dirty, []
        for link in dirty:
            out = link.out
            if not isinstance(link, MqttLink) or link.state is State.CLOSED:
                out.clear()
                continue
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self.bytes_sent += len(data)
            if link.unsent:
                link.unsent.append(memoryview(data))
                link.unsent_size += len(data)
            else:
                try:
                    sent = link.stream.write(data)
                except (BlockingIOError, InterruptedError):
                    sent = 0
                except OSError:  # it is over, which will be noticed when it is read
                    continue
                if sent == len(data) and not link.stream.has_unsent:
                    continue
                if sent < len(data):
                    link.unsent.append(memoryview(data)[sent:])
                    link.unsent_size = len(data) - sent
            self._mark(link)
            stuck.append(link)
        return stuck

    def _mark(self, link: MqttLink) -> None:
        if link.unsent_size > self._unsent_max and link.session is not None:
            link.session.is_clear = False

    def send_rest(self, link: MqttLink) -> bool:
        """A connection takes more: send what it did not take before; tells whether that is all."""
        try:
            return self._send_rest(link)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            link.unsent, link.unsent_size = [], 0
            return True

    def _send_rest(self, link: MqttLink) -> bool:
        link.stream.flush()
        if link.stream.has_unsent:
            return False
        while link.unsent:
            view = link.unsent[0]
            sent = link.stream.write(view)
            link.unsent_size -= sent
            if sent < len(view):
                link.unsent[0] = view[sent:]
                return False
            del link.unsent[0]
        session = link.session
        if session is not None and session.link is link and (session.waiting is None or not session.waiting.has_plain):
            session.is_clear = True
        return not link.stream.has_unsent


def _rests_on_kept(link: MqttLink) -> bool:
    """Whether what a connection is told may say that something is safe: all of a kept session's answers, and confirmations."""
    return link.has_promised or (link.session is not None and link.session.is_kept)
