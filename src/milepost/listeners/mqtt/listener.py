"""The MQTT listener: accepts connections, decodes their packets, and sends their deliveries at the end of each tick.

    on_bytes ─▶ QoS 0 PUBLISH to a cached topic ─▶ into a run                ┐
             └▶ any other packet ─▶ connect, publish, subscribe              ├▶ end of tick ─▶ deliver, run ─▶ send ─▶ close
    on_timer ─▶ keepalive timeouts                                           ┘

Invariants:
- a client's fault ends its own connection and no other;
- a connection is in `connections` until it is `CLOSED`; its session refers to it only while it is `OPEN`.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
from time import monotonic
from traceback import format_exception
from typing import Final, assert_never

from milepost.broker.effects import Revoke
from milepost.broker.session import Connection, Session
from milepost.listeners.event_loop import READABLE, WRITABLE
from milepost.listeners.mqtt.connect import deny, on_connect, version_of_connect
from milepost.listeners.mqtt.connection import ENCODING_OWN, ENCODING_V3, ENCODING_V5, MqttConnection, MqttConnectionState
from milepost.listeners.mqtt.context import MqttContext
from milepost.listeners.mqtt.publish import PUBACK, acknowledge_fast_path, on_acknowledge, on_publish, publish_fast_path
from milepost.listeners.mqtt.subscribe import on_subscribe, on_unsubscribe
from milepost.listeners.streams import ServerStream
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
        self._checked_until = 0

    def set_timeout(self, connection: MqttConnection, timeout_s: float) -> None:
        """Set the maximum silence of a connection; 0: unlimited."""
        self.forget(connection)
        connection.timeout_s = timeout_s
        if timeout_s:
            self._put(connection)

    def forget(self, connection: MqttConnection) -> None:
        """Stop checking a connection."""
        others = self._by_second.get(connection.check_at)
        if others is not None:
            others.discard(connection)
            if not others:
                del self._by_second[connection.check_at]
        connection.check_at = 0

    def overdue(self, now_s: float) -> list[MqttConnection]:
        """Return the connections that have timed out, each of them once."""
        found = []
        this = int(now_s)
        first = self._checked_until or min(self._by_second, default=this)
        for second in range(first, this + 1):
            for connection in self._by_second.pop(second, ()):
                if connection.received_at + connection.timeout_s <= now_s:
                    connection.check_at = 0
                    found.append(connection)
                else:
                    self._put(connection)
        self._checked_until = this + 1
        return found

    def _put(self, connection: MqttConnection) -> None:
        second = max(int(connection.received_at + connection.timeout_s) + 1, self._checked_until)
        connection.check_at = second
        self._by_second.setdefault(second, set()).add(connection)


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
        self._connecting: dict[MqttConnection, None] = {}
        self._drainable: dict[MqttConnection, None] = {}
        self.connections: set[MqttConnection] = set()
        self.bytes_received = 0
        self.watch: Callable[[MqttConnection], None] = _do_nothing
        """Called when the event mask of a connection changes."""
        self.forget: Callable[[MqttConnection], None] = _do_nothing
        """Called before a connection is closed."""

    def add_connection(self, stream: ServerStream, address: str) -> MqttConnection:
        """Add a connection; if too many have not finished CONNECT, drop the oldest of them."""
        connection = MqttConnection(self, stream, address, self._clock())
        self.connections.add(connection)
        self._connecting[connection] = None
        self._keepalive.set_timeout(connection, self.context.settings.handshake_s_max)
        if len(self._connecting) > self.context.settings.limits.handshakes_max:
            oldest = next(iter(self._connecting))
            self._broker.refuse(Refused(Reason.HANDSHAKES_FULL))
            self._drop(oldest)
        return connection

    def refuse_connection(self) -> None:
        """Count a connection that was closed on accept because a connection limit is reached."""
        self._broker.refuse(Refused(Reason.CONNECTIONS_FULL))

    def on_readable(self, connection: MqttConnection, now: Instant) -> None:
        """Read from a connection, or drop it if the peer has closed it."""
        data = connection.stream.read()
        if data is None:
            return
        if not data:
            self._connection_lost(connection, now)
        elif connection.state < MqttConnectionState.CLOSING and (
            connection.session is None or connection.session.connection is connection
        ):  # else: session taken over
            connection.received_at = self._clock()
            self.on_bytes(connection, data, now)

    def on_writable(self, connection: MqttConnection, now: Instant) -> None:
        """Send pending bytes; once all are sent, finish a closing connection or resume its queue."""
        del now
        is_all = self.context.sender.send_rest(connection)
        self._watch(connection)
        if is_all:
            if connection.state is MqttConnectionState.CLOSING:
                connection.stream.finish()
            self._drainable[connection] = None

    def on_fault(self, connection: MqttConnection, fault: Exception, now: Instant) -> None:
        """Count and log an internal error with its traceback, and drop the connection it occurred on."""
        self._broker.count_fault()
        trace = "".join(format_exception(fault))[-_TRACE_CHARACTERS:]
        self.context.log.warning("fault", address=connection.address, error=repr(fault), traceback=trace)
        self._connection_lost(connection, now)

    def on_bytes(self, connection: MqttConnection, data: bytes, now: Instant) -> None:
        """Decode and handle the packets in *data*; hold an incomplete one until its rest arrives."""
        self.bytes_received += len(data)
        connection.uncharged_bytes += len(data)
        if connection.partial_packet or connection.state is MqttConnectionState.CHECKING:
            connection.partial_packet.append(data)
            connection.missing_bytes -= len(data)
            if connection.missing_bytes > 0 or connection.state is MqttConnectionState.CHECKING:
                return
            data = b"".join(connection.partial_packet)
            connection.partial_packet = []
        connection.unacknowledged_in, connection.awaits_storage = 0, False
        try:
            at = self._read(connection, data, now)
        except Malformed as fault:
            self._reject_malformed(connection, data, fault)
            return
        if at < len(data) and connection.state < MqttConnectionState.CLOSING:
            connection.partial_packet = [data[at:]]
            connection.missing_bytes = _missing(data, at)
        if connection.session is not None:
            self.context.charge(connection, connection.session, now)

    def _read(self, connection: MqttConnection, data: bytes, now: Instant) -> int:
        """Handle all complete packets; return the offset of the first incomplete one."""
        at, size, size_max = 0, len(data), self.context.settings.packet_bytes_max
        while at < size:
            if (session := connection.session) is not None:
                if data[at] == PUBACK:
                    at = acknowledge_fast_path(self._broker, session, data, at)
                    if session.queue is not None:
                        self._drainable[connection] = None
                if at < size:
                    at = publish_fast_path(self.context, connection, session, data, at, now)
                if at == size:
                    break
            frame = frame_at(data, at, size_max)
            if frame is None:
                return at
            packet = decode(data[at], data[frame[0] : frame[1]], connection.version)
            at = frame[1]
            self._on_packet(connection, packet, now)
            if connection.state is not MqttConnectionState.OPEN:
                break
        return at

    def _reject_malformed(self, connection: MqttConnection, data: bytes, fault: Malformed) -> None:
        """Handle malformed input: a CONNACK for a CONNECT where its version allows it, otherwise a disconnect."""
        version = (
            version_of_connect(data)
            if connection.state is MqttConnectionState.NEW and fault.reason is not Reason.PACKET_TOO_LARGE
            else None
        )
        is_answered = version is Version.V5 or fault.reason in (Reason.PROTOCOL_UNSUPPORTED, Reason.CLIENT_ID)
        if version is not None and is_answered:
            connection.version = version
            deny(self.context, connection, fault.refused)  # [MQTT-3.1.4-1], [MQTT-3.1.2-2]
        else:
            self.context.refuse(connection, fault.refused)

    def _on_packet(self, connection: MqttConnection, packet: Packet, now: Instant) -> None:
        session = connection.session
        if session is None:
            self._on_first_packet(connection, packet, now)
            return
        match packet:
            case Publish():
                connection.uncharged_messages += 1
                on_publish(self.context, connection, session, packet, now)
            case Acknowledge():
                on_acknowledge(self.context, connection, session, packet)
                if session.queue is not None:
                    self._drainable[connection] = None
            case Subscribe():
                on_subscribe(self.context, connection, session, packet, now)
            case Unsubscribe():
                on_unsubscribe(self.context, connection, session, packet)
            case Ping():
                self.context.reply(connection, Pong())  # [MQTT-3.12.4-1]
            case Disconnect():
                self._on_disconnect(connection, session, packet, now)
            case Connect():  # [MQTT-3.1.0-2]
                self.context.refuse(connection, Refused(Reason.PROTOCOL_ERROR, "a second CONNECT"))
            case Auth():  # [MQTT-4.12.0-6]
                self.context.refuse(
                    connection, Refused(Reason.PROTOCOL_ERROR, "AUTH without an authentication method in CONNECT")
                )
            case Connack() | Suback() | Unsuback() | Pong():
                self.context.refuse(connection, Refused(Reason.PROTOCOL_ERROR, f"{type(packet).__name__} from a client"))
            case _:
                assert_never(packet)

    def _on_first_packet(self, connection: MqttConnection, packet: Packet, now: Instant) -> None:
        if not isinstance(packet, Connect):  # [MQTT-3.1.0-1]
            self.context.refuse(connection, Refused(Reason.PROTOCOL_ERROR, "the first packet is not CONNECT"))
            return
        on_connect(self.context, connection, packet, partial(self._begin_check, connection, packet), now)
        self._watch(connection)
        self._finish_handshake(connection)

    def _begin_check(self, connection: MqttConnection, packet: Connect, user: str, password: bytes) -> None:
        assert self._check_password is not None, "access rules that need a password require a password check"
        self._check_password(self, connection, packet, user, password)

    def decide(self, connection: MqttConnection, decision: Callable[[], None], now: Instant) -> None:
        """Apply the decision on a waiting CONNECT, then handle the packets the client sent meanwhile."""
        if connection.state is not MqttConnectionState.CHECKING:
            return
        connection.state = MqttConnectionState.NEW
        decision()
        self._watch(connection)
        self._finish_handshake(connection)
        if connection.state is MqttConnectionState.OPEN and connection.partial_packet:
            data, connection.partial_packet = b"".join(connection.partial_packet), []
            self.on_bytes(connection, data, now)

    def _finish_handshake(self, connection: MqttConnection) -> None:
        if connection.state is MqttConnectionState.OPEN:
            del self._connecting[connection]
            self._keepalive.set_timeout(connection, connection.timeout_s)
            self._drainable[connection] = None

    def _on_disconnect(self, connection: MqttConnection, session: Session, packet: Disconnect, now: Instant) -> None:
        """Handle DISCONNECT. [MQTT-3.14.4-1] to [MQTT-3.14.4-3]"""
        expiry_s = packet.properties.session_expiry_s
        if expiry_s and not session.expiry_ns:  # [MQTT-3.14.2-2]
            self.context.refuse(
                connection, Refused(Reason.PROTOCOL_ERROR, "DISCONNECT sets a session expiry, but CONNECT had none")
            )
            return
        publishes_will = connection.version is Version.V5 and packet.code != Code.SUCCESS
        expiry_ns = None if expiry_s is None else expiry_s * SECOND_NS
        self._broker.disconnect(session, now, publishes_will=publishes_will, expiry_ns=expiry_ns)
        self.context.log.info_limited("session closed", client=session.name, address=connection.address)
        connection.state = MqttConnectionState.CLOSING
        self.context.closing.append(connection)

    def on_timer(self, now: Instant) -> None:
        """Disconnect the connections whose keepalive has timed out."""
        del now
        for connection in self._keepalive.overdue(self._clock()):
            if connection.state is MqttConnectionState.OPEN:
                self.context.refuse(connection, Refused(Reason.KEEP_ALIVE_TIMEOUT))  # [MQTT-3.1.2-22]
            else:
                if connection.state < MqttConnectionState.CLOSING:
                    self._broker.refuse(Refused(Reason.KEEP_ALIVE_TIMEOUT))
                self._drop(connection)

    def expel(self, connection: Connection, refused: Refused) -> None:
        """Disconnect a client with a reason, if *connection* belongs to this listener."""
        if isinstance(connection, MqttConnection):
            self.context.refuse(connection, refused)

    def redirect(self, connection: Connection, address: str) -> None:
        """Redirect a client to another edge, if *connection* belongs to this listener."""
        if isinstance(connection, MqttConnection):
            self.context.redirect(connection, address)

    def welcome(self, name: EndpointId, refused: Refused | None, now: Instant) -> None:
        """Finish the CONNECT of a client that waited for its session, or deny it if *refused* is given."""
        waiting = self.context.awaiting_session.pop(name, None)
        if waiting is not None:
            connection = waiting.connection
            decision = partial(waiting.connect, now) if refused is None else partial(deny, self.context, connection, refused)
            self.decide(connection, decision, now)

    def deny_waiting(self, users: AbstractSet[str], now: Instant) -> None:
        """Deny the clients of some users that wait for their session."""
        for name, waiting in list(self.context.awaiting_session.items()):
            connection = waiting.connection
            user = connection.identity.user if connection.identity is not None else None
            if user in users:
                del self.context.awaiting_session[name]
                self.decide(connection, partial(deny, self.context, connection, Refused(Reason.BAD_CREDENTIALS)), now)

    def discard_replies(self, refused: Refused) -> None:
        """Discard the replies that depend on changes that could not be stored, and disconnect their clients."""
        for connection in self.context.sender.discard_replies():
            self.context.disconnect(connection, Code.IMPLEMENTATION_SPECIFIC_ERROR, refused)

    def disconnect(self, session: Session, refused: Refused) -> None:
        """Disconnect a session whose delivery guarantee cannot be met."""
        if isinstance(session.connection, MqttConnection):
            self.context.disconnect(session.connection, Code.IMPLEMENTATION_SPECIFIC_ERROR, refused)

    def resume(self, now: Instant) -> None:
        """Drain the queues of the connections that accept more."""
        for connection in list(self._drainable):
            self._resume(connection, now)

    def send(self, now: Instant) -> bool:
        """Write all output and close finished connections; return whether more can be sent at once."""
        self._send()
        closing, self.context.closing = self.context.closing, []
        for connection in closing:
            self._close(connection, now)
        if closing:
            self._send()
        return bool(self._drainable)

    def _send(self) -> None:
        for connection in self.context.sender.send_all():
            self._watch(connection)

    def _resume(self, connection: MqttConnection, now: Instant) -> None:
        session = connection.session
        if (
            session is None
            or session.connection is not connection
            or connection.unsent
            or not self._broker.drain(session, now, RESUME_BYTES)
        ):
            del self._drainable[connection]

    def _watch(self, connection: MqttConnection) -> None:
        """Watch a connection with unsent bytes for writability, and do not read it while these exceed the limit.

        A client whose CONNECT is still being decided is not read either.
        """
        is_stuck = connection.unsent_size > 0 or connection.stream.has_unsent
        is_full = (
            connection.unsent_size > self.context.settings.limits.unsent_bytes_max
            or connection.state is MqttConnectionState.CHECKING
        )
        mask = (0 if is_full else READABLE) | (WRITABLE if is_stuck else 0)
        if mask != connection.mask and connection.state is not MqttConnectionState.CLOSED:
            connection.mask = mask
            self.watch(connection)

    def _close(self, connection: MqttConnection, now: Instant) -> None:
        """Detach the session, send the last packet, and linger until the client has received it."""
        self._detach(connection, now)
        if connection.state is MqttConnectionState.CLOSED:
            return
        if connection.last_packet:
            self.context.sender.put(connection, connection.last_packet)
            self._send()
        connection.received_at = self._clock()
        self._keepalive.set_timeout(connection, LINGER_S)
        if not connection.unsent:
            connection.stream.finish()

    def _connection_lost(self, connection: MqttConnection, now: Instant) -> None:
        """Detach the session and drop the connection."""
        self._detach(connection, now)
        self._drop(connection)

    def _detach(self, connection: MqttConnection, now: Instant) -> None:
        session, connection.session = connection.session, None
        self._connecting.pop(connection, None)
        if session is not None and session.connection is connection:
            self._broker.disconnect(session, now, publishes_will=True)
            self.context.log.info_limited("session lost", client=session.name, address=connection.address)

    def _drop(self, connection: MqttConnection) -> None:
        if connection.state is MqttConnectionState.CLOSED:
            return
        connection.state = MqttConnectionState.CLOSED
        self._connecting.pop(connection, None)
        self._drainable.pop(connection, None)
        self._keepalive.forget(connection)
        self.connections.discard(connection)
        self.forget(connection)
        connection.stream.close()

    def revoke(self, action: Revoke) -> None:
        """Log a subscription that new rules have ended: MQTT has no packet to notify the client."""
        self.context.log.info_limited(
            "subscription ended", client=action.session.name, name=action.name, reason=action.refused.reason.name
        )

    def shut_down(self) -> None:
        """Disconnect all clients because the edge stops; durable sessions remain stored."""
        for connection in list(self.connections):
            self.context.disconnect(connection, Code.SERVER_SHUTTING_DOWN, Refused(Reason.SHUTTING_DOWN))


def _do_nothing(_connection: MqttConnection) -> None:
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
