"""What an application asks for, checked and put into one form before anything is sent."""

from time import time_ns

from milepost.client.values import Wish
from milepost.model.areas import Area, Around
from milepost.model.frames import ALWAYS, Frame
from milepost.model.instants import Instant
from milepost.model.queries import Query, parse_query
from milepost.wire.asks.texts import where_from_text
from milepost.wire.times import frame_from_text


def wish_of(
    topic_filter: str,
    *,
    query: Query | str | None,
    area: Area | Around | str | None,
    frame: Frame | str | None,
    qos: int,
    share: str | None,
) -> Wish:
    """The wish; texts are read as `docs/reference/asking.md` says, and refused as `Malformed`."""
    return Wish(
        filter=topic_filter,
        query=parse_query(query) if isinstance(query, str) else query,
        area=where_from_text(area) if isinstance(area, str) else area,
        frame=frame_from_text(frame, Instant(time_ns())) if isinstance(frame, str) else frame or ALWAYS,
        phrase=frame if isinstance(frame, str) else "",
        qos=qos,
        share=share,
    )
