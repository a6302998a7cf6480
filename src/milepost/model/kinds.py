"""Kinds of event that endpoints report, and what each means for topic, priority and validity (M21, M29)."""

from dataclasses import dataclass
from enum import Enum

from milepost.model.instants import SECOND_NS
from milepost.model.priorities import Priority


@dataclass(frozen=True, slots=True)
class KindRule:
    """What follows from an event's kind where the sender says nothing else."""

    topic: str
    priority: Priority
    validity_ns: int


class Kind(Enum):
    """Mercury's event types."""

    EMERGENCY = KindRule("Emergency", Priority.EMERGENCY, 30 * SECOND_NS)
    MOVING_OBJECT = KindRule("Moving_Object", Priority.SAFETY, 10 * SECOND_NS)
    COLLISION = KindRule("Collision", Priority.SAFETY, 600 * SECOND_NS)
    OBSTACLE = KindRule("Object_Hazard", Priority.SAFETY, 600 * SECOND_NS)
    CONGESTION = KindRule("Congestion", Priority.TRAFFIC, 300 * SECOND_NS)
    BLOCKED = KindRule("Blocked", Priority.TRAFFIC, 1800 * SECOND_NS)
    AREA_QUERY = KindRule("Area_Query", Priority.CONVENIENCE, 10 * SECOND_NS)
