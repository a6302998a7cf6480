"""Records between edges and pipelines: columns of many rows to pipelines, one reputation to edges; one JSON object each.

Invariants:
- the columns of one record are equally long;
- unknown and invalid numbers (such as the latitude of a report that was refused for it) are null.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.pipeline_records import MICROSECOND_NS, Reputation, Why
from milepost.model.sites import EdgeRef
from milepost.wire.json_form.codec import VERSION, Codec, Form, Standalone, Whole
from milepost.wire.json_form.notations import Endpoint

REPUTATION_BYTES_MAX: Final = 10_000

Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Reports:
    """Position reports that an edge received, as columns; unknown numbers are NaN."""

    edge: EdgeRef
    endpoints: Sequence[str]
    seen_at: Numbers
    """Nanoseconds; microseconds in the record."""
    latitudes: Numbers
    longitudes: Numbers
    headings_deg: Numbers
    speeds_mps: Numbers
    verdicts: Numbers
    """0, or the number of the reason for which the report was refused."""
    covered: Numbers
    """As in `Covered`."""


def reports_to_record(reports: Reports) -> bytes:
    """Return the bytes of a record of reports."""
    return _columns_to_record(
        {
            "v": VERSION,
            "type": "reports",
            "edge": str(reports.edge),
            "endpoints": reports.endpoints,
            "seen_at_us": reports.seen_at // MICROSECOND_NS,
            "latitudes": reports.latitudes,
            "longitudes": reports.longitudes,
            "headings_deg": reports.headings_deg,
            "speeds_mps": reports.speeds_mps,
            "verdicts": reports.verdicts,
            "covered": reports.covered,
        }
    )


@dataclass(frozen=True, slots=True)
class Deliveries:
    """The delivery of one area message to some endpoints, as columns."""

    edge: EdgeRef
    source: str
    id: int
    topic: str
    endpoints: Sequence[str]
    states: Sequence[str]
    """As in `Fate`."""
    at_us: Sequence[int]
    reasons: Sequence[int]
    """0, or the number of the reason for which the message was dropped."""


def deliveries_to_record(deliveries: Deliveries) -> bytes:
    """Return the bytes of a record of deliveries."""
    return _columns_to_record(
        {
            "v": VERSION,
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
    )


def _columns_to_record(columns: dict[str, object]) -> bytes:
    contiguous = {name: np.ascontiguousarray(one) if isinstance(one, np.ndarray) else one for name, one in columns.items()}
    return orjson.dumps(contiguous, option=orjson.OPT_SERIALIZE_NUMPY)  # encodes arrays without converting them to lists


# Reputation of endpoints.


class WhyForm(Form, frozen=True):
    """A reason for a score."""

    MODEL = Why
    what: str
    count: Whole


def _reputation(endpoint: EndpointId, score: float, at_us: int, reasons: tuple[Why, ...]) -> Reputation:
    return Reputation(endpoint, score, Instant(at_us * MICROSECOND_NS), reasons)


class ReputationForm(Standalone, frozen=True, tag="reputation"):
    """The reputation of an endpoint."""

    MODEL = _reputation
    endpoint: Endpoint
    score: float
    at_us: Whole
    reasons: tuple[WhyForm, ...] = ()


_REPUTATION: Final = Codec[Reputation]("reputation", ReputationForm, bytes_max=REPUTATION_BYTES_MAX)


def reputation_from_record(data: bytes) -> Reputation:
    """Return the reputation of a record; raises only `Malformed`."""
    return _REPUTATION.decode(data)
