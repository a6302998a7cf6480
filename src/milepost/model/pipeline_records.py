"""Records exchanged between edges and pipelines, through topics of the site's log that the central hub does not read.

    topic        key        one record                                              written by      read by
    reports      the edge   columns of position reports, refused ones included      edges           pipelines
    deliveries   the edge   outcome of one area message for some endpoints          edges           pipelines
    reputation   endpoint   score of one endpoint; no value: the default score      pipelines       edges, incident engine

Instants in them are whole microseconds since 1970, the unit of Spark's timestamps.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason

PIPELINES: Final = "pipelines"
"""Name under which pipelines subscribe to messages, area messages included."""
REPORTS: Final = "reports"
DELIVERIES: Final = "deliveries"
REPUTATION: Final = "reputation"

MICROSECOND_NS: Final = 1_000


class CoveringEdge(IntEnum):
    """Which edge covers the place of a report: this one, another one, or none."""

    HERE = 0
    ELSEWHERE = 1
    NOWHERE = 2


class DeliveryState(Enum):
    """Outcome of an area message for one endpoint."""

    MATCHED = "matched"
    """The endpoint was in the area when the edge received the message."""
    SENT = "sent"
    """The last known state of a message that is not acknowledged."""
    ACKNOWLEDGED = "acknowledged"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class ScoreReason:
    """A reason for or against an endpoint's reputation, with its count."""

    evidence: str
    count: int


@dataclass(frozen=True, slots=True)
class Reputation:
    """Trust in an endpoint's reports: 0 none, 1 the default."""

    endpoint: EndpointId
    score: float
    at: Instant
    reasons: tuple[ScoreReason, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise Malformed(Reason.FIELD_RANGE, f"the score is {self.score}, not in 0..1")
