"""Questions about the past: what, where, when, and after which message to go on.

    {"query": "collision & i80", "area": "circle 40.76,-111.89 500", "frame": "last 2 hours", "after": "1900000000000000-17"}

Each member may be left out. An area is a text as everywhere, or GeoJSON; a frame is a text as `milepost.wire.times` has it.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from milepost.model.areas import Area
from milepost.model.frames import ALWAYS, Frame
from milepost.model.instants import Instant
from milepost.model.queries import Query, parse_query
from milepost.model.reasons import Malformed, Reason
from milepost.wire.asks.texts import area_from_text
from milepost.wire.json_form import reading
from milepost.wire.json_form.messages import read_area
from milepost.wire.json_form.reading import Members
from milepost.wire.times import frame_from_text

MEMBERS: Final = ("query", "area", "frame", "after")

_TOKEN: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")


class Token(NamedTuple):
    """Where a batch of answers ended: at the message seen then, with this offset in the log."""

    seen_at_us: int = -1
    offset: int = -1

    def __str__(self) -> str:
        return f"{self.seen_at_us}-{self.offset}"


FROM_THE_FIRST: Final = Token()


@dataclass(frozen=True, slots=True)
class Past:
    """One question."""

    query: Query | None = None
    area: Area | None = None
    frame: Frame = ALWAYS
    after: Token = FROM_THE_FIRST


def past_from_json(value: object, where: str, now: Instant) -> Past:
    """The question that an object asks; raises nothing but `Malformed`."""
    members = Members(value, where, MEMBERS)
    return Past(
        members.maybe("query", lambda text, at: parse_query(reading.text(text, at)), None),
        members.maybe("area", _area, None),
        members.maybe("frame", lambda text, at: frame_from_text(reading.text(text, at), now), ALWAYS),
        members.maybe("after", lambda text, at: token_from_text(reading.text(text, at)), FROM_THE_FIRST),
    )


def token_from_text(text: str) -> Token:
    """The token that an earlier answer gave."""
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise Malformed(Reason.FIELD_RANGE, f"{text[:40]!r} is not where an answer ended: give what it said as `more`")
    return Token(int(found[1]), int(found[2]))


def _area(value: object, where: str) -> Area:
    return area_from_text(value) if isinstance(value, str) else read_area(value, where)
