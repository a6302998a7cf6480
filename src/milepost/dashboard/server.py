"""The server of the map: pages and one WebSocket, on one port.

    browser ── hello (with the token if it comes from another machine) ─▶ server
    browser ◀─ welcome (text), a whole scene, then a diff at each tick (binary frames) ── server
    browser ── hazard to publish, with the token (text) ─▶ server ─▶ log; published or refused (text) ─▶ browser

Invariants: at most `WAITING_MAX` diffs wait for one browser. A slower browser receives a whole scene instead of them, built when
the browser is ready for it; a browser without a scene receives no diffs.
"""

import asyncio
import contextlib
from collections import deque
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

from milepost.dashboard.history import STEP_MS, SceneHistory
from milepost.dashboard.pages import LIVE, Guard, PageRequest, PageResponse, Pages
from milepost.dashboard.publisher import PUBLISH_REQUEST_BYTES_MAX, Publisher, entries_of, publish_request_from_json
from milepost.dashboard.scene import Diff, Scene
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason

TICK_S: Final = 0.2
WAITING_MAX: Final = 10
"""Two seconds of diffs."""
VIEWERS_MAX: Final = 100
HELLO_TIMEOUT_S: Final = 10.0
UNSENT_BYTES_MAX: Final = 1_000_000
WRONG_TOKENS_MAX: Final = 5
"""Maximum wrong tokens per connection; each delays the answer by a second."""
_POLICY_VIOLATION: Final = 1008
_TRY_LATER: Final = 1013

_SILENT: Final = Logger("dashboard")  # logging is up to the process that runs the server
_SILENT.disabled = True

Append = Callable[[str, Sequence[Any]], Awaitable[None]]
"""Takes a site and records for its log; raises `LogUnavailable` or `LogRefused`."""


class Viewer:
    """The frames queued for one browser."""

    __slots__ = ("_is_woken", "_needs_whole", "_waiting", "skipped")

    def __init__(self) -> None:
        self._waiting: deque[bytes] = deque()
        self._needs_whole = True
        self._is_woken = asyncio.Event()
        self._is_woken.set()
        self.skipped = 0
        """Diffs that were skipped."""

    def offer(self, frame: bytes) -> None:
        """Add a diff."""
        if self._needs_whole:
            self.skipped += 1
            return
        self._waiting.append(frame)
        if len(self._waiting) > WAITING_MAX:
            self.skipped += len(self._waiting)
            self._waiting.clear()
            self._needs_whole = True
        self._is_woken.set()

    async def next_frame(self, whole: Callable[[], bytes]) -> bytes:
        """Wait for the next frame to send and return it; *whole* builds a whole scene."""
        await self._is_woken.wait()
        if self._needs_whole:
            self._needs_whole = False
            frame = whole()
        else:
            frame = self._waiting.popleft()
        if not self._waiting:
            self._is_woken.clear()
        return frame


def frame_of(diff: Diff) -> bytes:
    """Encode a diff.

    4 bytes   n, the length of the JSON, little-endian; a multiple of 4, which aligns the rows of vehicles
    n bytes   JSON: {"at", "whole", "tables", "removed", "names"}, padded with spaces
    the rest  vehicles, 20 bytes each, as in `ROW`
    """
    vehicles = diff.vehicles
    head = orjson.dumps(
        {
            "at": diff.at_ms,
            "whole": diff.is_whole,
            "tables": diff.tables,
            "removed": vehicles.removed,
            "names": {str(number): name for number, name in vehicles.names.items()},
        }
    )
    head += b" " * (-len(head) % 4)
    return len(head).to_bytes(4, "little") + head + vehicles.rows.tobytes()


@dataclass(frozen=True, slots=True)
class Setup:
    """The sites, event kinds and roads that the map shows."""

    sites: tuple[str, ...]
    kinds: tuple[EventKind, ...]
    history_minutes: float
    roads: bytes | None


class MapServer:
    """Serves one scene to all viewers."""

    def __init__(self, scene: Scene, guard: Guard, setup: Setup, append: Append) -> None:
        self._scene = scene
        self._guard = guard
        self._setup = setup
        self._append = append
        self._history = SceneHistory(minutes=setup.history_minutes)
        self.pages = Pages(guard, scene, self._history, roads=setup.roads)
        self._publisher = Publisher({kind.name: kind for kind in setup.kinds})
        self._viewers: set[Viewer] = set()

    async def listen(self, host: str, port: int) -> Server:
        """Start to serve; raise OSError if the port is unavailable."""
        return await serve(
            self._serve,
            host,
            port,
            process_request=self._answer,
            compression=None,
            max_size=PUBLISH_REQUEST_BYTES_MAX,
            write_limit=UNSENT_BYTES_MAX,
            server_header=None,
            logger=_SILENT,
        )

    def tick(self, now: Instant) -> None:
        """Update the scene and offer the diff to all viewers."""
        self._scene.tick(now)
        frame = frame_of(self._scene.take_diff(now))
        for viewer in self._viewers:
            viewer.offer(frame)
        at_ms = now // 1_000_000
        if self._history.is_due(at_ms):
            self._history.add(at_ms, self._whole())

    def _whole(self) -> bytes:
        return frame_of(self._scene.whole(Instant(time_ns())))

    def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Return the response to a request; None lets a WebSocket handshake continue."""
        headers = request.headers
        page_request = PageRequest(
            request.path,
            _only(headers, "Host"),
            _only(headers, "Origin") if "Origin" in headers else None,
            str(connection.remote_address[0]),
            _only(headers, "Authorization"),
            _only(headers, "If-None-Match"),
        )
        if request.path == LIVE:
            refusal = self.pages.find_refusal(page_request)
            return None if refusal is None else _response(refusal)
        return _response(self.pages.answer(page_request))

    async def _serve(self, connection: ServerConnection) -> None:
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                token = _token_in(await connection.recv())
        except (TimeoutError, Malformed):
            await connection.close(_POLICY_VIOLATION, "send a hello message first")
            return
        if not self._guard.may_read(str(connection.remote_address[0]), token):
            await asyncio.sleep(1)
            await connection.close(_POLICY_VIOLATION, "access from another machine needs the token")
            return
        if len(self._viewers) >= VIEWERS_MAX:
            await connection.close(_TRY_LATER, "too many viewers: try again later")
            return
        await self._serve_viewer(connection)

    async def _serve_viewer(self, connection: ServerConnection) -> None:
        viewer = Viewer()
        self._viewers.add(viewer)
        sending = asyncio.ensure_future(self._send(connection, viewer))
        try:
            await self._receive(connection)
        finally:
            self._viewers.discard(viewer)
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionClosed):
                await sending

    async def _send(self, connection: ServerConnection, viewer: Viewer) -> None:
        await connection.send(orjson.dumps(self._welcome()).decode())
        while True:
            await connection.send(await viewer.next_frame(self._whole))

    async def _receive(self, connection: ServerConnection) -> None:
        wrong = 0
        async for text in connection:
            answer = await self._publish(text)
            wrong += answer.get("reason") == Reason.NOT_ALLOWED.name
            with contextlib.suppress(ConnectionClosed):
                await connection.send(orjson.dumps(answer).decode())
            if wrong >= WRONG_TOKENS_MAX:
                await connection.close(_POLICY_VIOLATION, "too many wrong tokens")

    async def _publish(self, text: str | bytes) -> dict[str, Any]:
        """Publish a hazard; return the answer for the browser."""
        number = 0
        try:
            request = publish_request_from_json(text)
            number = request.number
            if not self._guard.is_token(request.token):
                await asyncio.sleep(1)
                raise Malformed(Reason.NOT_ALLOWED, "wrong token: use the one printed when the dashboard started")
            message = self._publisher.message(request, Instant(time_ns()))
            site = self._scene.site_at(request.place) or self._setup.sites[0]
            await self._append(site, entries_of(message, site))
        except Malformed as fault:
            return {"type": "refused", "number": number, "reason": fault.reason.name, "detail": fault.detail}
        except Exception as fault:  # noqa: BLE001  # a log failure: the browser receives it as the answer
            return {"type": "refused", "number": number, "reason": "LOG", "detail": str(fault)}
        return {"type": "published", "number": number, "topic": message.topic, "key": f"{message.source}:{message.id}"}

    def _welcome(self) -> dict[str, Any]:
        """Return the data that a browser needs once, at the start."""
        return {
            "type": "welcome",
            "sites": self._setup.sites,
            "kinds": [kind.name for kind in self._setup.kinds],
            "has_roads": self._setup.roads is not None,
            "history_minutes": self._setup.history_minutes,
            "history_span_ms": self._history.span_ms(),
            "history_step_ms": STEP_MS,
            "tick_ms": round(TICK_S * 1_000),
        }


def _only(headers: Headers, name: str) -> str:
    """Return the value of a header; a repeated one counts as missing."""
    found = headers.get_all(name)
    return found[0] if len(found) == 1 else ""


def _response(answer: PageResponse) -> Response:
    return Response(answer.status, HTTPStatus(answer.status).phrase, Headers(answer.headers), answer.body)


def _token_in(text: str | bytes) -> str:
    """Return the token in a hello; empty if it has none."""
    try:
        hello = orjson.loads(text)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.MALFORMED, str(fault)) from None
    if not isinstance(hello, dict) or hello.get("type") != "hello" or not isinstance(hello.get("token", ""), str):
        raise Malformed(Reason.MALFORMED, "the first message must be a hello")
    return str(hello.get("token", ""))
