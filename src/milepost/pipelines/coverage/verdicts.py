"""What a proof says of each endpoint, in words.

edges say                 it was inside    verdict
acknowledged, or sent     or not           got it, and how long after it was said
dropped                   or not           did not, for the edge's reason
matched and no more       or not           did not: nothing says that it was sent
nothing                   yes              did not: refused reports, no edge there, came late, or no edge knows why
"""

from dataclasses import dataclass
from enum import Enum

from milepost.model.reasons import Reason

ANOTHER_EDGE = 1
NOBODY = 2
"""Who covers a place, as REPORT_ROW has it."""


class Outcome(Enum):
    """What became of the message for one endpoint."""

    ACKNOWLEDGED = "acknowledged"
    SENT = "sent"
    DROPPED = "dropped"
    MATCHED = "matched"
    MISSED = "missed"

    @property
    def has_it(self) -> bool:
        """Whether the endpoint got it, as far as edges can know."""
        return self in (Outcome.ACKNOWLEDGED, Outcome.SENT)


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of one endpoint and the message; a row of PROOF_ROW."""

    endpoint: str
    first_us: int | None
    last_us: int | None
    latitude: float | None
    longitude: float | None
    edge: str | None
    covered: int | None
    accepted: int | None
    refusal: int | None
    matched_us: int | None
    sent_us: int | None
    acknowledged_us: int | None
    dropped_us: int | None
    reason: int | None
    told_by: str | None

    @property
    def was_inside(self) -> bool:
        """Whether it said so itself."""
        return self.first_us is not None

    @property
    def outcome(self) -> Outcome:
        """The best that edges say."""
        if self.acknowledged_us is not None:
            return Outcome.ACKNOWLEDGED
        if self.sent_us is not None:
            return Outcome.SENT
        if self.dropped_us is not None:
            return Outcome.DROPPED
        return Outcome.MISSED if self.matched_us is None else Outcome.MATCHED

    @property
    def got_us(self) -> int | None:
        """When it got it; if nobody said that it was sent, when the endpoint said that it has it."""
        return self.acknowledged_us if self.sent_us is None else self.sent_us

    def why(self, said_us: int) -> str:
        """Why it did not get the message that was said at an instant; nothing if it did."""
        match self.outcome:
            case Outcome.ACKNOWLEDGED | Outcome.SENT:
                return "" if self.was_inside else "was not inside by its own reports"
            case Outcome.DROPPED:
                return f"dropped by {self.told_by}: {_named(self.reason)}"
            case Outcome.MATCHED:
                return f"matched by {self.told_by}, but nothing says that it was sent"
            case Outcome.MISSED:
                return self._why_missed(said_us)

    def _why_missed(self, said_us: int) -> str:
        assert self.first_us is not None, "who was not inside and is in no delivery is in no proof"
        if not self.accepted:
            return f"its reports were refused: {_named(self.refusal)}"
        if self.covered == NOBODY:
            return "no edge covers the place"
        if self.covered == ANOTHER_EDGE:
            return f"was connected to {self.edge}, which does not cover the place"
        if self.first_us > said_us:
            return f"came in {(self.first_us - said_us) / 1e6:.1f} s after it was said"
        return f"{self.edge} has no record of it"


def _named(number: int | None) -> str:
    try:
        return Reason(number or 0).name
    except ValueError:
        return f"reason {number}"
