import gzip
from http import HTTPStatus

import orjson
import pytest

from milepost.dashboard.history import SceneHistory
from milepost.dashboard.pages import Guard, PageRequest, Pages, is_loopback
from milepost.dashboard.scene import Scene
from milepost.model.incidents import EVENT_KINDS
from unit.dashboard.mirrors import START, alert, deliveries

TOKEN = "the right token"
GUARD = Guard(frozenset({"127.0.0.1:8470", "map.example.org"}), TOKEN)


def pages() -> Pages:
    scene, past = Scene(EVENT_KINDS, vehicles_max=10), SceneHistory(minutes=1)
    for fact in (alert(1), deliveries(1, ("car", "sent"))):
        scene.take("north", fact, START, START)
    past.add(1_000, b"a scene")
    return Pages(GUARD, scene, past, roads=b"{}")


def status(
    target: str, *, host: str = "127.0.0.1:8470", origin: str | None = None, peer: str = "127.0.0.1", token: str = ""
) -> HTTPStatus:
    return pages().answer(PageRequest(target, host, origin, peer, f"Bearer {token}" if token else "")).status


def test_existing_paths_are_served() -> None:
    found = pages()
    proof = found.answer(PageRequest("/alerts/%40service%2Fincidents%3A1", "127.0.0.1:8470", None, "127.0.0.1"))
    assert orjson.loads(proof.body)["endpoints"][0]["endpoint"] == "car"
    past = found.answer(PageRequest("/history?at=5000", "127.0.0.1:8470", None, "127.0.0.1"))
    assert gzip.decompress(past.body) == b"a scene"
    assert gzip.decompress(found.answer(PageRequest("/roads", "127.0.0.1:8470", None, "127.0.0.1")).body) == b"{}"
    assert status("/history?at=x") == status("/history") == HTTPStatus.BAD_REQUEST
    assert status("/alerts/@service/incidents:2") == status("/nothing") == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8470.evil.example"])
def test_an_unknown_host_is_refused(host: str) -> None:
    assert status("/roads", host=host) == HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize(
    "origin",
    ["null", "", "http://evil.example", "http://127.0.0.1:8471", "file://127.0.0.1:8470", "http://127.0.0.1:8470@evil.example"],
)
def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    assert status("/roads", origin=origin) == HTTPStatus.FORBIDDEN


def test_requests_of_the_own_page_are_served() -> None:
    assert status("/roads", origin="http://127.0.0.1:8470") == HTTPStatus.OK
    assert status("/roads", host="MAP.example.org", origin="https://map.example.org") == HTTPStatus.OK


@pytest.mark.parametrize("path", ["/roads", "/history?at=1", "/alerts/@service/incidents:1"])
def test_reading_from_another_machine_needs_the_token(path: str) -> None:
    assert status(path, peer="192.0.2.7") == HTTPStatus.UNAUTHORIZED
    assert status(path, peer="192.0.2.7", token="a wrong token!") == HTTPStatus.UNAUTHORIZED
    assert status(path, peer="192.0.2.7", token=TOKEN) == HTTPStatus.OK


def test_loopback_addresses_are_recognised() -> None:
    assert is_loopback("127.0.0.9")
    assert is_loopback("::1")
    assert not is_loopback("192.0.2.7")
    assert not is_loopback("localhost.evil.example")


def test_every_response_has_security_headers() -> None:
    for path in ("/roads", "/nothing", "/"):
        headers = pages().answer(PageRequest(path, "127.0.0.1:8470", None, "127.0.0.1")).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
