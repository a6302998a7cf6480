"""What edges tell pipelines and what pipelines tell back, through topics of the site's log of which the centre knows nothing.

    topic        key        one record                                              written by      read by
    reports      the edge   columns of reports of places, those refused too         edges           pipelines
    deliveries   the edge   what became of one area message for some endpoints      edges           pipelines
    reputation   endpoint   how far one endpoint is believed; nothing: as others    pipelines       edges, incident desk

Instants in them are whole microseconds since 1970: what Spark counts in.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason

PIPELINES: Final = "pipelines"
"""Under which name pipelines ask for messages, those to areas too."""
REPORTS: Final = "reports"
DELIVERIES: Final = "deliveries"
REPUTATION: Final = "reputation"

MICROSECOND_NS: Final = 1_000


class Covered(IntEnum):
    """Who covers the place of a report."""

    HERE = 0
    ELSEWHERE = 1
    NOWHERE = 2


class Fate(Enum):
    """What became of an area message for one endpoint."""

    MATCHED = "matched"
    """It was in the area when the edge had the message."""
    SENT = "sent"
    """The last that is known of what is not acknowledged."""
    ACKNOWLEDGED = "acknowledged"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Why:
    """What told against an endpoint, or for it, and how often."""

    what: str
    count: int


@dataclass(frozen=True, slots=True)
class Reputation:
    """How far an endpoint is believed: 0 not at all, 1 as everybody."""

    endpoint: EndpointId
    score: float
    at: Instant
    reasons: tuple[Why, ...] = ()

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise Malformed(Reason.FIELD_RANGE, f"the score is {self.score}, not in 0..1")
