"""An MQTT client that moves from edge to edge, keeps the session state of a client, and fills a ledger.

A client that loses its connection reconnects by itself to its current edge.
"""

import contextlib
import socket
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from ledger import Ledger
from live.mqtt.packets import V5, Kind, P, Packet, ack, connect, disconnect, maybe_split, parse, publish, subscribe

WINDOW: Final = 20
SESSION_PROPERTIES: Final = [(P.SESSION_EXPIRY, 3600), (P.RECEIVE_MAXIMUM, 50)]
RECONNECT_S: Final = 0.1
"""Wait before a client that was rejected or disconnected reconnects."""


class EdgeAddress(Protocol):
    """The address of an edge, or of a switch in front of one."""

    @property
    def tcp(self) -> int: ...


class LeaveMode(Enum):
    """How a client leaves an edge."""

    WITH_DISCONNECT = "with a DISCONNECT"
    BY_CLOSING = "by closing the connection"
    SILENTLY = "silently: the connection stays open without a client"


@dataclass
class Outgoing:
    """A message in flight: its number, and whether PUBREC has come for it."""

    number: int
    is_received: bool = False


@dataclass
class RoamingClient:
    """A client with a persistent session and changing connections; `rate` is in messages per second."""

    name: str
    ledger: Ledger
    topic: str = ""
    """The topic it publishes to."""
    qos: int = 1
    filters: tuple[str, ...] = ()
    rate: float = 0.0
    port: int = 0
    connection: int = 0
    is_connected: bool = False
    session_present: list[bool] = field(default_factory=list)
    """For each admitted connection, whether the edge had its session."""
    refusals: list[str] = field(default_factory=list)
    """Reason codes and texts of refused messages."""
    rejected_connects: int = 0
    """Number of rejected CONNECTs."""
    sock: socket.socket | None = None
    _abandoned: list[socket.socket] = field(default_factory=list)
    _unread: bytearray = field(default_factory=bytearray)
    _in_flight: dict[int, Outgoing] = field(default_factory=dict)
    _unreleased: dict[int, tuple[str, int]] = field(default_factory=dict)
    _next_id: int = 0
    _due: float = 0.0
    _flushed_at: float = 0.0
    _reconnect_at: float = 0.0
    _has_suback: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether all its messages are acknowledged."""
        return not self._in_flight

    @property
    def is_subscribed(self) -> bool:
        """Whether it is connected and its subscriptions are acknowledged."""
        return self.is_connected and (self._has_suback or not self.filters)

    def leave(self, how: LeaveMode) -> None:
        """End the connection, if there is one."""
        self.is_connected = False
        if self.sock is None:
            return
        if how is LeaveMode.SILENTLY:
            self._abandoned.append(self.sock)
        else:
            if how is LeaveMode.WITH_DISCONNECT:
                self._send(disconnect())
            self.sock.close()
        self.sock = None

    def go(self, edge: EdgeAddress, how: LeaveMode) -> None:
        """Move to another edge."""
        self.leave(how)
        self.port, self._reconnect_at = edge.tcp, 0.0

    def go_offline(self, how: LeaveMode) -> None:
        """Disconnect and stay offline."""
        self.leave(how)
        self.port = 0

    def end(self) -> None:
        """Close everything."""
        self.leave(LeaveMode.BY_CLOSING)
        for one in self._abandoned:
            one.close()

    def step(self, now: float) -> None:
        """Reconnect if necessary; publish the messages that are due."""
        if self.sock is None and self.port and now >= self._reconnect_at:
            self._connect(now)
        passed, self._flushed_at = now - (self._flushed_at or now), now
        self._due += passed * self.rate
        self.flush()

    def burst(self, count: int) -> None:
        """Publish messages as fast as possible, whatever the rate."""
        self._due += count

    def stop(self) -> None:
        """Publish no further messages."""
        self.rate = self._due = 0.0

    def flush(self) -> None:
        """Publish due messages that fit into the window."""
        while self.is_connected and self._due >= 1 and len(self._in_flight) < WINDOW:
            self._due -= 1
            self._publish()

    def _connect(self, now: float) -> None:
        self._reconnect_at = now + RECONNECT_S
        self._unread.clear()
        with contextlib.suppress(OSError):
            self.sock = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connection += 1
            self._send(connect(self.name, V5, clean=False, keep_alive=0, props=SESSION_PROPERTIES))

    def _send(self, *packets: bytes) -> None:
        if self.sock is not None and packets:
            with contextlib.suppress(OSError):  # disconnected: the messages are session state and are sent again
                self.sock.sendall(b"".join(packets))

    def read(self, now: float) -> None:
        """Read and handle packets."""
        assert self.sock is not None
        try:
            more = self.sock.recv(1 << 18)
        except OSError:
            more = b""
        self._unread += more
        while (place := maybe_split(self._unread)) is not None:
            begin, end = place
            packet = parse(self._unread[0], bytes(self._unread[begin:end]), end, V5)
            del self._unread[:end]
            self._on_packet(packet)
        if not more:
            self._reconnect_at = now + RECONNECT_S
            self.leave(LeaveMode.BY_CLOSING)

    def _on_packet(self, found: Packet) -> None:
        match found.kind:
            case Kind.CONNACK if found.reason == 0:
                self._resume(found.session_present)
            case Kind.CONNACK:
                self.rejected_connects += 1
            case Kind.DISCONNECT:
                pass  # the edge closes the connection; the client reconnects
            case Kind.SUBACK:
                assert found.codes == (2,) * len(self.filters), found
                self._has_suback = True
            case Kind.PUBLISH:
                self._on_message(found)
            case Kind.PUBREL:
                self._unreleased.pop(found.packet_id, None)
                self._send(ack(Kind.PUBCOMP, found.packet_id))
            case _:
                self._on_answer(found)

    def _resume(self, is_present: bool) -> None:
        """Resend unacknowledged messages [MQTT-4.4.0-1]; without a session, the state of the old one is void."""
        self.session_present.append(is_present)
        self.is_connected = True
        if not is_present:
            for publisher, number in self._unreleased.values():
                self.ledger.leave_open(self.name, publisher, number)
            self._unreleased.clear()
            self._has_suback = False
        if not self._has_suback and self.filters:
            self._send(subscribe(1, *((one, 2 | 0x20) for one in self.filters)))
        again = [(packet_id, one) for packet_id, one in self._in_flight.items() if is_present or not one.is_received]
        self._in_flight = dict(again)
        for packet_id, one in again:
            if one.is_received:
                self._send(ack(Kind.PUBREL, packet_id))
            else:
                self.ledger.send_again(self.name, one.number)
                self._send(self._packet(packet_id, one.number, dup=is_present))

    def _on_message(self, found: Packet) -> None:
        text, digits = found.payload.split(b" ")[:2]
        publisher, number = text.decode(), int(digits)
        if found.qos < 2 or found.packet_id not in self._unreleased:
            self.ledger.receive(self.name, publisher, number, connection=self.connection, is_duplicate=found.is_dup)
        if found.qos == 1:
            self._send(ack(Kind.PUBACK, found.packet_id))
        elif found.qos == 2:
            self._unreleased[found.packet_id] = publisher, number
            self._send(ack(Kind.PUBREC, found.packet_id))

    def _on_answer(self, found: Packet) -> None:
        one = self._in_flight.get(found.packet_id)
        assert one is not None, f"{self.name} did not expect {found}"
        if found.kind in (Kind.PUBACK, Kind.PUBREC):
            if found.reason < 0x80:
                self.ledger.acknowledge(self.name, one.number)
            else:
                self.refusals.append(f"{found.reason:#x} {found.one(P.REASON_STRING)!r}")
                self.ledger.refuse(self.name, one.number)
        if found.kind == Kind.PUBREC and found.reason < 0x80:
            one.is_received = True
            self._send(ack(Kind.PUBREL, found.packet_id))
        else:
            del self._in_flight[found.packet_id]
            self.flush()

    def _publish(self) -> None:
        number = self.ledger.send(self.name)
        if not self.qos:
            self._send(self._packet(0, number, dup=False))
            return
        while (next_id := self._next_id % 65535 + 1) in self._in_flight:
            self._next_id = next_id
        self._next_id = next_id
        self._in_flight[next_id] = Outgoing(number)
        self._send(self._packet(next_id, number, dup=False))

    def _packet(self, packet_id: int, number: int, *, dup: bool) -> bytes:
        payload = f"{self.name} {number} ".encode() + b"." * (number * 37 % 200)
        return publish(self.topic, payload, qos=self.qos, packet_id=packet_id, dup=dup)
