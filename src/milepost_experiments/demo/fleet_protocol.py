"""The protocol between the demo and its fleet process: one JSON value per line.

demo ─▶ fleet    once: edges and the path of the certificate authority's key; then each second all positions; at the end: stop
fleet ─▶ demo    lists of events, each a list that begins with its type
"""

from typing import Any, Final

import orjson

JOINED: Final = "joined"  # vehicle, at, protocol, edge
LEFT: Final = "left"  # vehicle, at
REPORTED: Final = "reported"  # vehicle, at, latitude, longitude, heading, speed; null if not reported
ALERTED: Final = "alerted"  # vehicle, at, incident, phase, seen_at, is_duplicate
NUMBERED: Final = "numbered"  # vehicle, at, number, is_duplicate
PUBLISHED: Final = "published"  # number, at
SIGHTED: Final = "sighted"  # vehicle, at
MOVED: Final = "moved"  # vehicle, at, edge, took_s
FAULT: Final = "fault"  # vehicle, text


def line_of(value: Any) -> bytes:
    """Encode a value as a line."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"


def value_of(line: bytes) -> Any:
    """Decode the value of a line."""
    return orjson.loads(line)
