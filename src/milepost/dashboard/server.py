"""The server of the map: pages and one WebSocket, on one port.

A browser says hello first, with the token if it comes from another machine; then it gets a whole scene and diffs, as binary
frames, and answers to what it wants to publish, as text.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from logging import Logger
from time import time_ns
from typing import Any, Final

import orjson
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from milepost.dashboard.frames import frame_of
from milepost.dashboard.pages import LIVE, Answer, Asked, Guard, Pages
from milepost.dashboard.past import STEP_MS, Past
from milepost.dashboard.publishing import ASK_BYTES_MAX, Publisher, ask_from_json, entries_of
from milepost.dashboard.scene import Scene
from milepost.dashboard.viewers import Viewer
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason

TICK_S: Final = 0.2
VIEWERS_MAX: Final = 100
HELLO_S: Final = 10.0
UNSENT_BYTES_MAX: Final = 1_000_000
WRONG_TOKENS_MAX: Final = 5
"""After so many wrong tokens a connection is closed; each costs a second."""
_POLICY_VIOLATION: Final = 1008
_TRY_LATER: Final = 1013

_SILENT: Final = Logger("dashboard")  # what is worth a line is logged by whoever runs us
_SILENT.disabled = True

Append = Callable[[str, Sequence[Any]], Awaitable[None]]
"""Takes a site and records for its log; raises `LogUnavailable` or `LogRefused`."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What the map is of."""

    sites: tuple[str, ...]
    kinds: tuple[EventKind, ...]
    past_minutes: float
    roads: bytes | None


class MapServer:
    """Serves one scene to all who look."""

    def __init__(self, scene: Scene, guard: Guard, setup: Setup, append: Append) -> None:
        self._scene = scene
        self._guard = guard
        self._setup = setup
        self._append = append
        self._past = Past(minutes=setup.past_minutes)
        self.pages = Pages(guard, scene, self._past, roads=setup.roads)
        self._publisher = Publisher({kind.name: kind for kind in setup.kinds})
        self._viewers: set[Viewer] = set()

    async def listen(self, host: str, port: int) -> Server:
        """Begin to serve; raises OSError."""
        return await serve(
            self._serve,
            host,
            port,
            process_request=self._answer,
            compression=None,
            max_size=ASK_BYTES_MAX,
            write_limit=UNSENT_BYTES_MAX,
            server_header=None,
            logger=_SILENT,
        )

    def tick(self, now: Instant) -> None:
        """Bring the scene up to date and tell all who look."""
        self._scene.tick(now)
        frame = frame_of(self._scene.take_diff(now))
        for viewer in self._viewers:
            viewer.offer(frame)
        at_ms = now // 1_000_000
        if self._past.is_due(at_ms):
            self._past.keep(at_ms, self._whole())

    def _whole(self) -> bytes:
        return frame_of(self._scene.whole(Instant(time_ns())))

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """The answer to a request; nothing if it is for a WebSocket, which goes on."""
        headers = request.headers
        asked = Asked(
            request.path,
            _only(headers, "Host"),
            _only(headers, "Origin") if "Origin" in headers else None,
            str(connection.remote_address[0]),
            _only(headers, "Authorization"),
            _only(headers, "If-None-Match"),
        )
        if request.path == LIVE:
            refusal = self.pages.maybe_refusal(asked)
            return None if refusal is None else _response(refusal)
        return _response(self.pages.answer(asked))

    async def _serve(self, connection: ServerConnection) -> None:
        try:
            async with asyncio.timeout(HELLO_S):
                token = _token_in(await connection.recv())
        except (TimeoutError, Malformed):
            await connection.close(_POLICY_VIOLATION, "say hello first")
            return
        if not self._guard.may_read(str(connection.remote_address[0]), token):
            await asyncio.sleep(1)
            await connection.close(_POLICY_VIOLATION, "the token is needed from another machine")
            return
        if len(self._viewers) >= VIEWERS_MAX:
            await connection.close(_TRY_LATER, "too many look at the map already")
            return
        await self._show(connection)

    async def _show(self, connection: ServerConnection) -> None:
        viewer = Viewer()
        self._viewers.add(viewer)
        sending = asyncio.ensure_future(self._send(connection, viewer))
        try:
            await self._hear(connection)
        finally:
            self._viewers.discard(viewer)
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await sending

    async def _send(self, connection: ServerConnection, viewer: Viewer) -> None:
        await connection.send(orjson.dumps(self._welcome()).decode())
        while True:
            await connection.send(await viewer.next_frame(self._whole))

    async def _hear(self, connection: ServerConnection) -> None:
        wrong = 0
        async for text in connection:
            answer = await self._publish(text)
            wrong += answer.get("reason") == Reason.NOT_ALLOWED.name
            with contextlib.suppress(ConnectionClosed):
                await connection.send(orjson.dumps(answer).decode())
            if wrong >= WRONG_TOKENS_MAX:
                await connection.close(_POLICY_VIOLATION, "too many wrong tokens")

    async def _publish(self, text: str | bytes) -> dict[str, Any]:
        """Do what was asked, and say how it went."""
        number = 0
        try:
            ask = ask_from_json(text)
            number = ask.number
            if not self._guard.is_token(ask.token):
                await asyncio.sleep(1)
                raise Malformed(Reason.NOT_ALLOWED, "this is not the token that was printed at the start")
            message = self._publisher.message(ask, Instant(time_ns()))
            site = self._scene.site_at(ask.place) or self._setup.sites[0]
            await self._append(site, entries_of(message, site))
        except Malformed as fault:
            return {"type": "refused", "number": number, "reason": fault.reason.name, "detail": fault.detail}
        except Exception as fault:  # noqa: BLE001  # of the log: whoever asked hears of it
            return {"type": "refused", "number": number, "reason": "LOG", "detail": str(fault)}
        return {"type": "published", "number": number, "topic": message.topic, "key": f"{message.source}:{message.id}"}

    def _welcome(self) -> dict[str, Any]:
        """What a browser needs to know once."""
        return {
            "type": "welcome",
            "sites": self._setup.sites,
            "kinds": [kind.name for kind in self._setup.kinds],
            "has_roads": self._setup.roads is not None,
            "past_minutes": self._setup.past_minutes,
            "past_span_ms": self._past.span_ms(),
            "past_step_ms": STEP_MS,
            "tick_ms": round(TICK_S * 1_000),
        }


def _only(headers: Headers, name: str) -> str:
    """The one value of a header; who says it twice has not said it."""
    found = headers.get_all(name)
    return found[0] if len(found) == 1 else ""


def _response(answer: Answer) -> Response:
    return Response(answer.status, HTTPStatus(answer.status).phrase, Headers(answer.headers), answer.body)


def _token_in(text: str | bytes) -> str:
    """The token in a hello; empty if it has none."""
    try:
        hello = orjson.loads(text)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.MALFORMED, str(fault)) from None
    if not isinstance(hello, dict) or hello.get("type") != "hello" or not isinstance(hello.get("token", ""), str):
        raise Malformed(Reason.MALFORMED, "no hello")
    return str(hello.get("token", ""))
