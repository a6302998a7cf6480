"""Roads: a network of directed roads, map matching of reports, and the area upstream of a place (M26)."""

from milepost.roads.map_matcher import OFF_ROAD, MapMatcher, MatchedReports
from milepost.roads.network import Road, RoadNetwork, UnreadableRoads, build_network
from milepost.roads.upstream import RoadPosition, UpstreamExtent, find_upstream_area

__all__ = [
    "OFF_ROAD",
    "MapMatcher",
    "MatchedReports",
    "Road",
    "RoadNetwork",
    "RoadPosition",
    "UnreadableRoads",
    "UpstreamExtent",
    "build_network",
    "find_upstream_area",
]
