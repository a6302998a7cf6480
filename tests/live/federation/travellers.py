"""An MQTT client that travels from edge to edge, keeps the session state that is asked of clients, and writes a ledger.

Who loses its connection comes back by itself, to the edge where it is meant to be.
"""

import contextlib
import socket
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from ledger import Ledger
from live.mqtt.packets import V5, Kind, P, Packet, ack, connect, disconnect, maybe_split, parse, publish, subscribe

WINDOW: Final = 20
LASTING: Final = [(P.SESSION_EXPIRY, 3600), (P.RECEIVE_MAXIMUM, 50)]
AGAIN_S: Final = 0.1
"""Who was refused or cut off waits so long."""


class Door(Protocol):
    """Where clients connect."""

    @property
    def tcp(self) -> int: ...


class Leave(Enum):
    """How somebody leaves an edge."""

    POLITELY = "with a DISCONNECT"
    ABRUPTLY = "by closing the connection"
    UNSEEN = "without a word: the connection stands open and nobody is at its other end"


@dataclass
class Outgoing:
    """A message that is under way: its number, and whether PUBREC has come for it."""

    number: int
    is_received: bool = False


@dataclass
class Traveller:
    """A session that stays, and connections that come and go. `rate` is how many it sends in a second."""

    name: str
    ledger: Ledger
    topic: str = ""
    """What it sends to; its quality is the ledger's."""
    qos: int = 1
    filters: tuple[str, ...] = ()
    rate: float = 0.0
    port: int = 0
    connection: int = 0
    is_joined: bool = False
    presents: list[bool] = field(default_factory=list)
    """Of each connection that was let in: whether the edge had its session."""
    refusals: list[str] = field(default_factory=list)
    """With what words messages were refused."""
    turned_away: int = 0
    """How often it was not let in."""
    line: socket.socket | None = None
    _unseen: list[socket.socket] = field(default_factory=list)
    _unread: bytearray = field(default_factory=bytearray)
    _under_way: dict[int, Outgoing] = field(default_factory=dict)
    _held: dict[int, tuple[str, int]] = field(default_factory=dict)
    _next_id: int = 0
    _due: float = 0.0
    _flushed_at: float = 0.0
    _again_at: float = 0.0
    _is_subscribed: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether all it sent is settled."""
        return not self._under_way

    @property
    def is_listening(self) -> bool:
        """Whether it is let in, and what it asked for is granted."""
        return self.is_joined and (self._is_subscribed or not self.filters)

    def leave(self, how: Leave) -> None:
        """End the connection, if there is one."""
        self.is_joined = False
        if self.line is None:
            return
        if how is Leave.UNSEEN:
            self._unseen.append(self.line)
        else:
            if how is Leave.POLITELY:
                self._send(disconnect())
            self.line.close()
        self.line = None

    def go(self, edge: Door, how: Leave) -> None:
        """Be somewhere else from now on."""
        self.leave(how)
        self.port, self._again_at = edge.tcp, 0.0

    def stay_away(self, how: Leave) -> None:
        """Be nowhere."""
        self.leave(how)
        self.port = 0

    def end(self) -> None:
        """Close everything."""
        self.leave(Leave.ABRUPTLY)
        for one in self._unseen:
            one.close()

    def step(self, now: float) -> None:
        """Come back if it is not there; send what is due."""
        if self.line is None and self.port and now >= self._again_at:
            self._connect(now)
        passed, self._flushed_at = now - (self._flushed_at or now), now
        self._due += passed * self.rate
        self.flush()

    def burst(self, count: int) -> None:
        """Have so many sent as fast as it goes, whatever the rate."""
        self._due += count

    def stop(self) -> None:
        """Send nothing that is not under way."""
        self.rate = self._due = 0.0

    def flush(self) -> None:
        """Send what is due and fits into the window."""
        while self.is_joined and self._due >= 1 and len(self._under_way) < WINDOW:
            self._due -= 1
            self._publish()

    def _connect(self, now: float) -> None:
        self._again_at = now + AGAIN_S
        self._unread.clear()
        with contextlib.suppress(OSError):
            self.line = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connection += 1
            self._send(connect(self.name, V5, clean=False, keep_alive=0, props=LASTING))

    def _send(self, *packets: bytes) -> None:
        if self.line is not None and packets:
            with contextlib.suppress(OSError):  # cut off: what was meant to go is state, and goes again
                self.line.sendall(b"".join(packets))

    def read(self, now: float) -> None:
        """Take what has come."""
        assert self.line is not None
        try:
            more = self.line.recv(1 << 18)
        except OSError:
            more = b""
        self._unread += more
        while (place := maybe_split(self._unread)) is not None:
            begin, end = place
            packet = parse(self._unread[0], bytes(self._unread[begin:end]), end, V5)
            del self._unread[:end]
            self._on_packet(packet)
        if not more:
            self._again_at = now + AGAIN_S
            self.leave(Leave.ABRUPTLY)

    def _on_packet(self, found: Packet) -> None:
        match found.kind:
            case Kind.CONNACK if found.reason == 0:
                self._resume(found.session_present)
            case Kind.CONNACK:
                self.turned_away += 1
            case Kind.DISCONNECT:
                pass  # the edge closes; it comes back
            case Kind.SUBACK:
                assert found.codes == (2,) * len(self.filters), found
                self._is_subscribed = True
            case Kind.PUBLISH:
                self._on_message(found)
            case Kind.PUBREL:
                self._held.pop(found.packet_id, None)
                self._send(ack(Kind.PUBCOMP, found.packet_id))
            case _:
                self._on_answer(found)

    def _resume(self, is_present: bool) -> None:
        """[MQTT-4.4.0-1]; without a session, what it had of the old one is void."""
        self.presents.append(is_present)
        self.is_joined = True
        if not is_present:
            for sender, number in self._held.values():
                self.ledger.leave_open(self.name, sender, number)
            self._held.clear()
            self._is_subscribed = False
        if not self._is_subscribed and self.filters:
            self._send(subscribe(1, *((one, 2 | 0x20) for one in self.filters)))
        again = [(packet_id, one) for packet_id, one in self._under_way.items() if is_present or not one.is_received]
        self._under_way = dict(again)
        for packet_id, one in again:
            if one.is_received:
                self._send(ack(Kind.PUBREL, packet_id))
            else:
                self.ledger.send_again(self.name, one.number)
                self._send(self._packet(packet_id, one.number, dup=is_present))

    def _on_message(self, found: Packet) -> None:
        text, digits = found.payload.split(b" ")[:2]
        sender, number = text.decode(), int(digits)
        if found.qos < 2 or found.packet_id not in self._held:
            self.ledger.see(self.name, sender, number, connection=self.connection, is_repetition=found.is_dup)
        if found.qos == 1:
            self._send(ack(Kind.PUBACK, found.packet_id))
        elif found.qos == 2:
            self._held[found.packet_id] = sender, number
            self._send(ack(Kind.PUBREC, found.packet_id))

    def _on_answer(self, found: Packet) -> None:
        one = self._under_way.get(found.packet_id)
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
            del self._under_way[found.packet_id]
            self.flush()

    def _publish(self) -> None:
        number = self.ledger.send(self.name)
        if not self.qos:
            self._send(self._packet(0, number, dup=False))
            return
        while (next_id := self._next_id % 65535 + 1) in self._under_way:
            self._next_id = next_id
        self._next_id = next_id
        self._under_way[next_id] = Outgoing(number)
        self._send(self._packet(next_id, number, dup=False))

    def _packet(self, packet_id: int, number: int, *, dup: bool) -> bytes:
        payload = f"{self.name} {number} ".encode() + b"." * (number * 37 % 200)
        return publish(self.topic, payload, qos=self.qos, packet_id=packet_id, dup=dup)
