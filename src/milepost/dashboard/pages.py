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

from milepost.dashboard.past import Past
from milepost.dashboard.scene import Scene

LIVE: Final = "/live"
"""The path of the WebSocket."""
NOT_BUILT: Final = "The page is not built. In the source tree, with Node.js at hand: make page"

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
class Asked:
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
class Answer:
    """A response."""

    status: HTTPStatus
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Guard:
    """Access control: the accepted Host values, and the token."""

    hosts: frozenset[str]
    token: str

    def is_ours(self, host: str) -> bool:
        """Return whether a Host header names this server."""
        return host.lower() in self.hosts

    def is_same_origin(self, origin: str | None) -> bool:
        """Return whether the request comes from a page of this server; clients that are not browsers send no Origin."""
        return origin is None or (origin.startswith(("http://", "https://")) and self.is_ours(urlsplit(origin).netloc))

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

    def __init__(self, guard: Guard, scene: Scene, past: Past, *, roads: bytes | None) -> None:
        self._guard = guard
        self._scene = scene
        self._past = past
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

    def maybe_refusal(self, asked: Asked) -> Answer | None:
        """Return the refusal of a request, or None if it is allowed."""
        if not self._guard.is_ours(asked.host):
            return _said(HTTPStatus.MISDIRECTED_REQUEST, "This host is not in `hosts` of [dashboard].")
        if not self._guard.is_same_origin(asked.origin):
            return _said(HTTPStatus.FORBIDDEN, "Not from there.")
        return None

    def answer(self, asked: Asked) -> Answer:
        """Return the answer to a request."""
        refusal = self.maybe_refusal(asked)
        if refusal is not None:
            return refusal
        path, _, query = asked.target.partition("?")
        if path in _FILES:
            return self._file(path, asked)
        if not self._guard.may_read(asked.peer, asked.authorization.removeprefix("Bearer ")):
            return _said(HTTPStatus.UNAUTHORIZED, "The token is needed from another machine.")
        if path == "/roads" and self._roads is not None:
            return _packed(self._roads, "application/geo+json")
        if path == "/past":
            return self._of_the_past(query)
        if path.startswith(_ALERTS):
            proof = self._scene.alerts.maybe_proof(unquote(path.removeprefix(_ALERTS)))
            if proof is not None:
                return _answer(HTTPStatus.OK, _JSON, orjson.dumps(proof))
        return _said(HTTPStatus.NOT_FOUND, "There is nothing here.")

    def _file(self, path: str, asked: Asked) -> Answer:
        if not self.is_built:
            return _said(HTTPStatus.SERVICE_UNAVAILABLE, NOT_BUILT)
        kind, content = self._files[path]
        etag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache", "Content-Security-Policy": _policy(asked.host)}
        if asked.etag == etag:
            return _answer(HTTPStatus.NOT_MODIFIED, kind, b"", headers)
        return _packed(content, kind, headers)

    def _of_the_past(self, query: str) -> Answer:
        at = parse_qs(query).get("at", [""])[0]
        if not at.isdecimal() or len(at) > 16:
            return _said(HTTPStatus.BAD_REQUEST, "at is no number of milliseconds.")
        found = self._past.maybe_at(int(at))
        if found is None:
            return _said(HTTPStatus.NOT_FOUND, "Nothing is kept of that time.")
        return _packed(found, "application/octet-stream")


def _policy(host: str) -> str:
    """Return the Content-Security-Policy: the page loads only its own files and connects only to this server."""
    return (
        "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        f"connect-src 'self' ws://{host} wss://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _packed(content: bytes, kind: str, headers: dict[str, str] | None = None) -> Answer:
    return _answer(HTTPStatus.OK, kind, content, {"Content-Encoding": "gzip", **(headers or {})})


def _said(status: HTTPStatus, text: str) -> Answer:
    return _answer(status, _PLAIN, f"{text}\n".encode())


def _answer(status: HTTPStatus, kind: str, body: bytes, headers: dict[str, str] | None = None) -> Answer:
    usual = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store", "Connection": "close"}
    return Answer(status, {**_SAFE, **usual, **(headers or {})}, body)
