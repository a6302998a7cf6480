"""Reports: position, heading and speed of an endpoint (M7)."""

from dataclasses import dataclass
from typing import Final

from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import Instant, check_instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, shown

SPEED_MPS_MAX: Final = 500.0
"""Faster than any endpoint, slower than a value in wrong units."""


@dataclass(frozen=True, slots=True)
class Report:
    """A position report of an endpoint; `heading_deg` is clockwise from north; heading and speed may be unknown."""

    endpoint: EndpointId
    place: Place
    seen_at: Instant
    heading_deg: float | None = None
    speed_mps: float | None = None

    def __post_init__(self) -> None:
        endpoint_id(self.endpoint)
        check_instant("seen_at", self.seen_at)
        heading, speed = self.heading_deg, self.speed_mps
        if heading is not None and not 0 <= heading < 360:
            raise Malformed(Reason.HEADING_RANGE, f"the heading is {shown(heading)}")
        if speed is not None and not 0 <= speed <= SPEED_MPS_MAX:
            raise Malformed(Reason.SPEED_RANGE, f"the speed is {shown(speed)}, the limit {SPEED_MPS_MAX}")
