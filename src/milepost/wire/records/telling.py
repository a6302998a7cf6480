"""What edges and pipelines tell each other: columns of many rows out, one reputation in; JSON, one object each.

What must hold: columns of one record are equally long. Numbers that cannot be, such as the latitude of a report that was refused
for it, are null, as are those that were not said.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from milepost.model.endpoints import endpoint_id
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import EdgeRef
from milepost.model.telling import MICROSECOND_NS, Reputation, Why
from milepost.wire.json_form import reading
from milepost.wire.json_form.reading import Members

REPUTATION_BYTES_MAX: Final = 10_000
REPUTATION_MEMBERS: Final = ("type", "endpoint", "score", "at_us", "reasons")
WHY_MEMBERS: Final = ("what", "count")

Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """Reports of places that an edge heard, as columns; what is not known is NaN."""

    edge: EdgeRef
    endpoints: Sequence[str]
    seen_at: Numbers
    """Nanoseconds, as everywhere; microseconds in the record."""
    latitudes: Numbers
    longitudes: Numbers
    headings_deg: Numbers
    speeds_mps: Numbers
    verdicts: Numbers
    """0, or the number of the reason for which it was refused."""
    covered: Numbers
    """As in `Covered`."""


def reports_to_record(reports: Reports) -> bytes:
    """The columns, as the log has them."""
    found = {
        "type": "reports",
        "edge": str(reports.edge),
        "endpoints": reports.endpoints,
        "seen_at_us": reports.seen_at // MICROSECOND_NS,
        "latitudes": np.ascontiguousarray(reports.latitudes),
        "longitudes": np.ascontiguousarray(reports.longitudes),
        "headings_deg": np.ascontiguousarray(reports.headings_deg),
        "speeds_mps": np.ascontiguousarray(reports.speeds_mps),
        "verdicts": reports.verdicts,
        "covered": reports.covered,
    }
    return orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY)


@dataclass(frozen=True, slots=True)
class Deliveries:
    """What became of one message to an area for some endpoints, as columns."""

    edge: EdgeRef
    source: str
    id: int
    topic: str
    endpoints: Sequence[str]
    states: Sequence[str]
    """As in `Fate`."""
    at_us: Sequence[int]
    reasons: Sequence[int]
    """0, or the number of the reason for which it was dropped."""


def deliveries_to_record(deliveries: Deliveries) -> bytes:
    """The columns, as the log has them."""
    found = {
        "type": "deliveries",
        "edge": str(deliveries.edge),
        "source": deliveries.source,
        "id": str(deliveries.id),
        "topic": deliveries.topic,
        "endpoints": deliveries.endpoints,
        "states": deliveries.states,
        "at_us": deliveries.at_us,
        "reasons": deliveries.reasons,
    }
    return orjson.dumps(found)


def reputation_from_record(data: bytes) -> Reputation:
    """The reputation that stands in the log; raises nothing but `Malformed`."""
    if len(data) > REPUTATION_BYTES_MAX:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"{len(data)} bytes, {REPUTATION_BYTES_MAX} are allowed")
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.MALFORMED, f"no JSON: {fault}") from None
    members = Members(value, "reputation", REPUTATION_MEMBERS, kind="reputation")
    return Reputation(
        endpoint_id(members.need("endpoint", reading.text)),
        members.need("score", reading.number),
        Instant(members.need("at_us", reading.integer) * MICROSECOND_NS),
        members.maybe("reasons", _read_reasons, ()),
    )


def _read_reasons(value: object, where: str) -> tuple[Why, ...]:
    return tuple(_read_why(one, f"{where}[{at}]") for at, one in enumerate(reading.array(value, where)))


def _read_why(value: object, where: str) -> Why:
    members = Members(value, where, WHY_MEMBERS)
    return Why(members.need("what", reading.text), members.need("count", reading.integer))
