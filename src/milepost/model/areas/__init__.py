"""Areas: where. Every shape answers the same three questions: `contains` (which of these points), `cap` and `boxes` (for an index)."""

from milepost.model.areas.bounds import Bounds, Cap
from milepost.model.areas.circle import Around, Circle

Area = Circle

__all__ = ["Area", "Around", "Bounds", "Cap", "Circle"]
