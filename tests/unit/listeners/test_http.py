"""The HTTP end, against the client's end of h11, and against bytes that are not HTTP."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.listeners.http import ANSWERS_AT_ONCE_MAX, HEAD_BYTES_MAX, HttpEnd

PAGE = b"up 1\n"


def answer(method: str, path: str) -> tuple[int, str, bytes]:
    assert method in ("GET", "HEAD")
    return (200, "text/plain", PAGE) if path == "/metrics" else (404, "text/plain", path.encode())


class Visitor:
    """A client and our end, with nothing but bytes between them."""

    def __init__(self) -> None:
        self.end = HttpEnd(answer)
        self.client = h11.Connection(h11.CLIENT)

    def ask(self, method: str, target: str, *headers: tuple[str, str]) -> tuple[int, dict[str, str], bytes]:
        if self.client.our_state is h11.DONE:
            self.client.start_next_cycle()
        request = self.client.send(h11.Request(method=method, target=target, headers=[("Host", "edge"), *headers]))
        assert request is not None
        request += self.client.send(h11.EndOfMessage()) or b""
        self.client.receive_data(self.end.on_bytes(request))
        return self.read()

    def read(self) -> tuple[int, dict[str, str], bytes]:
        response = self.client.next_event()
        assert isinstance(response, h11.Response)
        content = b""
        while isinstance(event := self.client.next_event(), h11.Data):
            content += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        return response.status_code, {name.decode(): value.decode() for name, value in response.headers}, content


def test_a_page_is_served_again_and_again_on_one_connection() -> None:
    visitor = Visitor()
    for _ in range(20):
        status, headers, content = visitor.ask("GET", "/metrics?x=1")
        assert (status, headers["content-type"], content) == (200, "text/plain", PAGE)
        assert not visitor.end.is_over
    assert visitor.ask("GET", "/nowhere")[::2] == (404, b"/nowhere")


def test_head_gives_the_same_without_the_content() -> None:
    status, headers, content = Visitor().ask("HEAD", "/metrics")
    assert (status, headers["content-length"], content) == (200, str(len(PAGE)), b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get"])
def test_other_methods_are_refused(method: str) -> None:
    visitor = Visitor()
    status, headers, _ = visitor.ask(method, "/metrics")
    assert (status, headers["allow"], headers["connection"]) == (405, "GET, HEAD", "close")
    assert visitor.end.is_over


def test_the_client_may_ask_to_close() -> None:
    visitor = Visitor()
    assert visitor.ask("GET", "/metrics", ("Connection", "close"))[0] == 200
    assert visitor.end.is_over
    assert visitor.end.on_bytes(b"GET / HTTP/1.1\r\n\r\n") == b""


def test_http_1_0_is_answered_and_closed() -> None:
    end = HttpEnd(answer)
    assert end.on_bytes(b"GET /metrics HTTP/1.0\r\n\r\n").endswith(PAGE)
    assert end.is_over


def test_an_offer_to_speak_something_else_is_passed_over() -> None:
    visitor = Visitor()
    for _ in range(2):
        status, _, content = visitor.ask("GET", "/metrics", ("Upgrade", "h2c"), ("Connection", "upgrade"))
        assert (status, content) == (200, PAGE)


def test_what_is_not_http_is_refused_also_after_a_good_request() -> None:
    end = HttpEnd(answer)
    reply = end.on_bytes(b"HEAD /metrics HTTP/1.1\r\nHost: a\r\n\r\n\x10\x0c\0\x04MQTT")
    assert [line for line in reply.split(b"\r\n") if line.startswith(b"HTTP/")] == [
        b"HTTP/1.1 200 OK",
        b"HTTP/1.1 400 Bad Request",
    ]
    assert end.is_over


def test_a_client_that_leaves_gets_nothing() -> None:
    end = HttpEnd(answer)
    assert end.on_bytes(b"") == b""
    assert end.is_over


def test_one_read_is_answered_only_so_often() -> None:
    end = HttpEnd(answer)
    reply = end.on_bytes(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 100)
    assert reply.count(PAGE) == ANSWERS_AT_ONCE_MAX
    assert reply.count(b"close") == 1
    assert end.is_over


def test_two_requests_in_one_read_are_both_answered() -> None:
    end = HttpEnd(answer)
    assert end.on_bytes(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n" * 2).count(PAGE) == 2
    assert not end.is_over


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
def test_what_cannot_be_answered_is_refused_and_over(request_text: bytes, status: int) -> None:
    end = HttpEnd(answer)
    reply = end.on_bytes(request_text)
    assert reply.startswith(b"HTTP/1.1 %d " % status)
    assert end.is_over


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_however_a_request_is_cut_the_answer_is_the_same(cuts: list[int]) -> None:
    request = b"GET /metrics HTTP/1.1\r\nHost: edge\r\nUser-Agent: test\r\n\r\n"
    whole, end, found, at, turn = HttpEnd(answer).on_bytes(request), HttpEnd(answer), b"", 0, 0
    while at < len(request):
        size = cuts[turn % len(cuts)]
        found, at, turn = found + end.on_bytes(request[at : at + size]), at + size, turn + 1
    assert found == whole


PIECES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [b"GET ", b"HEAD ", b"/metrics", b" HTTP/1.1", b"\r\n", b"Host: a", b"\r\n\r\n", b"Content-Length: ", b"3", b"\n", b":"]
    ),
)


@given(st.lists(PIECES, max_size=25), st.booleans())
def test_any_bytes_are_taken_without_a_fault(pieces: list[bytes], is_one_read: bool) -> None:
    end = HttpEnd(answer)
    for data in [b"".join(pieces)] if is_one_read else pieces:
        was_over = end.is_over
        reply = end.on_bytes(data)
        assert not reply or (reply.startswith(b"HTTP/1.1 ") and not was_over)
