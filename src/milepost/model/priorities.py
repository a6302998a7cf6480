"""Priority classes and deadlines: emergency before consumer content, in every queue (M29)."""

from enum import IntEnum
from typing import Final

from milepost.model.instants import SECOND_NS


class Priority(IntEnum):
    """The four classes; a lower number goes first."""

    EMERGENCY = 0
    SAFETY = 1
    TRAFFIC = 2
    CONVENIENCE = 3


DEADLINE_NS: Final[dict[Priority, int]] = {
    Priority.EMERGENCY: 50_000_000,  # the vehicle-to-vehicle budget, M31
    Priority.SAFETY: 200_000_000,
    Priority.TRAFFIC: 2 * SECOND_NS,
    Priority.CONVENIENCE: 10 * SECOND_NS,
}
"""Time after `seen_at` by which a message of each class should arrive; orders a queue inside a class."""
