"""Event kinds: topic, priority and validity of reported events, and the rules by which they become incidents (M21, M24, M29).

A kind is configuration: a fault in it raises `ValueError`. Mercury's own kinds are `EVENT_KINDS`; its Area-of-Interest is not a
kind of report but a request, which `Incidents.around` answers.
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from milepost.model.incidents.grid import Grid
from milepost.model.incidents.predicates import Predicate, parse_predicate
from milepost.model.instants import SECOND_NS
from milepost.model.priorities import Priority
from milepost.model.topics import check_topic


@dataclass(frozen=True, slots=True)
class KindRule:
    """Defaults for messages about an event of one kind."""

    topic: str
    priority: Priority
    validity_ns: int


class MercuryKind(Enum):
    """Mercury's event types."""

    EMERGENCY = KindRule("Emergency", Priority.EMERGENCY, 30 * SECOND_NS)
    MOVING_OBJECT = KindRule("Moving_Object", Priority.SAFETY, 10 * SECOND_NS)
    COLLISION = KindRule("Collision", Priority.SAFETY, 600 * SECOND_NS)
    OBSTACLE = KindRule("Object_Hazard", Priority.SAFETY, 600 * SECOND_NS)
    CONGESTION = KindRule("Congestion", Priority.TRAFFIC, 300 * SECOND_NS)
    BLOCKED = KindRule("Blocked", Priority.TRAFFIC, 1800 * SECOND_NS)
    AREA_QUERY = KindRule("Area_Query", Priority.CONVENIENCE, 10 * SECOND_NS)


ALERT_TOPICS: Final = ("Alert", "Alert/#")
"""Topic filters of alerts; a client that trusts a certificate authority requires signatures on them."""

SLOTS_MAX: Final = 1_000
NAME_PATTERN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")


@dataclass(frozen=True, slots=True)
class EventKind:
    """The rules of one kind of event."""

    name: str
    topic: str
    """The topic of reports of this kind."""
    predicate: str
    """The condition under which a bin is hot."""
    alert: str | None = None
    """The topic of alerts; None: the incident engine sends none."""
    side_m: float = 150.0
    """The join distance: height and width of the squares that reports are aggregated in."""
    interval_s: float = 10.0
    """Length of a slot: bins are evaluated when one ends."""
    slots: int = 6
    """Number of slots that a bin covers."""
    radius_m_min: float = 50.0
    margin_m: float = 200.0
    """Margin around the incident that alerts cover."""
    clear_after_s: float = 60.0
    """An incident that has not been hot for this long is cleared."""
    valid_s: float = 300.0
    """Validity of an alert; at half of it, the alert is repeated if the incident lasts."""
    priority: Priority = Priority.SAFETY
    from_reports: bool = False
    """Whether accepted position reports with a speed also count as reports of this kind, with the field `speed_mps`."""
    condition: Predicate = field(init=False, repr=False, compare=False)
    grid: Grid = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if NAME_PATTERN.fullmatch(self.name) is None:
            raise ValueError(f"{self.name[:40]!r} is not a name of a kind: use a letter, then up to 31 letters, digits and _")
        check_topic(self.topic)
        if self.alert is not None:
            check_topic(self.alert)
        if self.alert == self.topic:
            raise ValueError(f"alerts on {self.alert!r} would themselves be reports of {self.name}")
        _check_range("interval_s", self.interval_s, 0.1, 86_400)
        _check_range("slots", self.slots, 1, SLOTS_MAX)
        _check_range("radius_m_min", self.radius_m_min, 1, 100_000)
        _check_range("margin_m", self.margin_m, 0, 100_000)
        _check_range("clear_after_s", self.clear_after_s, 0, 86_400)
        _check_range("valid_s", self.valid_s, 1, 86_400)
        object.__setattr__(self, "condition", parse_predicate(self.predicate))
        object.__setattr__(self, "grid", Grid(self.side_m))

    @property
    def interval_ns(self) -> int:
        """Length of a slot."""
        return round(self.interval_s * SECOND_NS)

    @property
    def clear_after_ns(self) -> int:
        """Time after which an incident that is not hot is cleared."""
        return round(self.clear_after_s * SECOND_NS)

    @property
    def valid_ns(self) -> int:
        """Validity of an alert."""
        return round(self.valid_s * SECOND_NS)


def _check_range(name: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:
        raise ValueError(f"{name} is {value}, not in {lowest}..{highest}")


def _mercury(
    kind: MercuryKind,
    name: str,
    predicate: str,
    *,
    side_m: float = 150.0,
    interval_s: float = 10.0,
    slots: int = 6,
    clear_after_s: float = 60.0,
    from_reports: bool = False,
) -> EventKind:
    rule = kind.value
    return EventKind(
        name,
        rule.topic,
        predicate,
        alert=None if kind is MercuryKind.EMERGENCY else f"Alert/{name}",  # edges raise those themselves, at once (M22)
        side_m=side_m,
        interval_s=interval_s,
        slots=slots,
        clear_after_s=clear_after_s,
        valid_s=rule.validity_ns / SECOND_NS,
        priority=rule.priority,
        from_reports=from_reports,
    )


_IS_SLOW: Final = "(count_speed_mps == 0 or mean_speed_mps < 4)"
"""Flowing traffic is no congestion, whatever is reported; without reported speeds, the congestion reports decide."""

EVENT_KINDS: Final = (
    _mercury(MercuryKind.EMERGENCY, "Emergency", "reports >= 1", interval_s=1.0, slots=30, clear_after_s=30.0),
    _mercury(MercuryKind.MOVING_OBJECT, "Moving_Object", "weight >= 2", interval_s=2.0, slots=5, clear_after_s=10.0),
    _mercury(MercuryKind.COLLISION, "Collision", "weight >= 3 and reports >= 5"),
    _mercury(MercuryKind.OBSTACLE, "Obstacle", "weight >= 2 and reports >= 3"),
    _mercury(
        MercuryKind.CONGESTION,
        "Congestion",
        f"weight >= 5 and reports >= 10 and {_IS_SLOW}",
        side_m=300.0,
        interval_s=30.0,
        clear_after_s=120.0,
        from_reports=True,
    ),
    _mercury(MercuryKind.BLOCKED, "Blocked", "weight >= 3 and reports >= 5", interval_s=30.0, slots=10, clear_after_s=300.0),
)
"""Mercury's kinds, with default rules."""
