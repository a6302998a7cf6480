"""Areas: where. Every shape answers three questions: `contains` (which of these points), `cap` and `boxes` (for an index).

Two of them have one: `touches` (a place in common). `corridor_ahead` makes one from a place and a heading. `holds_going` asks
with headings, which count where an area is on roads (`Upstream`).
"""

from milepost.model.areas.ahead import corridor_ahead
from milepost.model.areas.bounds import Bounds, Cap
from milepost.model.areas.box import Box
from milepost.model.areas.circle import Around, Circle
from milepost.model.areas.corridor import CORRIDOR_BOXES_MAX, CORRIDOR_POINTS_MAX, Corridor
from milepost.model.areas.going import asks_which_way, holds_going, seconds_to_reach
from milepost.model.areas.polygon import POLYGON_POINTS_MAX, Polygon
from milepost.model.areas.rings import Ring
from milepost.model.areas.touching import touches
from milepost.model.areas.union import UNION_DEPTH_MAX, UNION_PARTS_MAX, UNION_POINTS_MAX, Union
from milepost.model.areas.upstream import UPSTREAM_POINTS_MAX, UPSTREAM_STRETCHES_MAX, Going, Stretch, Upstream

Area = Circle | Box | Polygon | Corridor | Upstream | Union

__all__ = [
    "CORRIDOR_BOXES_MAX",
    "CORRIDOR_POINTS_MAX",
    "POLYGON_POINTS_MAX",
    "UNION_DEPTH_MAX",
    "UNION_PARTS_MAX",
    "UNION_POINTS_MAX",
    "UPSTREAM_POINTS_MAX",
    "UPSTREAM_STRETCHES_MAX",
    "Area",
    "Around",
    "Bounds",
    "Box",
    "Cap",
    "Circle",
    "Corridor",
    "Going",
    "Polygon",
    "Ring",
    "Stretch",
    "Union",
    "Upstream",
    "asks_which_way",
    "corridor_ahead",
    "holds_going",
    "seconds_to_reach",
    "touches",
]
