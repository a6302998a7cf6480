"""Adjacent coverages, and the edge that covers a place (M15)."""

from pathlib import Path

import pytest

from milepost.config.site_settings import SiteLog
from milepost.model.places import Place
from milepost_experiments.papers.load import testbed
from milepost_experiments.papers.load.region import Region, RegionEdge, tiles

BOXES = tiles(Place(10.0, 20.0), Place(12.0, 24.0), rows=2, columns=2)
REGION = Region(
    testbed.Testbed(Path("nowhere")),
    SiteLog("region"),
    tuple(RegionEdge(f"edge-{number}", box, 0, 0) for number, box in enumerate(BOXES, 1)),
)


def test_tiles_leave_no_gap() -> None:
    assert [(box.south, box.west, box.north, box.east) for box in BOXES] == [
        (10.0, 20.0, 11.0, 22.0),
        (10.0, 22.0, 11.0, 24.0),
        (11.0, 20.0, 12.0, 22.0),
        (11.0, 22.0, 12.0, 24.0),
    ]


@pytest.mark.parametrize(
    ("place", "edge"),
    [
        (Place(10.5, 21.0), "edge-1"),
        (Place(10.5, 23.0), "edge-2"),
        (Place(11.5, 21.0), "edge-3"),
        (Place(11.5, 23.9), "edge-4"),
        (Place(13.0, 23.0), "edge-4"),
        (Place(9.0, 19.0), "edge-1"),
    ],
)
def test_a_place_belongs_to_its_coverage_and_outside_all_to_the_nearest_edge(place: Place, edge: str) -> None:
    assert REGION.edge_at(place).name == edge
