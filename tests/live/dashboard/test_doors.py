"""Who may do what with the map: hosts, origins, tokens, and what browsers are told not to load."""

import asyncio
import http.client

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from live.dashboard.conftest import City
from live.dashboard.maps import TOKEN

HELLO = orjson.dumps({"type": "hello"}).decode()


def got(city: City, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", city.map.port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def publication(**members: object) -> str:
    ask = {"type": "publish", "number": 7, "kind": "Collision", "latitude": 1.0, "longitude": 2.0, "radius_m": 100.0}
    return orjson.dumps(ask | members).decode()


async def answer_to(socket: ClientConnection, text: str) -> dict[str, object]:
    await socket.send(text)
    while True:
        found = await socket.recv()
        if isinstance(found, str) and (said := orjson.loads(found))["type"] != "welcome":
            return dict(said)


def test_the_page_loads_nothing_from_anywhere_else_and_is_framed_by_nobody(city: City) -> None:
    status, headers, _ = got(city, "/")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert got(city, "/", **{"If-None-Match": headers["etag"]})[0] == 304


@pytest.mark.parametrize("path", ["/nothing", "/alerts/nobody:1", "/../pyproject.toml", "/_built/app.js"])
def test_what_is_not_there_is_not_found(city: City, path: str) -> None:
    assert got(city, path)[0] == 404


def test_another_name_that_points_here_gets_nothing(city: City) -> None:
    assert got(city, "/", Host=f"evil.example:{city.map.port}")[0] == 421
    assert got(city, "/past?at=1", Origin="http://evil.example")[0] == 403


def test_a_page_of_another_origin_gets_no_websocket(city: City) -> None:
    async def ask() -> None:
        async with connect(f"ws://127.0.0.1:{city.map.port}/live", origin="http://evil.example"):  # type: ignore[arg-type]
            pass

    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(ask())
    assert refused.value.response.status_code == 403


def test_only_with_the_token_is_anything_published(city: City) -> None:
    async def ask() -> list[object]:
        async with connect(f"ws://127.0.0.1:{city.map.port}/live") as socket:
            await socket.send(HELLO)
            asks = [publication(), publication(token="guess"), publication(token=TOKEN, kind="Nonsense"), "no JSON"]
            answers = [await answer_to(socket, one) for one in asks]
            return [one["reason"] for one in answers]

    assert asyncio.run(ask()) == ["NOT_ALLOWED", "NOT_ALLOWED", "FIELD_RANGE", "MALFORMED"]


def test_who_guesses_tokens_is_cut_off(city: City) -> None:
    async def ask() -> None:
        async with connect(f"ws://127.0.0.1:{city.map.port}/live") as socket:
            await socket.send(HELLO)
            for _ in range(10):
                await answer_to(socket, publication(token="guess"))

    with pytest.raises(ConnectionClosed):
        asyncio.run(ask())
