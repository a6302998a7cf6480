"""Limits on what a message does: class, validity, size and distance of its area, by the rules that decide its rights.

Invariants:
- a message keeps the limits of every right it needs: to publish on its topic and, if it is addressed, of its verb;
- the place of a sender counts once its accepted reports reach back `rights_after_s`, so that a first position gives no rights;
- the distance that a sender may have moved since its last report is limited, whatever time its message states;
- the checks are listed in `LIMIT_CHECKS`; the first that fails gives the reason.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import numpy as np

from milepost.model.areas import Area
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import EARTH_RADIUS_M, Place, distance_m
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason, Refused
from milepost.vetting.access import AccessAction, SendRight
from milepost.vetting.messages import MessageLimits

MOVED_S_MAX: Final = 60.0
"""Maximum time of movement that is allowed for where `clock_behind_s_max` is 0."""


class SenderPosition(NamedTuple):
    """The last reported position of a sender, if any."""

    place: Place | None
    seen_at: Instant
    history_s: float
    """How far its plausible reports up to the last one reach back; 0 for a first report."""


UNKNOWN_POSITION: Final = SenderPosition(None, Instant(0), 0.0)


class SendCase(NamedTuple):
    """A message as its limits see it, and its sender."""

    priority: Priority
    own_priority: Priority
    """The class of the topic itself."""
    valid_until: Instant
    seen_at: Instant
    now: Instant
    place: Place | None
    area: Area | None
    """The area of a geocast."""
    position: SenderPosition
    limits: MessageLimits


class LimitCheck(NamedTuple):
    """One check: the key of the limit, its reason code, and a function that describes the fault, if there is one."""

    key: str
    reason: Reason
    maybe_fault: Callable[[SendRight, SendCase], str | None]


def vet_limits(rights: Iterable[SendRight], case: SendCase) -> Refused | None:
    """Check a message against the limits of all rights that it needs."""
    for right in rights:
        for check in LIMIT_CHECKS:
            fault = check.maybe_fault(right, case)
            if fault is not None:
                return Refused(check.reason, f"{fault} ({right.decided_by})")
    return None


def maybe_too_urgent(right: SendRight, case: SendCase) -> str | None:
    """Describe a class that is too urgent; messages that only publish may have the class of their topic."""
    allowed = most_urgent(right, case.own_priority)
    if case.priority >= allowed:
        return None
    return f"the class is {case.priority.name.lower()}, at most {allowed.name.lower()} is allowed"


def most_urgent(right: SendRight, own_priority: Priority) -> Priority:
    """Return the most urgent class that a right allows."""
    allowed = right.rule.priority
    return min(allowed, own_priority) if right.verb is AccessAction.PUBLISH else allowed


def maybe_too_long_valid(right: SendRight, case: SendCase) -> str | None:
    """Describe a validity that is too long; the clock of the sender may be ahead as far as allowed."""
    if not right.rule.valid_s:
        return None
    if case.valid_until == FOREVER:
        return f"the message is valid for ever, at most {right.rule.valid_s:g} s are allowed"
    valid_s = (case.valid_until - case.now) / SECOND_NS
    if valid_s <= right.rule.valid_s + case.limits.clock_ahead_s_max:
        return None
    return f"the message is valid for {valid_s:.0f} s, at most {right.rule.valid_s:g} s are allowed"


def maybe_too_wide(right: SendRight, case: SendCase) -> str | None:
    """Describe an area that is too large."""
    if not right.rule.radius_m or case.area is None:
        return None
    radius_m = case.area.cap.radius_m
    return (
        None
        if radius_m <= right.rule.radius_m
        else f"the area has a radius of {radius_m:.0f} m, at most {right.rule.radius_m:g} m are allowed"
    )


def maybe_unplaced(right: SendRight, case: SendCase) -> str | None:
    """Describe a sender whose position is not known."""
    is_unknown = _needs_position(right, case) and case.position.place is None
    return "the position of the sender is unknown" if is_unknown else None


def maybe_too_new(right: SendRight, case: SendCase) -> str | None:
    """Describe a position without a history that makes it plausible."""
    after_s, history_s = case.limits.rights_after_s, case.position.history_s
    if not _needs_position(right, case) or history_s >= after_s:
        return None
    return f"the reports of the sender reach back {history_s:.1f} s: report your position for {after_s:g} s before sending this"


def maybe_too_far_away(right: SendRight, case: SendCase) -> str | None:
    """Describe a place or area that reaches too far from the sender; how far it may have moved since its report is allowed."""
    start = case.position.place
    if not right.rule.within_m or start is None:
        return None
    reach_m, what = (0.0, "place") if case.place is None else (distance_m(case.place, start), "place")
    if case.area is not None and (farthest_m := _farthest_m(case.area, start)) > reach_m:
        reach_m, what = farthest_m, "area"
    gap_s = abs(case.seen_at - case.position.seen_at) / SECOND_NS
    moved_m = case.limits.move_mps_max * min(gap_s, case.limits.clock_behind_s_max or MOVED_S_MAX)
    if reach_m <= right.rule.within_m + moved_m:
        return None
    return f"the {what} reaches {reach_m:.0f} m from the position of the sender, at most {right.rule.within_m:g} m are allowed"


LIMIT_CHECKS: Final = (
    LimitCheck("priority", Reason.PRIORITY_TOO_HIGH, maybe_too_urgent),
    LimitCheck("valid_s", Reason.VALIDITY_TOO_LONG, maybe_too_long_valid),
    LimitCheck("radius_m", Reason.AREA_OVER_LIMIT, maybe_too_wide),
    LimitCheck("within_m", Reason.PLACE_NOT_SEEN, maybe_unplaced),
    LimitCheck("within_m", Reason.POSITION_TOO_NEW, maybe_too_new),
    LimitCheck("within_m", Reason.PLACE_NOT_SEEN, maybe_too_far_away),
)


def _needs_position(right: SendRight, case: SendCase) -> bool:
    return bool(right.rule.within_m) and not (case.place is None and case.area is None)


def _farthest_m(area: Area, start: Place) -> float:
    """Return an upper bound of the distance to the farthest point of an area."""
    centre, place = area.cap.centre, start.vector
    angle = float(np.arctan2(np.linalg.norm(np.cross(centre, place)), centre @ place))
    return (angle + area.cap.angle_rad) * EARTH_RADIUS_M
