"""Pages: the answers to GET requests, and access control; no I/O.

Invariants:
- a request with a foreign Host is refused, and so is a WebSocket opened by a page of another origin: neither DNS rebinding nor a
  foreign page gets any data;
- other machines read nothing without the token, except the page itself, which contains no data;
- no answer lets a browser load anything from another origin.
"""

import gzip
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from http import HTTPStatus
from importlib.resources import files
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

import orjson

from milepost.dashboard.history import SceneHistory
from milepost.dashboard.scene import Scene

LIVE: Final = "/live"
"""The path of the WebSocket."""
NOT_BUILT: Final = "The page of the map is not built: run `make page` in the source tree, which needs Node.js."

_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/worker.js": ("worker.js", "text/javascript; charset=utf-8"),
    "/app.css": ("app.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/licences.txt": ("licences.txt", "text/plain; charset=utf-8"),
}
_PLAIN: Final = "text/plain; charset=utf-8"
_JSON: Final = "application/json"
_ALERTS: Final = "/alerts/"
_SAFE: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A GET request."""

    target: str
    host: str
    origin: str | None
    peer: str
    """The address of the client."""
    authorization: str = ""
    etag: str = ""
    """The ETag of the browser's cached copy."""


@dataclass(frozen=True, slots=True)
class PageResponse:
    """A response."""

    status: HTTPStatus
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Guard:
    """Access control: the accepted Host values, and the token."""

    hosts: frozenset[str]
    token: str

    def is_own_host(self, host: str) -> bool:
        """Return whether a Host header names this server."""
        return host.lower() in self.hosts

    def is_same_origin(self, origin: str | None) -> bool:
        """Return whether the request comes from a page of this server; clients that are not browsers send no Origin."""
        return origin is None or (origin.startswith(("http://", "https://")) and self.is_own_host(urlsplit(origin).netloc))

    def is_token(self, text: str) -> bool:
        """Return whether *text* is the token, in constant time for texts of equal length."""
        return compare_digest(text.encode(), self.token.encode())

    def may_read(self, peer: str, token: str) -> bool:
        """Return whether a client may read data."""
        return is_loopback(peer) or self.is_token(token)


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        return ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


class Pages:
    """Answers to GET requests."""

    def __init__(self, guard: Guard, scene: Scene, history: SceneHistory, *, roads: bytes | None) -> None:
        self._guard = guard
        self._scene = scene
        self._history = history
        self._roads = None if roads is None else gzip.compress(roads, 6)
        built = files("milepost.dashboard") / "_built"
        self._files = {
            path: (kind, gzip.compress((built / name).read_bytes(), 6))
            for path, (name, kind) in _FILES.items()
            if (built / name).is_file()
        }

    @property
    def is_built(self) -> bool:
        """Whether the files of the page exist."""
        return len(self._files) == len(_FILES)

    def find_refusal(self, request: PageRequest) -> PageResponse | None:
        """Return the refusal of a request, or None if it is allowed."""
        if not self._guard.is_own_host(request.host):
            return _text_response(HTTPStatus.MISDIRECTED_REQUEST, "Unknown host: add it to `hosts` in [dashboard].")
        if not self._guard.is_same_origin(request.origin):
            return _text_response(HTTPStatus.FORBIDDEN, "Requests from pages of another origin are refused.")
        return None

    def answer(self, request: PageRequest) -> PageResponse:
        """Return the answer to a request."""
        refusal = self.find_refusal(request)
        if refusal is not None:
            return refusal
        path, _, query = request.target.partition("?")
        if path in _FILES:
            return self._file(path, request)
        if not self._guard.may_read(request.peer, request.authorization.removeprefix("Bearer ")):
            return _text_response(
                HTTPStatus.UNAUTHORIZED, "Access from another machine needs the token, as `Authorization: Bearer TOKEN`."
            )
        if path == "/roads" and self._roads is not None:
            return _gzip_response(self._roads, "application/geo+json")
        if path == "/history":
            return self._past_scene(query)
        if path.startswith(_ALERTS):
            proof = self._scene.alerts.find_proof(unquote(path.removeprefix(_ALERTS)))
            if proof is not None:
                return _response(HTTPStatus.OK, _JSON, orjson.dumps(proof))
        return _text_response(HTTPStatus.NOT_FOUND, "Not found.")

    def _file(self, path: str, request: PageRequest) -> PageResponse:
        if not self.is_built:
            return _text_response(HTTPStatus.SERVICE_UNAVAILABLE, NOT_BUILT)
        kind, content = self._files[path]
        etag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Content-Security-Policy": _policy(request.host)}
        if request.etag == etag:
            return _response(HTTPStatus.NOT_MODIFIED, kind, b"", headers)
        return _gzip_response(content, kind, headers)

    def _past_scene(self, query: str) -> PageResponse:
        at = parse_qs(query).get("at", [""])[0]
        if not at.isdecimal() or len(at) > 16:
            return _text_response(HTTPStatus.BAD_REQUEST, "`at` must be a number of milliseconds since 1970.")
        found = self._history.find_at(int(at))
        if found is None:
            return _text_response(HTTPStatus.NOT_FOUND, "No scene is stored for that time.")
        return _gzip_response(found, "application/octet-stream")


def _policy(host: str) -> str:
    """Return the Content-Security-Policy: the page loads only its own files and connects only to this server."""
    return (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        f"connect-src 'self' ws://{host} wss://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _gzip_response(content: bytes, kind: str, headers: dict[str, str] | None = None) -> PageResponse:
    return _response(HTTPStatus.OK, kind, content, {"Content-Encoding": "gzip", **(headers or {})})


def _text_response(status: HTTPStatus, text: str) -> PageResponse:
    return _response(status, _PLAIN, f"{text}\n".encode())


def _response(status: HTTPStatus, kind: str, body: bytes, headers: dict[str, str] | None = None) -> PageResponse:
    usual = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store", "Connection": "close"}
    return PageResponse(status, {**_SAFE, **usual, **(headers or {})}, body)
