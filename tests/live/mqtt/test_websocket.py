"""MQTT 5, 6 Using WebSocket as a network transport; RFC 6455 by hand.

| FIN + opcode | MASK + length | mask, 4 bytes | payload, each byte XOR its mask byte |
"""

import socket
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha1

import pytest

from live.mqtt.brokers import IS_REFERENCE, Broker, deviates
from live.mqtt.packets import PINGREQ, PINGRESP, V5, Kind, connect, publish, subscribe
from live.mqtt.packets import parse as parse_packet

WAIT_S = 3.0 if IS_REFERENCE else 10.0
KEY = b64encode(b"sixteen bytes 16")
ACCEPT = b64encode(sha1(KEY + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
FIN = 0x80
MASK = b"\x12\x34\x56\x78"


def frame(payload: bytes, first: int = FIN | BINARY, *, masked: bool = True) -> bytes:
    length = len(payload)
    size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2) if length < 65536 else b"\x7f" + length.to_bytes(8)
    if not masked:
        return bytes([first]) + size + payload
    body = bytes(byte ^ MASK[place % 4] for place, byte in enumerate(payload))
    return bytes([first, size[0] | 0x80]) + size[1:] + MASK + body


class Web:
    """A WebSocket connection: frames out, frames in."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self._unread = bytearray()

    def handshake(self, protocols: bytes = b"mqtt", path: bytes = b"/mqtt", **headers: bytes) -> bytes:
        """Send the opening handshake; return the head of the response."""
        fields = {b"Host": b"127.0.0.1", b"Upgrade": b"websocket", b"Connection": b"Upgrade", b"Sec-WebSocket-Key": KEY}
        fields |= {b"Sec-WebSocket-Version": b"13", b"Sec-WebSocket-Protocol": protocols}
        fields |= {name.encode().replace(b"_", b"-"): value for name, value in headers.items()}
        lines = [b"GET " + path + b" HTTP/1.1", *(name + b": " + value for name, value in fields.items() if value)]
        self.socket.sendall(b"\r\n".join([*lines, b"", b""]))
        while b"\r\n\r\n" not in self._unread:
            more = self.socket.recv(65536)
            if not more:
                return bytes(self._unread)
            self._unread += more
        head, _, rest = bytes(self._unread).partition(b"\r\n\r\n")
        self._unread = bytearray(rest)
        return head

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def take(self, count: int) -> bytes:
        while len(self._unread) < count:
            more = self.socket.recv(65536)
            if not more:
                raise EOFError
            self._unread += more
        found = bytes(self._unread[:count])
        del self._unread[:count]
        return found

    def receive(self) -> tuple[int, bytes]:
        """The next frame's opcode and payload; servers do not mask."""
        first, length = self.take(2)
        assert length < 128, "a masked frame from the server"
        if length == 126:
            length = int.from_bytes(self.take(2))
        elif length == 127:
            length = int.from_bytes(self.take(8))
        return first & 0x0F, self.take(length)

    def packets(self, count: int) -> list[bytes]:
        """MQTT packets, however they lie in frames; each must be short."""
        stream = b""
        found: list[bytes] = []
        while len(found) < count:
            opcode, payload = self.receive()
            assert opcode in (0, BINARY), f"opcode {opcode}"
            stream += payload
            while len(stream) >= 2 and len(stream) >= 2 + stream[1]:
                found.append(stream[: 2 + stream[1]])
                stream = stream[2 + stream[1] :]
        return found

    def until_closed(self) -> int | None:
        """Read to the end; return the code of the close frame, if any."""
        code = None
        try:
            while True:
                opcode, payload = self.receive()
                if opcode == CLOSE:
                    code = int.from_bytes(payload[:2]) if payload else 1005
        except (EOFError, ConnectionError):
            return code


@pytest.fixture
def web(broker: Broker) -> Iterator[Web]:
    found = Web(broker.ws)
    yield found
    found.socket.close()


@pytest.fixture
def joined(web: Web, name: str) -> Web:
    web.handshake()
    web.send(frame(connect(name)))
    (connack,) = web.packets(1)
    assert parse_packet(connack[0], connack[2:], len(connack), V5).reason == 0
    return web


def test_the_handshake_is_accepted_with_the_subprotocol_mqtt(web: Web) -> None:
    """[MQTT-6.0.0-3], [MQTT-6.0.0-4]"""
    head = web.handshake(b"chat, mqtt")
    assert head.startswith(b"HTTP/1.1 101 ")
    lines = [line.lower() for line in head.split(b"\r\n")]
    assert b"sec-websocket-accept: " + ACCEPT.lower() in lines
    assert b"sec-websocket-protocol: mqtt" in lines


def test_a_packet_may_span_several_frames(joined: Web) -> None:
    """[MQTT-6.0.0-2]: also byte by byte."""
    joined.send(*(frame(bytes([byte])) for byte in PINGREQ * 3))
    assert joined.packets(3) == [PINGRESP] * 3


def test_a_frame_may_hold_several_packets_and_a_part_of_another(joined: Web, name: str) -> None:
    """[MQTT-6.0.0-2]"""
    stream = subscribe(1, (name, 0)) + publish(name, b"one") + publish(name, b"two") + PINGREQ
    joined.send(frame(stream[:-1]), frame(stream[-1:]))
    kinds = sorted(packet[0] >> 4 for packet in joined.packets(4))
    assert kinds == [Kind.PUBLISH, Kind.PUBLISH, Kind.SUBACK, Kind.PINGRESP]


def test_a_message_in_fragments_is_reassembled(joined: Web) -> None:
    """RFC 6455, 5.4: with a ping between the fragments."""
    joined.send(frame(PINGREQ[:1], BINARY), frame(b"?", FIN | PING), frame(b"", 0), frame(PINGREQ[1:], FIN))
    found = sorted(joined.receive() for _ in range(2))
    assert found == [(BINARY, PINGRESP), (PONG, b"?")]


def test_a_ping_is_answered_by_a_pong_with_the_same_bytes(joined: Web) -> None:
    """RFC 6455, 5.5.2"""
    joined.send(frame(b"x" * 125, FIN | PING))
    assert joined.receive() == (PONG, b"x" * 125)


def test_an_unsolicited_pong_is_ignored(joined: Web) -> None:
    """RFC 6455, 5.5.3"""
    joined.send(frame(b"", FIN | PONG), frame(PINGREQ))
    assert joined.packets(1) == [PINGRESP]


@deviates("takes text for binary")
def test_a_text_frame_closes_the_connection(joined: Web) -> None:
    """[MQTT-6.0.0-1]"""
    joined.send(frame(PINGREQ, FIN | TEXT))
    assert joined.until_closed() in (None, 1002, 1003, 1007)


def test_a_close_frame_is_answered(joined: Web) -> None:
    """RFC 6455, 5.5.1"""
    joined.send(frame((1000).to_bytes(2), FIN | CLOSE))
    assert joined.until_closed() in (1000, 1005)


WRONG = {
    "not masked": frame(PINGREQ, masked=False),
    "reserved bit": frame(PINGREQ, FIN | 0x40 | BINARY),
    "reserved opcode": frame(PINGREQ, FIN | 3),
    "long ping": frame(b"x" * 126, FIN | PING),
    "ping in fragments": frame(b"x", PING),
    "continuation of nothing": frame(PINGREQ, FIN),
    "length with the top bit": b"\x82\xff" + b"\xff" * 8 + MASK,
}


LENIENT = {"not masked", "reserved bit", "reserved opcode", "ping in fragments", "continuation of nothing"}
FORBIDDEN = [pytest.param(case, marks=deviates("takes it")) if case in LENIENT else case for case in WRONG]


@pytest.mark.parametrize("case", FORBIDDEN)
def test_a_frame_that_rfc_6455_forbids_closes_the_connection(joined: Web, case: str) -> None:
    """RFC 6455, 5.1 to 5.5: 1002, or 1009 for what is too long."""
    joined.send(WRONG[case])
    assert joined.until_closed() in (None, 1002, 1009)


def test_a_large_message_arrives_complete_in_several_frames(joined: Web, name: str) -> None:
    payload = bytes(range(256)) * 400
    joined.send(frame(subscribe(1, (name, 0))))
    joined.packets(1)
    whole = publish(name, payload)
    joined.send(frame(whole))
    stream = b""
    while len(stream) < len(whole):
        opcode, more = joined.receive()
        assert opcode in (0, BINARY)
        stream += more
    assert stream == whole


@pytest.mark.parametrize(
    "change",
    [
        {"Upgrade": b""},
        {"Sec_WebSocket_Key": b""},
        pytest.param({"Sec_WebSocket_Version": b"8"}, marks=deviates("takes drafts too")),
        {"Connection": b"close"},
    ],
)
def test_a_request_that_is_no_handshake_is_not_upgraded(web: Web, change: dict[str, bytes]) -> None:
    """RFC 6455, 4.2.1"""
    head = web.handshake(**change)
    assert b" 101 " not in head.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "garbage", [b"\x10\x0c\x00\x04MQTT\x04\x02\x00<\x00\x00", b"GET /\r\n\r\n", b"\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n"]
)
def test_input_that_is_no_http_request_is_not_upgraded(web: Web, garbage: bytes) -> None:
    web.send(garbage)
    web.socket.shutdown(socket.SHUT_WR)
    found = b""
    while more := web.socket.recv(65536):
        found += more
    assert b" 101 " not in found


def test_a_request_head_without_end_is_rejected(web: Web) -> None:
    """Memory is bounded: the broker stops reading a head of a megabyte."""
    with pytest.raises((ConnectionError, EOFError)):
        send_head_of(web, 1_000_000)


def send_head_of(web: Web, size: int) -> None:
    web.send(b"GET /mqtt HTTP/1.1\r\n")
    for number in range(size // 1000):
        web.send(b"X-Filler-%d: " % number + b"y" * 980 + b"\r\n")
    web.take(1_000_000)
