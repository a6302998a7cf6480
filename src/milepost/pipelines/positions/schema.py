"""What is made of reports of places, and the topics it goes to.

    topic                 key                  says
    positions.last        endpoint             where an endpoint was last
    positions.handovers   endpoint             that it was seen at one edge and then at another
    positions.speeds      SLOT/WAY             how fast endpoints were on a way, in one slot
    positions.holes       SLOT/ROW/COLUMN      how many reports came from a square that nobody covers, in one slot

`docs/reference/positions.md` has the records.
"""

from typing import Final

LAST_TOPIC: Final = "positions.last"
HANDOVERS_TOPIC: Final = "positions.handovers"
SPEEDS_TOPIC: Final = "positions.speeds"
HOLES_TOPIC: Final = "positions.holes"

SIDE_M: Final = 150.0
"""Of the squares of ways and holes."""
SLOT_S: Final = 60

REPORT_COLUMNS: Final = ("endpoint", "seen_at_us", "edge", "latitude", "longitude", "heading_deg", "speed_mps")
"""What of a report the places remember."""

PLACE_ROW: Final = """
    topic string, endpoint string, seen_at_us bigint, edge string, latitude double, longitude double, heading_deg double,
    speed_mps double, left_edge string, gap_s double
"""
"""A last place, or a handover: which of them, the topic says. `left_edge` and `gap_s` are of handovers: the edge before, and how
long nobody heard of the endpoint."""

SLOT_ROW: Final = """
    topic string, place string, slot bigint, reports bigint, endpoints int, speed_mps_mean double, speed_mps_min double,
    speed_mps_max double
"""
"""One way or one square in one slot: which of them, the topic says. Speeds are whole thousandths, those of holes nothing."""
