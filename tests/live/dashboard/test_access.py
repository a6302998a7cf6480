"""Access control of the map: hosts, origins, tokens and the content security policy."""

import asyncio
import http.client

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from live.dashboard.conftest import City
from live.dashboard.maps import TOKEN

HELLO = orjson.dumps({"type": "hello"}).decode()


def get(city: City, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", city.map.port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def publication(**members: object) -> str:
    request = {"type": "publish", "number": 7, "kind": "Collision", "latitude": 1.0, "longitude": 2.0, "radius_m": 100.0}
    return orjson.dumps(request | members).decode()


async def answer_to(socket: ClientConnection, text: str) -> dict[str, object]:
    await socket.send(text)
    while True:
        found = await socket.recv()
        if isinstance(found, str) and (answer := orjson.loads(found))["type"] != "welcome":
            return dict(answer)


def test_the_page_loads_nothing_from_other_origins_and_cannot_be_framed(city: City) -> None:
    status, headers, _ = get(city, "/")
    assert status == 200
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert get(city, "/", **{"If-None-Match": headers["etag"]})[0] == 304


@pytest.mark.parametrize("path", ["/nothing", "/alerts/unknown:1", "/../pyproject.toml", "/_built/app.js"])
def test_unknown_paths_are_not_found(city: City, path: str) -> None:
    assert get(city, path)[0] == 404


def test_foreign_hosts_and_origins_are_refused(city: City) -> None:
    assert get(city, "/", Host=f"evil.example:{city.map.port}")[0] == 421
    assert get(city, "/history?at=1", Origin="http://evil.example")[0] == 403


def test_a_page_of_another_origin_cannot_open_the_websocket(city: City) -> None:
    async def connect_and_send() -> None:
        async with connect(f"ws://127.0.0.1:{city.map.port}/live", origin="http://evil.example"):  # type: ignore[arg-type]
            pass

    with pytest.raises(InvalidStatus) as refused:
        asyncio.run(connect_and_send())
    assert refused.value.response.status_code == 403


def test_publishing_needs_the_token(city: City) -> None:
    async def connect_and_send() -> list[object]:
        async with connect(f"ws://127.0.0.1:{city.map.port}/live") as socket:
            await socket.send(HELLO)
            requests = [publication(), publication(token="guess"), publication(token=TOKEN, kind="Nonsense"), "no JSON"]
            answers = [await answer_to(socket, one) for one in requests]
            return [one["reason"] for one in answers]

    assert asyncio.run(connect_and_send()) == ["NOT_ALLOWED", "NOT_ALLOWED", "FIELD_RANGE", "MALFORMED"]


def test_a_client_that_guesses_tokens_is_disconnected(city: City) -> None:
    async def connect_and_send() -> None:
        async with connect(f"ws://127.0.0.1:{city.map.port}/live") as socket:
            await socket.send(HELLO)
            for _ in range(10):
                await answer_to(socket, publication(token="guess"))

    with pytest.raises(ConnectionClosed):
        asyncio.run(connect_and_send())
