"""Areas: where. Every shape answers three questions: `contains` (which of these points), `cap` and `boxes` (for an index).

Two of them have one: `touches` (a place in common). `corridor_ahead` makes one from a place and a heading.
"""

from milepost.model.areas.ahead import corridor_ahead
from milepost.model.areas.bounds import Bounds, Cap
from milepost.model.areas.box import Box
from milepost.model.areas.circle import Around, Circle
from milepost.model.areas.corridor import CORRIDOR_BOXES_MAX, CORRIDOR_POINTS_MAX, Corridor
from milepost.model.areas.polygon import POLYGON_POINTS_MAX, Polygon
from milepost.model.areas.rings import Ring
from milepost.model.areas.touching import touches
from milepost.model.areas.union import UNION_DEPTH_MAX, UNION_PARTS_MAX, UNION_POINTS_MAX, Union

Area = Circle | Box | Polygon | Corridor | Union

__all__ = [
    "CORRIDOR_BOXES_MAX",
    "CORRIDOR_POINTS_MAX",
    "POLYGON_POINTS_MAX",
    "UNION_DEPTH_MAX",
    "UNION_PARTS_MAX",
    "UNION_POINTS_MAX",
    "Area",
    "Around",
    "Bounds",
    "Box",
    "Cap",
    "Circle",
    "Corridor",
    "Polygon",
    "Ring",
    "Union",
    "corridor_ahead",
    "touches",
]
