"""Areas. Every shape has `contains` (tests points) and `cap` and `boxes` (bounds for an index).

`touches` tests whether two areas have a place in common. `corridor_ahead` makes an area from a place and a heading.
`contains_moving` also takes headings, which matter where an area is on roads (`Upstream`).
"""

from milepost.model.areas.bounds import Bounds, Cap
from milepost.model.areas.box import Box
from milepost.model.areas.circle import Around, Circle
from milepost.model.areas.corridor import CORRIDOR_BOXES_MAX, CORRIDOR_POINTS_MAX, Corridor
from milepost.model.areas.direction import contains_moving, corridor_ahead, depends_on_heading, seconds_to_reach
from milepost.model.areas.overlap import touches
from milepost.model.areas.polygon import POLYGON_POINTS_MAX, Polygon, Ring
from milepost.model.areas.union import UNION_DEPTH_MAX, UNION_PARTS_MAX, UNION_POINTS_MAX, Union
from milepost.model.areas.upstream import UPSTREAM_POINTS_MAX, UPSTREAM_STRETCHES_MAX, Motion, Stretch, StretchColumns, Upstream

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
    "Motion",
    "Polygon",
    "Ring",
    "Stretch",
    "StretchColumns",
    "Union",
    "Upstream",
    "contains_moving",
    "corridor_ahead",
    "depends_on_heading",
    "seconds_to_reach",
    "touches",
]
