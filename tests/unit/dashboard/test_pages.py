import gzip
from http import HTTPStatus

import orjson
import pytest

from milepost.dashboard.pages import Asked, Guard, Pages, is_loopback
from milepost.dashboard.past import Past
from milepost.dashboard.scene import Scene
from milepost.model.incidents import EVENT_KINDS
from unit.dashboard.mirrors import START, alert, deliveries

TOKEN = "the right token"
GUARD = Guard(frozenset({"127.0.0.1:8470", "map.example.org"}), TOKEN)


def pages() -> Pages:
    scene, past = Scene(EVENT_KINDS, vehicles_max=10), Past(minutes=1)
    for fact in (alert(1), deliveries(1, ("car", "sent"))):
        scene.take("north", fact, START, START)
    past.keep(1_000, b"a scene")
    return Pages(GUARD, scene, past, roads=b"{}")


def status(
    target: str, *, host: str = "127.0.0.1:8470", origin: str | None = None, peer: str = "127.0.0.1", token: str = ""
) -> HTTPStatus:
    return pages().answer(Asked(target, host, origin, peer, f"Bearer {token}" if token else "")).status


def test_what_there_is_is_answered() -> None:
    found = pages()
    proof = found.answer(Asked("/alerts/desk%3A1", "127.0.0.1:8470", None, "127.0.0.1"))
    assert orjson.loads(proof.body)["endpoints"][0]["endpoint"] == "car"
    past = found.answer(Asked("/past?at=5000", "127.0.0.1:8470", None, "127.0.0.1"))
    assert gzip.decompress(past.body) == b"a scene"
    assert gzip.decompress(found.answer(Asked("/roads", "127.0.0.1:8470", None, "127.0.0.1")).body) == b"{}"
    assert status("/past?at=x") == status("/past") == HTTPStatus.BAD_REQUEST
    assert status("/alerts/desk:2") == status("/nothing") == HTTPStatus.NOT_FOUND


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:8470.evil.example"])
def test_a_host_that_is_not_ours_gets_nothing(host: str) -> None:
    assert status("/roads", host=host) == HTTPStatus.MISDIRECTED_REQUEST


@pytest.mark.parametrize(
    "origin",
    ["null", "", "http://evil.example", "http://127.0.0.1:8471", "file://127.0.0.1:8470", "http://127.0.0.1:8470@evil.example"],
)
def test_a_page_of_another_origin_gets_nothing(origin: str) -> None:
    assert status("/roads", origin=origin) == HTTPStatus.FORBIDDEN


def test_our_own_page_gets_what_it_asks_for() -> None:
    assert status("/roads", origin="http://127.0.0.1:8470") == HTTPStatus.OK
    assert status("/roads", host="MAP.example.org", origin="https://map.example.org") == HTTPStatus.OK


@pytest.mark.parametrize("path", ["/roads", "/past?at=1", "/alerts/desk:1"])
def test_from_another_machine_nothing_is_read_without_the_token(path: str) -> None:
    assert status(path, peer="192.0.2.7") == HTTPStatus.UNAUTHORIZED
    assert status(path, peer="192.0.2.7", token="a wrong token!") == HTTPStatus.UNAUTHORIZED
    assert status(path, peer="192.0.2.7", token=TOKEN) == HTTPStatus.OK


def test_loopback_is_known() -> None:
    assert is_loopback("127.0.0.9")
    assert is_loopback("::1")
    assert not is_loopback("192.0.2.7")
    assert not is_loopback("localhost.evil.example")


def test_every_answer_is_safe_to_show() -> None:
    for path in ("/roads", "/nothing", "/"):
        headers = pages().answer(Asked(path, "127.0.0.1:8470", None, "127.0.0.1")).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
