"""Messages: plausibility checks apart from topics (`access`) and payloads (M27).

The checks are listed in `CHAIN`; the first that fails gives the reason. Messages of the system itself, such as alerts, have no
sender to be compared with and are not checked here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, assert_never

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Area, touches
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import MESSAGE_BYTES_MAX, Message
from milepost.model.places import Place, distance_m
from milepost.model.reasons import Reason, Refused, shown
from milepost.vetting.reports import LIMIT_MOST


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits on messages."""

    bytes_max: int = MESSAGE_BYTES_MAX
    """Maximum size of a message as received."""
    clock_ahead_s_max: float = 2.0
    """Maximum time that `seen_at` may lie in the future; 0: any."""
    move_mps_max: float = 120.0
    """Maximum speed of a sender between its last report and its message; 0: any."""

    def __post_init__(self) -> None:
        if self.bytes_max < 1:
            raise ValueError(f"bytes_max is {self.bytes_max}, which would let nothing through; at least 1")
        for name in ("clock_ahead_s_max", "move_mps_max"):
            if not 0 <= getattr(self, name) <= LIMIT_MOST:
                raise ValueError(f"{name} is {getattr(self, name)}, not in 0..{LIMIT_MOST:.0f}")


class Stand(NamedTuple):
    """The last reported position of a sender, if any, and the maximum distance to a place that it names."""

    within_m: float
    place: Place | None
    seen_at: Instant
    """Time of the position; long ago if only the position was restored."""


class Case(NamedTuple):
    """The input of a check."""

    message: Message
    sender: EndpointId
    size: int
    limits: MessageLimits
    now: Instant
    coverage: Area | None
    stand: Stand | None


class Check(NamedTuple):
    """One check of the chain: its name, its reason code, and a function that describes the fault, if there is one."""

    name: str
    reason: Reason
    maybe_fault: Callable[[Case], str | None]


def vet_message(
    message: Message,
    sender: EndpointId,
    limits: MessageLimits,
    now: Instant,
    *,
    size: int,
    coverage: Area | None = None,
    stand: Stand | None = None,
) -> Refused | None:
    """Check a message of `size` bytes from `sender`; with `stand`, places it names must be near the sender."""
    case = Case(message, sender, size, limits, now, coverage, stand)
    for check in CHAIN:
        fault = check.maybe_fault(case)
        if fault is not None:
            return Refused(check.reason, fault)
    return None


def maybe_too_large(case: Case) -> str | None:
    """Describe a message that is too large."""
    if case.size <= case.limits.bytes_max:
        return None
    return f"the message has {case.size} bytes, {case.limits.bytes_max} are allowed"


def maybe_forged(case: Case) -> str | None:
    """Describe a source that is not the sender."""
    if case.message.source == case.sender:
        return None
    return f"{shown(case.sender)} sent it as {shown(case.message.source)}"


def maybe_ahead(case: Case) -> str | None:
    """Describe a message seen too far in the future."""
    ahead_ns, limit_s = case.message.seen_at - case.now, case.limits.clock_ahead_s_max
    if not limit_s or ahead_ns <= round(limit_s * SECOND_NS):
        return None
    return f"it was seen {ahead_ns / SECOND_NS:.1f} s from now, {limit_s:g} s are allowed"


def maybe_not_covered(case: Case) -> str | None:
    """Describe an area of which nothing is covered."""
    area = _maybe_area(case.message.address)
    if area is None or case.coverage is None or touches(area, case.coverage):
        return None
    return "nothing of the area is covered"


def maybe_not_there(case: Case) -> str | None:
    """Describe a place that the sender cannot have been near; the distance it may have moved since its last report is allowed."""
    stand, place = case.stand, case.message.place
    if stand is None or place is None:
        return None
    if stand.place is None:
        return f"it names a place, and nothing is known of where {shown(case.sender)} is: let it report first"
    gap_s, speed = abs(case.message.seen_at - stand.seen_at) / SECOND_NS, case.limits.move_mps_max
    apart_m = distance_m(place, stand.place)
    if not speed or apart_m <= stand.within_m + speed * gap_s:
        return None
    return f"it is of a place {apart_m:.0f} m from where {shown(case.sender)} is, {stand.within_m:g} m are allowed"


CHAIN: Final = (
    Check("not too large", Reason.MESSAGE_TOO_LARGE, maybe_too_large),
    Check("in the sender's name", Reason.SOURCE_FORGED, maybe_forged),
    Check("not from the future", Reason.CLOCK_AHEAD, maybe_ahead),
    Check("to an area within reach", Reason.AREA_NOT_COVERED, maybe_not_covered),
    Check("of a place the sender sees", Reason.PLACE_NOT_SEEN, maybe_not_there),
)


def _maybe_area(address: Address) -> Area | None:
    match address:
        case ToArea(area):
            return area
        case ToContent(within):
            return within
        case ToEndpoint() | ToEveryone() | ToNotified():
            return None
        case _:
            assert_never(address)
