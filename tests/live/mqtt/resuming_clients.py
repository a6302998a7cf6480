"""Clients that survive the broker: they hold the session state that the specification requires of clients, and resume it.

Each is stepped by `Traffic`, which reads whatever has come for any of them until a moment is over.
"""

import contextlib
import selectors
import socket
import time
from dataclasses import dataclass
from typing import Final

from live.mqtt.delivery_history import Flow, History
from live.mqtt.packets import V5, Kind, P, Packet, ack, connect, maybe_split, parse, publish, subscribe

WINDOW: Final = 20
LASTING: Final = [(P.SESSION_EXPIRY, 3600), (P.RECEIVE_MAXIMUM, 50)]
TOPIC: Final = "crash"


class ResumingClient:
    """A client that reconnects to a durable session."""

    def __init__(self, name: str, history: History) -> None:
        self.name = name
        self.history = history
        self.round = 0
        self.is_joined = False
        self._was_joined = False
        self.socket: socket.socket | None = None
        self._unread = bytearray()

    def connect(self, port: int, round_: int) -> None:
        self.round, self.is_joined, self._unread = round_, False, bytearray()
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(connect(self.name, V5, clean=False, keep_alive=0, props=LASTING))

    def send(self, *packets: bytes) -> None:
        if self.socket is not None and packets:
            with contextlib.suppress(ConnectionError):  # killed: unsent packets are session state and sent again
                self.socket.sendall(b"".join(packets))

    def read(self) -> bool:
        """Handle received packets; return whether the connection is still open."""
        assert self.socket is not None
        try:
            more = self.socket.recv(1 << 18)
        except ConnectionError:
            more = b""
        self._unread += more
        found = []
        while (place := maybe_split(self._unread)) is not None:
            begin, end = place
            found.append(parse(self._unread[0], bytes(self._unread[begin:end]), end, V5))
            del self._unread[:end]
        for one in found:
            self._on_packet(one)
        self.flush()
        return bool(more)

    def close(self) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def _on_packet(self, found: Packet) -> None:
        if found.kind == Kind.CONNACK:
            assert found.reason == 0, found
            if self._was_joined and not found.session_present:
                self.history.lost_sessions.append(f"{self.name} in round {self.round}")
            self.is_joined = self._was_joined = True
            self.resume()
        else:
            self.on_packet(found)

    def resume(self) -> None: ...

    def on_packet(self, found: Packet) -> None: ...

    def flush(self) -> None: ...


@dataclass
class Outgoing:
    """A message in flight: its number in the flow, and whether PUBREC was received."""

    number: int
    is_received: bool = False


class Publisher(ResumingClient):
    """Publishes numbers within the window; after a reconnect, unfinished messages first, in the old order."""

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name, history)
        self.flow: Flow = history.flows[name]
        self.is_stopping = False
        self._in_flight: dict[int, Outgoing] = {}
        self._next_id = 0

    def is_done(self) -> bool:
        return self.is_joined and not self._in_flight

    def resume(self) -> None:
        """[MQTT-4.4.0-1]"""
        self.send(*(self._again(packet_id, one) for packet_id, one in self._in_flight.items()))

    def flush(self) -> None:
        if self.is_joined and not self.is_stopping and len(self._in_flight) < WINDOW:
            self.send(*(self._new() for _ in range(WINDOW - len(self._in_flight))))

    def on_packet(self, found: Packet) -> None:
        one = self._in_flight.get(found.packet_id)
        match found.kind:
            case Kind.PUBACK | Kind.PUBREC if one is not None:
                assert found.reason < 0x80, f"refused: {found}"
                self.flow.accepted.setdefault(one.number, self.round)
                if found.kind == Kind.PUBACK:
                    del self._in_flight[found.packet_id]
                else:
                    one.is_received = True
                    self.send(ack(Kind.PUBREL, found.packet_id))
            case Kind.PUBCOMP if one is not None:
                assert one.is_received, f"PUBCOMP before PUBREC: {found}"
                del self._in_flight[found.packet_id]
            case _:
                raise AssertionError(f"{self.name} did not expect {found}")

    def _new(self) -> bytes:
        while True:
            self._next_id = self._next_id % 65535 + 1
            if self._next_id not in self._in_flight:
                break
        self._in_flight[self._next_id] = Outgoing(self.flow.sent)
        self.flow.sent += 1
        return self._packet(self._next_id, self.flow.sent - 1, dup=False)

    def _again(self, packet_id: int, one: Outgoing) -> bytes:
        return ack(Kind.PUBREL, packet_id) if one.is_received else self._packet(packet_id, one.number, dup=True)

    def _packet(self, packet_id: int, number: int, *, dup: bool) -> bytes:
        payload = b"%d " % number + b"." * (number * 37 % 1500)
        return publish(f"{TOPIC}/{self.name}", payload, qos=self.flow.qos, packet_id=packet_id, dup=dup)


class Subscriber(ResumingClient):
    """Subscribes to the topic with QoS 2; holds the packet identifiers of QoS 2 messages until their PUBREL (4.3.3)."""

    def __init__(self, history: History) -> None:
        super().__init__("taker", history)
        self._held: set[int] = set()

    def resume(self) -> None:
        self.send(subscribe(1, (f"{TOPIC}/#", 2 | 0x20)))

    def on_packet(self, found: Packet) -> None:
        match found.kind:
            case Kind.PUBLISH:
                self._on_message(found)
            case Kind.PUBREL:
                self._held.discard(found.packet_id)
                self.send(ack(Kind.PUBCOMP, found.packet_id))
            case Kind.SUBACK:
                assert found.codes == (2,), found
            case _:
                raise AssertionError(f"{self.name} did not expect {found}")

    def _on_message(self, found: Packet) -> None:
        flow = self.history.flows[found.topic.removeprefix(f"{TOPIC}/")]
        number = int(found.payload.split(b" ")[0])
        assert found.qos == flow.qos, found
        if found.qos == 1:
            flow.delivered.append((number, self.round))
            self.send(ack(Kind.PUBACK, found.packet_id))
            return
        if found.packet_id not in self._held:
            self._held.add(found.packet_id)
            flow.delivered.append((number, self.round))
        self.send(ack(Kind.PUBREC, found.packet_id))


class Traffic:
    """All clients of a run."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.publishers = [Publisher(name, history) for name in history.flows]
        self.subscriber = Subscriber(history)
        self.all: list[ResumingClient] = [self.subscriber, *self.publishers]

    def connect(self, port: int, round_: int) -> None:
        for one in self.all:
            one.connect(port, round_)

    def run_until(self, moment: float) -> None:
        """Run the clients until then, or until the broker has closed all connections."""
        with selectors.DefaultSelector() as ready:
            for one in self.all:
                if one.socket is not None:
                    ready.register(one.socket, selectors.EVENT_READ, one)
            while ready.get_map() and (left_s := moment - time.monotonic()) > 0:
                for key, _ in ready.select(left_s):
                    if not key.data.read():
                        ready.unregister(key.fileobj)

    def drain(self) -> None:
        """Read what the killed broker had sent, to the end of each connection."""
        self.run_until(time.monotonic() + 10)
        self.close()

    def close(self) -> None:
        for one in self.all:
            one.close()

    def finish(self, within_s: float) -> None:
        """Publish no new messages, and let all exchanges finish."""
        for one in self.publishers:
            one.is_stopping = True
        until = time.monotonic() + within_s
        while time.monotonic() < until and not (self.history.is_complete() and all(one.is_done() for one in self.publishers)):
            self.run_until(time.monotonic() + 0.1)
