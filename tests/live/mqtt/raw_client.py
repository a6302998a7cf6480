"""A client that sends exactly the bytes of the test and reads packet by packet; every wait has a deadline.

Nothing is acknowledged unless the test does. `drain` is a fence: packets that the broker had for this client when the PINGREQ
arrived precede the PINGRESP. A broker may work in ticks and answer a PINGREQ before it delivers messages of the same tick:
so `drain` pings twice.
"""

import itertools
import os
import socket
import struct
import time
from collections.abc import Callable
from typing import Final, Self, Unpack

from live.mqtt.packets import (
    PINGREQ,
    V5,
    ConnectOptions,
    Kind,
    Packet,
    Properties,
    PublishOptions,
    ack,
    connect,
    disconnect,
    maybe_split,
    parse,
    publish,
    subscribe,
    unsubscribe,
)

WAIT_S: Final = (
    3.0 if os.environ.get("MILEPOST_TEST_BROKER") == "mosquitto" else 10.0
)  # some waits are known to be in vain on Mosquitto
READ_BYTES: Final = 1 << 18


class Closed(Exception):
    """The broker closed the connection while a packet was awaited."""


class RawClient:
    """One connection. `inbox` holds packets received while another was awaited; they are returned next, in order."""

    def __init__(self, port: int, *, level: int = V5, host: str = "127.0.0.1") -> None:
        self.level = level
        self.socket = socket.create_connection((host, port), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inbox: list[Packet] = []
        self.connack: Packet | None = None
        self._unread = bytearray()
        self._ids = itertools.cycle(range(1, 65536))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, *packets: bytes) -> None:
        """Send all packets in one write."""
        self.socket.settimeout(WAIT_S)
        self.socket.sendall(b"".join(packets))

    def receive(self, within_s: float = WAIT_S) -> Packet:
        """Return the next packet; raise `Closed` if the broker closes first, TimeoutError after the deadline."""
        return self.inbox.pop(0) if self.inbox else self._read(time.monotonic() + within_s)

    def take(self, kind: Kind, packet_id: int | None = None, within_s: float = WAIT_S) -> Packet:
        """Return the next packet of a type; others before it remain in the inbox."""

        def condition(one: Packet) -> bool:
            return one.kind == kind and packet_id in (None, one.packet_id)

        return self._take(condition, within_s)

    def _take(self, condition: Callable[[Packet], bool], within_s: float) -> Packet:
        until = time.monotonic() + within_s
        for place, one in enumerate(self.inbox):
            if condition(one):
                return self.inbox.pop(place)
        while not condition(found := self._read(until)):
            self.inbox.append(found)
        return found

    def expect(self, kind: Kind, within_s: float = WAIT_S) -> Packet:
        """Return the next packet, which must be of this type."""
        found = self.receive(within_s)
        assert found.kind == kind, f"{kind.name} was expected, not {found}"
        return found

    def message(self, within_s: float = WAIT_S) -> Packet:
        """Return the next packet, which must be a PUBLISH."""
        return self.expect(Kind.PUBLISH, within_s)

    def messages(self, count: int) -> list[Packet]:
        return [self.message() for _ in range(count)]

    def until_closed(self, within_s: float = WAIT_S) -> list[Packet]:
        """Return all packets until the broker closes the connection, which it must before the deadline."""
        until = time.monotonic() + within_s
        found, self.inbox = self.inbox, []
        try:
            while True:
                found.append(self._read(until))
        except Closed:
            return found

    def close_reason(self, within_s: float = WAIT_S) -> int | None:
        """Return the reason of the DISCONNECT or CONNACK right before the broker closes; None if it only closes."""
        found = self.until_closed(within_s)
        has_reason = bool(found) and found[-1].kind in (Kind.DISCONNECT, Kind.CONNACK)
        return found[-1].reason if has_reason else None

    def drain(self) -> list[Packet]:
        """Return all packets before the reply to the second of two PINGREQs, the second sent after the first was answered."""
        for _ in range(2):
            self.send(PINGREQ)
            self.take(Kind.PINGRESP)
        found, self.inbox = self.inbox, []
        return found

    def is_open(self) -> bool:
        """Whether the broker still answers on this connection."""
        try:
            self.inbox = self.drain()
        except (Closed, ConnectionError):
            return False
        return True

    def join(self, client_id: str = "", **options: Unpack[ConnectOptions]) -> Packet:
        """Send CONNECT; return the CONNACK, which must be a success."""
        found = self.try_join(client_id, **options)
        assert found.reason == 0, f"refused: {found}"
        return found

    def try_join(self, client_id: str | bytes = "", **options: Unpack[ConnectOptions]) -> Packet:
        """Send CONNECT; return the CONNACK, success or not."""
        self.send(connect(client_id, self.level, **options))
        self.connack = self.expect(Kind.CONNACK)
        return self.connack

    def subscribe(self, *filters: tuple[str | bytes, int], props: Properties = ()) -> Packet:
        """Send SUBSCRIBE; return the SUBACK."""
        packet_id = next(self._ids)
        self.send(subscribe(packet_id, *filters, props=props, level=self.level))
        return self.take(Kind.SUBACK, packet_id)

    def unsubscribe(self, *filters: str | bytes, props: Properties = ()) -> Packet:
        """Send UNSUBSCRIBE; return the UNSUBACK."""
        packet_id = next(self._ids)
        self.send(unsubscribe(packet_id, *filters, props=props, level=self.level))
        return self.take(Kind.UNSUBACK, packet_id)

    def publish(self, topic: str, payload: bytes = b"", **options: Unpack[PublishOptions]) -> Packet | None:
        """Publish and complete the exchange of the QoS; return the last reply: a PUBREC if that refused."""
        qos = options.get("qos", 0)
        packet_id = options.setdefault("packet_id", next(self._ids) if qos else 0)
        self.send(publish(topic, payload, self.level, **options))
        if qos == 0:
            return None
        answer = self.take(Kind.PUBACK if qos == 1 else Kind.PUBREC, packet_id)
        if qos == 1 or answer.reason >= 0x80:
            return answer
        self.acknowledge(Kind.PUBREL, packet_id)
        return self.take(Kind.PUBCOMP, packet_id)

    def acknowledge(self, kind: Kind, packet_id: int, reason: int = 0) -> None:
        self.send(ack(kind, packet_id, reason, level=self.level))

    def finish(self, message: Packet) -> None:
        """Complete the receiver's side of the exchange of a PUBLISH."""
        if message.qos == 1:
            self.acknowledge(Kind.PUBACK, message.packet_id)
        elif message.qos == 2:
            self.acknowledge(Kind.PUBREC, message.packet_id)
            self.take(Kind.PUBREL, message.packet_id)
            self.acknowledge(Kind.PUBCOMP, message.packet_id)

    def leave(self, reason: int = 0, props: Properties = ()) -> None:
        """Send DISCONNECT, wait until the broker closes, and close the connection."""
        self.send(disconnect(reason, props, self.level))
        self.socket.shutdown(socket.SHUT_WR)
        self.until_closed()
        self.close()

    def drop(self) -> None:
        """Close without DISCONNECT; return when the broker has noticed."""
        self.socket.shutdown(socket.SHUT_WR)
        self.until_closed()
        self.close()

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        self.socket.close()

    def _read(self, until: float) -> Packet:
        while (found := maybe_split(self._unread)) is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("no packet within the deadline")
            self.socket.settimeout(left_s)
            try:
                more = self.socket.recv(READ_BYTES)
            except ConnectionResetError:
                more = b""
            if not more:
                assert not self._unread, f"the broker closed in the middle of a packet: {bytes(self._unread[:80])!r}"
                raise Closed
            self._unread += more
        begin, end = found
        first, body = self._unread[0], bytes(self._unread[begin:end])
        del self._unread[:end]
        return parse(first, body, end, self.level)
