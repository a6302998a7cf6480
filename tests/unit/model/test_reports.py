"""Reports: position, heading and speed, the latter two of which may be unknown (M7)."""

from math import inf, nan
from typing import Any

import pytest

from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import SPEED_MPS_MAX, Report

HERE = Place(40.0, -111.0)
BUS = EndpointId("bus-3")


def refused(*parts: Any, **changes: Any) -> Reason:
    with pytest.raises(Malformed) as caught:
        Report(*parts, **changes)
    return caught.value.reason


def test_heading_and_speed_may_be_unknown_which_is_not_zero() -> None:
    assert Report(BUS, HERE, Instant(5)).heading_deg is None
    assert Report(BUS, HERE, Instant(5)).speed_mps is None
    assert Report(BUS, HERE, Instant(5)) != Report(BUS, HERE, Instant(5), 0.0, 0.0)


@pytest.mark.parametrize(
    ("heading_deg", "speed_mps"), [(0, 0), (0.0, SPEED_MPS_MAX), (359.9999999999999, 1e-9), (None, 3), (90, None)]
)
def test_m7_a_valid_report_has_the_given_values(heading_deg: float | None, speed_mps: float | None) -> None:
    report = Report(BUS, HERE, Instant(5), heading_deg, speed_mps)
    assert (report.endpoint, report.place, report.seen_at) == (BUS, HERE, 5)
    assert (report.heading_deg, report.speed_mps) == (heading_deg, speed_mps)


@pytest.mark.parametrize("heading_deg", [360, 360.0, -0.1, nan, inf, -inf, 10**400])
def test_a_heading_is_from_0_up_to_but_not_360(heading_deg: float) -> None:
    assert refused(BUS, HERE, Instant(5), heading_deg) is Reason.HEADING_RANGE


@pytest.mark.parametrize("speed_mps", [-0.1, SPEED_MPS_MAX + 0.1, nan, inf, 10**400])
def test_a_speed_is_from_0_to_the_limit(speed_mps: float) -> None:
    assert refused(BUS, HERE, Instant(5), None, speed_mps) is Reason.SPEED_RANGE


@pytest.mark.parametrize("seen_at", [-1, FOREVER, FOREVER + 1, 1.0, True])
def test_a_report_needs_a_valid_instant(seen_at: Any) -> None:
    assert refused(BUS, HERE, seen_at) is Reason.TIME_RANGE


def test_a_report_needs_a_valid_endpoint_id() -> None:
    assert refused("", HERE, Instant(5)) is Reason.ENDPOINT_ID
