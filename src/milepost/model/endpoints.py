"""Endpoints and sources: the names of clients, and of the edges and services that publish for the system itself.

    endpoint    truck-17              a client; sessions and `trust` establish its identity
    edge        @edge/edge-3          an edge, by the name in its settings and its certificate
    service     @service/incidents    a service of a site: the incident engine, a handler

Invariant: a name belongs to one kind of source, by its form alone. No endpoint can have the name of an edge or a service, nor one
that looks like it, whether or not that edge or service exists.
"""

from enum import Enum
from typing import Final, NewType
from unicodedata import category, normalize

from milepost.model.reasons import Malformed, Reason, shown
from milepost.model.tags import maybe_bad_character

EndpointId = NewType("EndpointId", str)
SystemSource = NewType("SystemSource", str)
"""The source of messages of an edge or a service."""

SourceId = EndpointId | SystemSource

ENDPOINT_ID_BYTES_MAX: Final = 128

_SYSTEM_MARK: Final = "@"
_UNSEEN: Final = frozenset({"Cf", "Cn", "Mn", "Me", "Zs", "Zl", "Zp"})
"""Categories of characters that leave the first visible character as it is."""
_BLANK: Final = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols that are displayed as blanks."""


class SourceKind(Enum):
    """The kinds of sources."""

    ENDPOINT = "endpoint"
    EDGE = "edge"
    SERVICE = "service"


def endpoint_id(text: str) -> EndpointId:
    """Return *text* as an endpoint's name: 1 to 128 bytes of UTF-8 without control characters, not like that of the system."""
    _check_name(text)
    if _looks_like_system(text):
        raise Malformed(Reason.ENDPOINT_ID, f"{shown(text)} begins with @: such names are for edges and services")
    return EndpointId(text)


def edge_source(name: str) -> SystemSource:
    """Return the source of the messages of an edge."""
    return _system_source(SourceKind.EDGE, name)


def service_source(name: str) -> SystemSource:
    """Return the source of the messages of a service."""
    return _system_source(SourceKind.SERVICE, name)


def source_id(text: str) -> SourceId:
    """Return *text* as the source of a message, of any kind."""
    if not isinstance(text, str) or not text.startswith(_SYSTEM_MARK):
        return endpoint_id(text)
    kind, _, name = text[1:].partition("/")
    if kind not in (SourceKind.EDGE.value, SourceKind.SERVICE.value):
        raise Malformed(Reason.ENDPOINT_ID, f"{shown(text)} is not @edge/NAME or @service/NAME")
    return _system_source(SourceKind(kind), name)


def kind_of_source(source: str) -> SourceKind:
    """Return the kind of a valid source."""
    if not source.startswith(_SYSTEM_MARK):
        return SourceKind.ENDPOINT
    return SourceKind(source[1:].partition("/")[0])


def maybe_endpoint(source: SourceId) -> EndpointId | None:
    """Return the source as an endpoint's name; None if it is an edge or a service."""
    return EndpointId(source) if kind_of_source(source) is SourceKind.ENDPOINT else None


def name_of_source(source: str) -> str:
    """Return the name of an endpoint, an edge or a service without its kind."""
    return source.partition("/")[2] if source.startswith(_SYSTEM_MARK) else source


def _system_source(kind: SourceKind, name: str) -> SystemSource:
    endpoint_id(name)
    return SystemSource(f"{_SYSTEM_MARK}{kind.value}/{name}")


def _check_name(text: str) -> None:
    if not isinstance(text, str) or not text:
        raise Malformed(Reason.ENDPOINT_ID, "it is empty")
    if (at := maybe_bad_character(text)) is not None:
        raise Malformed(Reason.ENDPOINT_ID, f"{text[at]!r} at {at}", at=at)
    if (size := len(text.encode())) > ENDPOINT_ID_BYTES_MAX:
        raise Malformed(Reason.ENDPOINT_ID, f"it has {size} bytes")


def _looks_like_system(text: str) -> bool:
    """Return whether the first visible character of a name is @, or one that is displayed like it."""
    if text.isascii():
        return text.lstrip(" ").startswith(_SYSTEM_MARK)
    characters = normalize("NFKC", text)
    visible = (character for character in characters if category(character) not in _UNSEEN and character not in _BLANK)
    return next(visible, "") == _SYSTEM_MARK
