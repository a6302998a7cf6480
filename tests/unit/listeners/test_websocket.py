"""The WebSocket server protocol, against the client side of the `websockets` library."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from milepost.listeners.websocket import REQUEST_BYTES_MAX, WebSocketProtocol, frame_header

MESSAGE_BYTES_MAX = 100_000


class Pair:
    """A `websockets` client and the server protocol, joined by bytes."""

    def __init__(self, *subprotocols: str, path: str = "/mqtt") -> None:
        self.client = ClientProtocol(
            parse_uri(f"ws://edge{path}"),
            subprotocols=[Subprotocol(name) for name in subprotocols],
            extensions=[ClientPerMessageDeflateFactory()],
            max_size=None,
        )
        self.protocol = WebSocketProtocol(message_bytes_max=MESSAGE_BYTES_MAX)
        self.is_over = False
        self.client.send_request(self.client.connect())

    def outgoing(self) -> bytes:
        """Return the bytes that the client sends."""
        return b"".join(self.client.data_to_send())

    def exchange(self) -> bytes:
        """Pass the client's bytes to the server and the reply back; return the MQTT stream."""
        payload, reply, self.is_over = self.protocol.on_bytes(self.outgoing())
        self.receive(reply)
        return payload

    def receive(self, data: bytes) -> None:
        self.client.receive_data(data)
        if self.is_over:
            self.client.receive_eof()

    def received_frames(self) -> list[Frame]:
        return [event for event in self.client.events_received() if isinstance(event, Frame)]


@pytest.fixture
def pair() -> Pair:
    """Return both sides of an open WebSocket."""
    pair = Pair("mqtt")
    assert pair.exchange() == b""
    assert pair.client.state is State.OPEN
    assert not pair.protocol.on_bytes(b"")[2]
    pair.client.events_received()
    return pair


@pytest.mark.parametrize("path", ["/mqtt", "/", "/a/b?c=d"])
def test_the_subprotocol_is_granted_on_any_path_and_compression_is_not(path: str) -> None:
    pair = Pair("other", "mqtt", path=path)
    pair.exchange()
    assert pair.protocol.is_open
    assert pair.client.state is State.OPEN
    assert pair.client.subprotocol == "mqtt"
    assert pair.client.extensions == []


@pytest.mark.parametrize("subprotocols", [(), ("mqttv3.1",), ("MQTT",)])
def test_a_handshake_without_the_subprotocol_is_refused(subprotocols: tuple[str, ...]) -> None:
    pair = Pair(*subprotocols)
    assert pair.exchange() == b""
    assert pair.is_over
    [response] = [event for event in pair.client.events_received() if isinstance(event, Response)]
    assert response.status_code == 400


def test_packets_may_span_frames_and_share_them(pair: Pair) -> None:
    pair.client.send_binary(b"one packet and half")
    pair.client.send_binary(b" of the next", fin=False)
    pair.client.send_ping(b"between")
    pair.client.send_continuation(b"", fin=False)
    pair.client.send_continuation(b", done", fin=True)
    assert pair.exchange() == b"one packet and half of the next, done"
    assert [(frame.opcode, bytes(frame.data)) for frame in pair.received_frames()] == [(Opcode.PONG, b"between")]


def test_a_frame_sent_with_the_request_is_decoded_after_the_response() -> None:
    pair = Pair("mqtt")
    request = pair.outgoing()
    masked_ping, masked_binary = b"\x89\x80\0\0\0\0", b"\x82\x82\0\0\0\0hi"
    payload, reply, is_over = pair.protocol.on_bytes(request + masked_ping + masked_binary)
    assert (payload, is_over) == (b"hi", False)
    pair.receive(reply)
    assert pair.client.state is State.OPEN
    assert [frame.opcode for frame in pair.received_frames()] == [Opcode.PONG]


def test_a_text_frame_ends_the_connection(pair: Pair) -> None:
    pair.client.send_binary(b"good")
    pair.client.send_text(b"bad")
    pair.client.send_binary(b"late")
    assert pair.exchange() == b"good"
    assert pair.is_over
    assert not pair.protocol.is_open
    assert pair.client.close_code == 1003
    assert pair.protocol.on_bytes(b"more") == (b"", b"", True)


def test_a_text_frame_and_a_close_in_one_read_close_the_connection(pair: Pair) -> None:
    pair.client.send_text(b"bad")
    pair.client.send_close(1000)
    assert pair.exchange() == b""
    assert pair.is_over


def test_a_close_by_the_client_is_answered(pair: Pair) -> None:
    pair.client.send_binary(b"last")
    pair.client.send_close(1001, "going")
    assert pair.exchange() == b"last"
    assert pair.is_over
    assert pair.client.close_code == 1001


def test_a_close_by_the_server_drops_later_input(pair: Pair) -> None:
    pair.client.send_binary(b"on its way")
    late = pair.outgoing()
    pair.receive(pair.protocol.close(1001))
    assert not pair.protocol.is_open
    assert pair.protocol.close() == b""
    assert pair.protocol.on_bytes(late) == (b"", b"", False)
    assert pair.exchange() == b""  # the client's close frame
    assert pair.is_over
    assert pair.client.close_code == 1001


def test_closing_before_the_websocket_is_open_sends_nothing() -> None:
    assert WebSocketProtocol(message_bytes_max=10).close() == b""


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_message_over_the_limit_ends_the_connection(pair: Pair, is_whole: bool) -> None:
    if is_whole:
        pair.client.send_binary(bytes(MESSAGE_BYTES_MAX + 1))
        assert pair.exchange() == b""
    else:
        pair.client.send_binary(bytes(MESSAGE_BYTES_MAX), fin=False)
        pair.client.send_continuation(b"x", fin=True)
        assert pair.exchange() == bytes(MESSAGE_BYTES_MAX)
    assert pair.is_over
    assert pair.client.close_code == 1009


def test_a_large_message_is_refused_by_its_header_alone(pair: Pair) -> None:
    assert pair.protocol.on_bytes(b"\x82\xff" + (1 << 40).to_bytes(8) + bytes(4))[2]


@pytest.mark.parametrize(
    "frame",
    [
        b"\x82\x01x",  # not masked
        b"\xc2\x80\0\0\0\0",  # a reserved bit
        b"\x83\x80\0\0\0\0",  # an unknown opcode
        b"\x80\x80\0\0\0\0",  # continues nothing
        b"\x09\x80\0\0\0\0",  # a ping in fragments
        b"\x88\x81\0\0\0\0x",  # a close code of one byte
    ],
)
def test_an_invalid_frame_closes_the_connection(pair: Pair, frame: bytes) -> None:
    payload, reply, is_over = pair.protocol.on_bytes(frame)
    assert (payload, is_over) == (b"", True)
    assert reply[:4] == b"\x88" + bytes([len(reply) - 2]) + (1002).to_bytes(2)


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 426),
        (b"POST / HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.0\r\n\r\n", 505),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/1.1\n\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nConnection: \xff,,;=\r\n\r\n", 400),
        (b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0", 400),  # MQTT without a WebSocket
        (b"\x16\x03\x01\x02\0\x01", 400),  # TLS
        (b"\r\n\r\n", 400),
        (b"x" * (REQUEST_BYTES_MAX + 1), 400),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 2000 + b"\r\n", 400),
    ],
)
def test_a_request_that_is_no_websocket_handshake_gets_an_error_and_is_closed(request_text: bytes, status: int) -> None:
    protocol = WebSocketProtocol(message_bytes_max=10)
    payload, reply, is_over = protocol.on_bytes(request_text)
    assert (payload, is_over, protocol.is_open) == (b"", True, False)
    assert reply.startswith(b"HTTP/1.1 %d " % status)
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"\r\nContent-Length: %d" % len(body) in head
    assert protocol.on_bytes(request_text) == (b"", b"", True)


def test_a_request_that_never_ends_is_rejected_at_the_size_limit() -> None:
    protocol = WebSocketProtocol(message_bytes_max=10)
    reads = next(number for number in range(10_000) if protocol.on_bytes(b"GET / HTTP/1.1\r\n"[:7])[2])
    assert reads * 7 <= REQUEST_BYTES_MAX + 7


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65_535, 65_536, 1_000_000])
def test_a_chunk_of_any_size_is_one_binary_frame(pair: Pair, size: int) -> None:
    chunk = b"x" * size
    assert len(frame_header(size)) <= 10
    pair.receive(pair.protocol.wrap(chunk))
    [frame] = pair.received_frames()
    assert (frame.opcode, frame.fin, bytes(frame.data)) == (Opcode.BINARY, True, chunk)


@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(1, 400), min_size=1, max_size=20))
def test_a_stream_split_anywhere_is_decoded_the_same(messages: list[bytes], cuts: list[int]) -> None:
    pair = Pair("mqtt")
    stream = pair.outgoing()
    pair.client.state = State.OPEN  # as if the response had arrived
    for message in messages:
        pair.client.send_binary(message[:100], fin=len(message) <= 100)
        if len(message) > 100:
            pair.client.send_continuation(message[100:], fin=True)
    stream += pair.outgoing()
    found, at, step = b"", 0, 0
    while at < len(stream):
        size = cuts[step % len(cuts)]
        payload, _, is_over = pair.protocol.on_bytes(stream[at : at + size])
        assert not is_over
        found, at, step = found + payload, at + size, step + 1
    assert found == b"".join(messages)


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans())
def test_arbitrary_bytes_raise_no_exception(pieces: list[bytes], is_opened: bool) -> None:
    pair = Pair("mqtt")
    if is_opened:
        pair.exchange()
    was_over = False
    for piece in pieces:
        payload, reply, is_over = pair.protocol.on_bytes(piece)
        assert not was_over or (payload, reply, is_over) == (b"", b"", True)
        was_over = is_over
