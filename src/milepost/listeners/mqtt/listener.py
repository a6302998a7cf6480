"""The MQTT listener: accepts connections, decodes their packets, and sends their deliveries at the end of each tick.

    on_bytes ─▶ QoS 0 PUBLISH to a cached topic ─▶ into a run                ┐
             └▶ any other packet ─▶ connect, publish, subscribe              ├▶ end of tick ─▶ deliver, run ─▶ send ─▶ close
    tick     ─▶ keepalive timeouts                                           ┘

Invariants:
- a client's fault ends its own connection and no other;
- a connection is in `links` until it is `CLOSED`; its session refers to it only while it is `OPEN`.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic
from traceback import format_exception
from typing import Final, assert_never

from milepost.broker.effects import Revoke
from milepost.broker.session import Link, Session
from milepost.listeners.event_loop import READABLE, WRITABLE
from milepost.listeners.mqtt.connect import deny, on_connect, version_of_connect
from milepost.listeners.mqtt.connection import ENCODING_OWN, ENCODING_V3, ENCODING_V5, MqttConnection, State
from milepost.listeners.mqtt.context import MqttContext
from milepost.listeners.mqtt.publish import PUBACK, on_acknowledge, on_publish, take_acknowledged, take_plain
from milepost.listeners.mqtt.subscribe import on_subscribe, on_unsubscribe
from milepost.listeners.streams import Stream
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.wire.mqtt import (
    Acknowledge,
    Auth,
    Code,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Pong,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    decode,
    frame_at,
)

# Keepalive is a timer wheel: connections are indexed by the second of their next check, and a connection that has sent data since
# then moves to a later second. So a packet costs nothing here, and a tick checks only connections that may be due.


class Keepalive:
    """Connections with a keepalive timeout."""

    def __init__(self) -> None:
        self._by_second: dict[int, set[MqttConnection]] = {}
        self._looked_at = 0

    def expect(self, link: MqttConnection, patience_s: float) -> None:
        """Set the maximum silence of a connection; 0: unlimited."""
        self.forget(link)
        link.patience_s = patience_s
        if patience_s:
            self._put(link)

    def forget(self, link: MqttConnection) -> None:
        """Stop checking a connection."""
        others = self._by_second.get(link.due_at)
        if others is not None:
            others.discard(link)
            if not others:
                del self._by_second[link.due_at]
        link.due_at = 0

    def overdue(self, now_s: float) -> list[MqttConnection]:
        """Return the connections that have timed out, each of them once."""
        found = []
        this = int(now_s)
        first = self._looked_at or min(self._by_second, default=this)
        for second in range(first, this + 1):
            for link in self._by_second.pop(second, ()):
                if link.heard_at + link.patience_s <= now_s:
                    link.due_at = 0
                    found.append(link)
                else:
                    self._put(link)
        self._looked_at = this + 1
        return found

    def _put(self, link: MqttConnection) -> None:
        second = max(int(link.heard_at + link.patience_s) + 1, self._looked_at)
        link.due_at = second
        self._by_second.setdefault(second, set()).add(link)


RESUME_BYTES: Final = 65_536
"""Maximum queued bytes drained to one connection per tick."""

_TRACE_CHARACTERS: Final = 480
"""Maximum characters of a traceback in the log: its end."""

LINGER_S: Final = 2.0
"""Time for the last bytes to reach a client before its connection is dropped."""


CheckPassword = Callable[["MqttListener", MqttConnection, Connect, str, bytes], None]
"""Starts the check of a user's password; `MqttListener.decide` is called with the outcome."""


class MqttListener:
    """All MQTT connections of an edge."""

    encodings: tuple[int, ...] = (ENCODING_V3, ENCODING_V5, ENCODING_OWN)

    def __init__(
        self, context: MqttContext, check_password: CheckPassword | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        self.context = context
        self._broker = context.broker
        self.deliver = context.sender.deliver
        self.run = context.sender.run
        self.release = context.sender.release
        self._clock = clock
        self._check_password = check_password
        self._keepalive = Keepalive()
        self._unfinished: dict[MqttConnection, None] = {}
        self._wanting: dict[MqttConnection, None] = {}
        self.links: set[MqttConnection] = set()
        self.bytes_received = 0
        self.watch: Callable[[MqttConnection], None] = _nothing
        """Called when the event mask of a connection changes."""
        self.forget: Callable[[MqttConnection], None] = _nothing
        """Called before a connection is closed."""

    def enter(self, stream: Stream, address: str) -> MqttConnection:
        """Add a connection; if too many have not finished CONNECT, drop the oldest of them."""
        link = MqttConnection(self, stream, address, self._clock())
        self.links.add(link)
        self._unfinished[link] = None
        self._keepalive.expect(link, self.context.settings.handshake_s_max)
        if len(self._unfinished) > self.context.settings.limits.handshakes_max:
            oldest = next(iter(self._unfinished))
            self._broker.refuse(Refused(Reason.HANDSHAKES_FULL))
            self._drop(oldest)
        return link

    def refuse_connection(self) -> None:
        """Count a connection that was closed on accept because a connection limit is reached."""
        self._broker.refuse(Refused(Reason.CONNECTIONS_FULL))

    def on_readable(self, link: MqttConnection, now: Instant) -> None:
        """Read from a connection, or drop it if the peer has closed it."""
        data = link.stream.read()
        if data is None:
            return
        if not data:
            self._lose(link, now)
        elif link.state < State.CLOSING and (link.session is None or link.session.link is link):  # else: session taken over
            link.heard_at = self._clock()
            self.on_bytes(link, data, now)

    def on_writable(self, link: MqttConnection, now: Instant) -> None:
        """Send pending bytes; once all are sent, finish a closing connection or resume its queue."""
        del now
        is_all = self.context.sender.send_rest(link)
        self._watch(link)
        if is_all:
            if link.state is State.CLOSING:
                link.stream.finish()
            self._wanting[link] = None

    def on_fault(self, link: MqttConnection, fault: Exception, now: Instant) -> None:
        """Count and log an internal error with its traceback, and drop the connection it occurred on."""
        self._broker.count_fault()
        trace = "".join(format_exception(fault))[-_TRACE_CHARACTERS:]
        self.context.log.warning("fault", address=link.address, error=repr(fault), traceback=trace)
        self._lose(link, now)

    def on_bytes(self, link: MqttConnection, data: bytes, now: Instant) -> None:
        """Decode and handle the packets in *data*; hold an incomplete one until its rest arrives."""
        self.bytes_received += len(data)
        link.owed_bytes += len(data)
        if link.parts or link.state is State.CHECKING:
            link.parts.append(data)
            link.need -= len(data)
            if link.need > 0 or link.state is State.CHECKING:
                return
            data = b"".join(link.parts)
            link.parts = []
        link.open_in, link.has_promised = 0, False
        try:
            at = self._read(link, data, now)
        except Malformed as fault:
            self._object(link, data, fault)
            return
        if at < len(data) and link.state < State.CLOSING:
            link.parts = [data[at:]]
            link.need = _missing(data, at)
        if link.session is not None:
            self.context.charge(link, link.session, now)

    def _read(self, link: MqttConnection, data: bytes, now: Instant) -> int:
        """Handle all complete packets; return the offset of the first incomplete one."""
        at, size, size_max = 0, len(data), self.context.settings.packet_bytes_max
        while at < size:
            if (session := link.session) is not None:
                if data[at] == PUBACK:
                    at = take_acknowledged(self._broker, session, data, at)
                    if session.waiting is not None:
                        self._wanting[link] = None
                if at < size:
                    at = take_plain(self.context, link, session, data, at, now)
                if at == size:
                    break
            frame = frame_at(data, at, size_max)
            if frame is None:
                return at
            packet = decode(data[at], data[frame[0] : frame[1]], link.version)
            at = frame[1]
            self._on_packet(link, packet, now)
            if link.state is not State.OPEN:
                break
        return at

    def _object(self, link: MqttConnection, data: bytes, fault: Malformed) -> None:
        """Handle malformed input: a CONNACK for a CONNECT where its version allows it, otherwise a disconnect."""
        version = version_of_connect(data) if link.state is State.NEW and fault.reason is not Reason.PACKET_TOO_LARGE else None
        is_answered = version is Version.V5 or fault.reason in (Reason.PROTOCOL_UNSUPPORTED, Reason.CLIENT_ID)
        if version is not None and is_answered:
            link.version = version
            deny(self.context, link, fault.refused)  # [MQTT-3.1.4-1], [MQTT-3.1.2-2]
        else:
            self.context.refuse(link, fault.refused)

    def _on_packet(self, link: MqttConnection, packet: Packet, now: Instant) -> None:
        session = link.session
        if session is None:
            self._on_first_packet(link, packet, now)
            return
        match packet:
            case Publish():
                link.owed_messages += 1
                on_publish(self.context, link, session, packet, now)
            case Acknowledge():
                on_acknowledge(self.context, link, session, packet)
                if session.waiting is not None:
                    self._wanting[link] = None
            case Subscribe():
                on_subscribe(self.context, link, session, packet, now)
            case Unsubscribe():
                on_unsubscribe(self.context, link, session, packet)
            case Ping():
                self.context.reply(link, Pong())  # [MQTT-3.12.4-1]
            case Disconnect():
                self._on_disconnect(link, session, packet, now)
            case Connect():  # [MQTT-3.1.0-2]
                self.context.refuse(link, Refused(Reason.PROTOCOL_ERROR, "a second CONNECT"))
            case Auth():  # [MQTT-4.12.0-6]
                self.context.refuse(link, Refused(Reason.PROTOCOL_ERROR, "AUTH without an authentication method in CONNECT"))
            case Connack() | Suback() | Unsuback() | Pong():
                self.context.refuse(link, Refused(Reason.PROTOCOL_ERROR, f"{type(packet).__name__} from a client"))
            case _:
                assert_never(packet)

    def _on_first_packet(self, link: MqttConnection, packet: Packet, now: Instant) -> None:
        if not isinstance(packet, Connect):  # [MQTT-3.1.0-1]
            self.context.refuse(link, Refused(Reason.PROTOCOL_ERROR, "the first packet is not CONNECT"))
            return
        on_connect(self.context, link, packet, partial(self._begin_check, link, packet), now)
        self._watch(link)
        self._finish_handshake(link)

    def _begin_check(self, link: MqttConnection, packet: Connect, user: str, password: bytes) -> None:
        assert self._check_password is not None, "rules that need a password come with somebody who checks it"
        self._check_password(self, link, packet, user, password)

    def decide(self, link: MqttConnection, decision: Callable[[], None], now: Instant) -> None:
        """Apply the decision on a waiting CONNECT, then handle the packets the client sent meanwhile."""
        if link.state is not State.CHECKING:
            return
        link.state = State.NEW
        decision()
        self._watch(link)
        self._finish_handshake(link)
        if link.state is State.OPEN and link.parts:
            data, link.parts = b"".join(link.parts), []
            self.on_bytes(link, data, now)

    def _finish_handshake(self, link: MqttConnection) -> None:
        if link.state is State.OPEN:
            del self._unfinished[link]
            self._keepalive.expect(link, link.patience_s)
            self._wanting[link] = None

    def _on_disconnect(self, link: MqttConnection, session: Session, packet: Disconnect, now: Instant) -> None:
        """Handle DISCONNECT. [MQTT-3.14.4-1] to [MQTT-3.14.4-3]"""
        expiry_s = packet.properties.session_expiry_s
        if expiry_s and not session.expiry_ns:  # [MQTT-3.14.2-2]
            self.context.refuse(link, Refused(Reason.PROTOCOL_ERROR, "a session that was to end with its connection"))
            return
        is_willed = link.version is Version.V5 and packet.code != Code.SUCCESS
        expiry_ns = None if expiry_s is None else expiry_s * SECOND_NS
        self._broker.disconnect(session, now, is_willed=is_willed, expiry_ns=expiry_ns)
        self.context.log.seldom("session closed", client=session.name, address=link.address)
        link.state = State.CLOSING
        self.context.closing.append(link)

    def tick(self, now: Instant) -> None:
        """Disconnect the connections whose keepalive has timed out."""
        del now
        for link in self._keepalive.overdue(self._clock()):
            if link.state is State.OPEN:
                self.context.refuse(link, Refused(Reason.KEEP_ALIVE_TIMEOUT))  # [MQTT-3.1.2-22]
            else:
                if link.state < State.CLOSING:
                    self._broker.refuse(Refused(Reason.KEEP_ALIVE_TIMEOUT))
                self._drop(link)

    def expel(self, link: Link, why: Refused) -> None:
        """Disconnect a client with a reason, if *link* belongs to this listener."""
        if isinstance(link, MqttConnection):
            self.context.refuse(link, why)

    def redirect(self, link: Link, address: str) -> None:
        """Redirect a client to another edge, if *link* belongs to this listener."""
        if isinstance(link, MqttConnection):
            self.context.send_on(link, address)

    def welcome(self, name: EndpointId, why: Refused | None, now: Instant) -> None:
        """Finish the CONNECT of a client that waited for its session, or deny it if *why* is given."""
        waiting = self.context.arriving.pop(name, None)
        if waiting is not None:
            link = waiting.link
            decision = partial(waiting.enter, now) if why is None else partial(deny, self.context, link, why)
            self.decide(link, decision, now)

    def take_back(self, why: Refused) -> None:
        """Discard the replies that depend on changes that could not be stored, and disconnect their clients."""
        for link in self.context.sender.unsay():
            self.context.end(link, Code.IMPLEMENTATION_SPECIFIC_ERROR, why)

    def let_go(self, session: Session, why: Refused) -> None:
        """Disconnect a session whose delivery guarantee cannot be met."""
        if isinstance(session.link, MqttConnection):
            self.context.end(session.link, Code.IMPLEMENTATION_SPECIFIC_ERROR, why)

    def resume(self, now: Instant) -> None:
        """Drain the queues of the connections that accept more."""
        for link in list(self._wanting):
            self._resume(link, now)

    def send(self, now: Instant) -> bool:
        """Write all output and close finished connections; return whether more can be sent at once."""
        self._send()
        closing, self.context.closing = self.context.closing, []
        for link in closing:
            self._close(link, now)
        if closing:
            self._send()
        return bool(self._wanting)

    def _send(self) -> None:
        for link in self.context.sender.send_all():
            self._watch(link)

    def _resume(self, link: MqttConnection, now: Instant) -> None:
        session = link.session
        if session is None or session.link is not link or link.unsent or not self._broker.drain(session, now, RESUME_BYTES):
            del self._wanting[link]

    def _watch(self, link: MqttConnection) -> None:
        """Watch a connection with unsent bytes for writability, and do not read it while these exceed the limit.

        A client whose CONNECT is still being decided is not read either.
        """
        is_stuck = link.unsent_size > 0 or link.stream.has_unsent
        is_full = link.unsent_size > self.context.settings.limits.unsent_bytes_max or link.state is State.CHECKING
        mask = (0 if is_full else READABLE) | (WRITABLE if is_stuck else 0)
        if mask != link.mask and link.state is not State.CLOSED:
            link.mask = mask
            self.watch(link)

    def _close(self, link: MqttConnection, now: Instant) -> None:
        """Detach the session, send the last packet, and linger until the client has received it."""
        self._detach(link, now)
        if link.state is State.CLOSED:
            return
        if link.farewell:
            self.context.sender.put(link, link.farewell)
            self._send()
        link.heard_at = self._clock()
        self._keepalive.expect(link, LINGER_S)
        if not link.unsent:
            link.stream.finish()

    def _lose(self, link: MqttConnection, now: Instant) -> None:
        """Detach the session and drop the connection."""
        self._detach(link, now)
        self._drop(link)

    def _detach(self, link: MqttConnection, now: Instant) -> None:
        session, link.session = link.session, None
        self._unfinished.pop(link, None)
        if session is not None and session.link is link:
            self._broker.disconnect(session, now, is_willed=True)
            self.context.log.seldom("session lost", client=session.name, address=link.address)

    def _drop(self, link: MqttConnection) -> None:
        if link.state is State.CLOSED:
            return
        link.state = State.CLOSED
        self._unfinished.pop(link, None)
        self._wanting.pop(link, None)
        self._keepalive.forget(link)
        self.links.discard(link)
        self.forget(link)
        link.stream.close()

    def revoke(self, action: Revoke) -> None:
        """Log a subscription that new rules have ended: MQTT has no packet to notify the client."""
        self.context.log.seldom("subscription ended", client=action.session.name, name=action.name, reason=action.why.reason.name)

    def shut(self) -> None:
        """Disconnect all clients because the edge stops; durable sessions remain stored."""
        for link in list(self.links):
            self.context.end(link, Code.SERVER_SHUTTING_DOWN, Refused(Reason.SHUTTING_DOWN))


def _nothing(_link: MqttConnection) -> None:
    """Do nothing: no event loop is attached."""


def _missing(data: bytes, at: int) -> int:
    """Return how many bytes of the packet at *at* are missing, as far as its length field has arrived."""
    size = shift = 0
    for count, byte in enumerate(data[at + 1 : at + 5], 1):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return at + 1 + count + size - len(data)
    return 1
