"""Messages: plausibility checks apart from rights (`access`, `send_limits`) and payloads (M27).

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
from milepost.model.reasons import Reason, Refused, shown
from milepost.vetting.reports import LIMIT_MAX


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits on messages."""

    bytes_max: int = MESSAGE_BYTES_MAX
    """Maximum size of a message as received."""
    clock_ahead_s_max: float = 2.0
    """Maximum time that `seen_at` may lie in the future; 0: any."""
    clock_behind_s_max: float = 60.0
    """Maximum age of a message on arrival; 0: any."""
    move_mps_max: float = 120.0
    """Speed of a sender that is allowed for between its last report and its message; 0: none."""
    rights_after_s: float = 5.0
    """How far the reports of a sender must reach back before its place gives it rights; 0: a first report does."""

    def __post_init__(self) -> None:
        if self.bytes_max < 1:
            raise ValueError(f"bytes_max is {self.bytes_max}, which would refuse every message; give at least 1")
        for name in ("clock_ahead_s_max", "clock_behind_s_max", "move_mps_max", "rights_after_s"):
            if not 0 <= getattr(self, name) <= LIMIT_MAX:
                raise ValueError(f"{name} is {getattr(self, name)}, not in 0..{LIMIT_MAX:.0f}")


class MessageCase(NamedTuple):
    """The input of a check."""

    message: Message
    sender: EndpointId
    size: int
    limits: MessageLimits
    now: Instant
    coverage: Area | None


class MessageCheck(NamedTuple):
    """One check of the chain: its name, its reason code, and a function that describes the fault, if there is one."""

    name: str
    reason: Reason
    maybe_fault: Callable[[MessageCase], str | None]


def vet_message(
    message: Message,
    sender: EndpointId,
    limits: MessageLimits,
    now: Instant,
    *,
    size: int,
    coverage: Area | None = None,
) -> Refused | None:
    """Check a message of `size` bytes from `sender`."""
    case = MessageCase(message, sender, size, limits, now, coverage)
    for check in CHAIN:
        fault = check.maybe_fault(case)
        if fault is not None:
            return Refused(check.reason, fault)
    return None


def maybe_too_large(case: MessageCase) -> str | None:
    """Describe a message that is too large."""
    if case.size <= case.limits.bytes_max:
        return None
    return f"the message has {case.size} bytes, at most {case.limits.bytes_max} are allowed"


def maybe_forged(case: MessageCase) -> str | None:
    """Describe a source that is not the sender."""
    if case.message.source == case.sender:
        return None
    return f"the source is {shown(case.message.source)}, but the sender is {shown(case.sender)}"


def maybe_in_future(case: MessageCase) -> str | None:
    """Describe a message seen too far in the future."""
    lead_ns, limit_s = case.message.seen_at - case.now, case.limits.clock_ahead_s_max
    if not limit_s or lead_ns <= round(limit_s * SECOND_NS):
        return None
    return f"seen_at is {lead_ns / SECOND_NS:.1f} s in the future, at most {limit_s:g} s are allowed"


def maybe_too_old(case: MessageCase) -> str | None:
    """Describe a message seen too long ago."""
    age_ns, limit_s = case.now - case.message.seen_at, case.limits.clock_behind_s_max
    if not limit_s or age_ns <= round(limit_s * SECOND_NS):
        return None
    return f"seen_at is {age_ns / SECOND_NS:.1f} s in the past, at most {limit_s:g} s are allowed"


def maybe_not_covered(case: MessageCase) -> str | None:
    """Describe an area of which nothing is covered."""
    area = _maybe_area(case.message.address)
    if area is None or case.coverage is None or touches(area, case.coverage):
        return None
    return "the area and the coverage of this edge do not overlap"


CHAIN: Final = (
    MessageCheck("not too large", Reason.MESSAGE_TOO_LARGE, maybe_too_large),
    MessageCheck("source is the sender", Reason.SOURCE_FORGED, maybe_forged),
    MessageCheck("not in the future", Reason.CLOCK_AHEAD, maybe_in_future),
    MessageCheck("not too old", Reason.CLOCK_BEHIND, maybe_too_old),
    MessageCheck("area overlaps the coverage", Reason.AREA_NOT_COVERED, maybe_not_covered),
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
