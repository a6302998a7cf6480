"""The HTTP server protocol, against the client side of h11 and against bytes that are not HTTP."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.listeners.http import HEAD_BYTES_MAX, RESPONSES_PER_READ_MAX, HttpProtocol

PAGE = b"up 1\n"


def handler(method: str, path: str) -> tuple[int, str, bytes]:
    assert method in ("GET", "HEAD")
    return (200, "text/plain", PAGE) if path == "/metrics" else (404, "text/plain", path.encode())


class HttpClient:
    """An h11 client and the server protocol, joined by bytes."""

    def __init__(self) -> None:
        self.protocol = HttpProtocol(handler)
        self.client = h11.Connection(h11.CLIENT)

    def request(self, method: str, target: str, *headers: tuple[str, str]) -> tuple[int, dict[str, str], bytes]:
        if self.client.our_state is h11.DONE:
            self.client.start_next_cycle()
        request = self.client.send(h11.Request(method=method, target=target, headers=[("Host", "edge"), *headers]))
        assert request is not None
        request += self.client.send(h11.EndOfMessage()) or b""
        self.client.receive_data(self.protocol.on_bytes(request))
        return self.read()

    def read(self) -> tuple[int, dict[str, str], bytes]:
        response = self.client.next_event()
        assert isinstance(response, h11.Response)
        content = b""
        while isinstance(event := self.client.next_event(), h11.Data):
            content += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        return response.status_code, {name.decode(): value.decode() for name, value in response.headers}, content


def test_a_page_is_served_many_times_on_one_connection() -> None:
    client = HttpClient()
    for _ in range(20):
        status, headers, content = client.request("GET", "/metrics?x=1")
        assert (status, headers["content-type"], content) == (200, "text/plain", PAGE)
        assert not client.protocol.is_over
    assert client.request("GET", "/nowhere")[::2] == (404, b"/nowhere")


def test_head_returns_the_headers_of_get_without_content() -> None:
    status, headers, content = HttpClient().request("HEAD", "/metrics")
    assert (status, headers["content-length"], content) == (200, str(len(PAGE)), b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_other_methods_are_refused(method: str) -> None:
    client = HttpClient()
    status, headers, _ = client.request(method, "/metrics")
    assert (status, headers["allow"], headers["connection"]) == (405, "GET, HEAD", "close")
    assert client.protocol.is_over


def test_the_client_may_ask_to_close() -> None:
    client = HttpClient()
    assert client.request("GET", "/metrics", ("Connection", "close"))[0] == 200
    assert client.protocol.is_over
    assert client.protocol.on_bytes(b"GET / HTTP/1.1\r\n\r\n") == b""


def test_http_1_0_is_answered_and_closed() -> None:
    protocol = HttpProtocol(handler)
    assert protocol.on_bytes(b"GET /metrics HTTP/1.0\r\n\r\n").endswith(PAGE)
    assert protocol.is_over


def test_an_upgrade_offer_is_ignored() -> None:
    client = HttpClient()
    for _ in range(2):
        status, _, content = client.request("GET", "/metrics", ("Upgrade", "h2c"), ("Connection", "upgrade"))
        assert (status, content) == (200, PAGE)


def test_input_that_is_not_http_is_refused_even_after_a_valid_request() -> None:
    protocol = HttpProtocol(handler)
    reply = protocol.on_bytes(b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n\x10\x0c\0\x04MQTT")
    assert [line for line in reply.split(b"\r\n") if line.startswith(b"HTTP/")] == [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 400 Bad Request",
    ]
    assert protocol.is_over


def test_a_client_that_closes_receives_no_response() -> None:
    protocol = HttpProtocol(handler)
    assert protocol.on_bytes(b"") == b""
    assert protocol.is_over


def test_responses_per_read_are_limited() -> None:
    protocol = HttpProtocol(handler)
    reply = protocol.on_bytes(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
    assert reply.count(PAGE) == RESPONSES_PER_READ_MAX
    assert reply.count(b"close") == 1
    assert protocol.is_over


def test_two_requests_in_one_read_are_both_answered() -> None:
    protocol = HttpProtocol(handler)
    assert protocol.on_bytes(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 2).count(PAGE) == 2
    assert not protocol.is_over


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"HEAD /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", 413),
        (b"HEAD /metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET http://edge/metrics HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400),  # no host
        (b"GET /metrics HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"\x10\x0c\0\x04MQTT\x04\x02\0\0\0\0", 400),
        (b"\x16\x03\x01\x02\0\x01", 400),
        (b"GET /" + b"x" * (HEAD_BYTES_MAX + 1), 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a: b\r\n" * 2_000, 431),
    ],
)
def test_an_invalid_request_gets_an_error_and_the_connection_closes(request_text: bytes, status: int) -> None:
    protocol = HttpProtocol(handler)
    reply = protocol.on_bytes(request_text)
    assert reply.startswith(b"HTTP/1.1 %d " % status)
    assert protocol.is_over


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_a_request_split_anywhere_gets_the_same_response(cuts: list[int]) -> None:
    request = b"GET /metrics HTTP/1.1\r\nHost: edge\r\nUser-Agent: test\r\n\r\n"
    whole, protocol, found, at, step = HttpProtocol(handler).on_bytes(request), HttpProtocol(handler), b"", 0, 0
    while at < len(request):
        size = cuts[step % len(cuts)]
        found, at, step = found + protocol.on_bytes(request[at : at + size]), at + size, step + 1
    assert found == whole


PIECES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [b"GET ", b"HEAD ", b"/metrics", b" HTTP/1.1", b"\r\n", b"Host: a", b"\r\n\r\n", b"Content-Length: ", b"3", b"\n", b":"]
    ),
)


@given(st.lists(PIECES, max_size=25), st.booleans())
def test_arbitrary_bytes_raise_no_exception(pieces: list[bytes], is_one_read: bool) -> None:
    protocol = HttpProtocol(handler)
    for data in [b"".join(pieces)] if is_one_read else pieces:
        was_closed = protocol.is_over
        reply = protocol.on_bytes(data)
        assert not reply or (reply.startswith(b"HTTP/1.1 ") and not was_closed)
