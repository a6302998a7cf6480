"""What the demo and its fleet say to each other: one JSON value a line.

demo ─▶ fleet    once: edges and where the authority's key is; then each second where everybody is; at the end: stop
fleet ─▶ demo    lists of events, each a list that begins with what it is
"""

from typing import Any, Final

import orjson

JOINED: Final = "joined"  # vehicle, at, carrier, edge
LEFT: Final = "left"  # vehicle, at
REPORTED: Final = "reported"  # vehicle, at, latitude, longitude, heading, speed; none for what was not said
ALERTED: Final = "alerted"  # vehicle, at, incident, phase, seen_at, is_again
NUMBERED: Final = "numbered"  # vehicle, at, number, is_again
SAID: Final = "said"  # number, at
SIGHTED: Final = "sighted"  # vehicle, at
MOVED: Final = "moved"  # vehicle, at, edge, took_s
FAULT: Final = "fault"  # vehicle, text


def line_of(value: Any) -> bytes:
    """A value as a line."""
    return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n"


def value_of(line: bytes) -> Any:
    """The value of a line."""
    return orjson.loads(line)
