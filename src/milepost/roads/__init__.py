"""Roads: a network of directed roads, map matching of reports, and the area upstream of a place (M26)."""

from milepost.roads.network import Network, Road, UnreadableRoads, network_of
from milepost.roads.placing import NOT_ON_A_ROAD, Placed, Placing
from milepost.roads.upstream import Reach, Spot, maybe_upstream

__all__ = [
    "NOT_ON_A_ROAD",
    "Network",
    "Placed",
    "Placing",
    "Reach",
    "Road",
    "Spot",
    "UnreadableRoads",
    "maybe_upstream",
    "network_of",
]
