"""Coverage: the sites that may have endpoints inside an area."""

from milepost.federation.hub_routing import CoverageTable
from milepost.model.areas import Box, Circle
from milepost.model.places import Place
from milepost.model.site_records import EdgeInfo, EdgeRef

NORTH, SOUTH = EdgeRef("north", "1"), EdgeRef("south", "1")


def test_an_area_reaches_the_sites_whose_coverage_it_touches() -> None:
    coverage = CoverageTable()
    coverage.put(EdgeInfo(NORTH, Box(51.0, 7.0, 52.0, 8.0)))
    coverage.put(EdgeInfo(SOUTH, Box(50.0, 7.0, 50.9, 8.0)))
    assert coverage.sites_touching(Circle(Place(51.5, 7.5), 100.0)) == {"north"}
    assert coverage.sites_touching(Circle(Place(50.95, 7.5), 10_000.0)) == {"north", "south"}
    assert coverage.sites_touching(Circle(Place(45.0, 7.5), 100.0)) == set()


def test_an_edge_without_coverage_is_reached_by_every_area_until_it_is_removed() -> None:
    coverage = CoverageTable()
    coverage.put(EdgeInfo(NORTH))
    area = Circle(Place(0.0, 0.0), 10.0)
    assert coverage.sites_touching(area) == {"north"}
    coverage.remove(NORTH)
    assert coverage.sites_touching(area) == set()


def test_an_area_reaches_a_site_with_an_endpoint_outside_its_coverage() -> None:
    coverage = CoverageTable()
    area = Circle(Place(60.01, 10.01), 100.0)
    coverage.put(EdgeInfo(NORTH, Box(51.0, 7.0, 52.0, 8.0), outside_squares=((1201, 200),)))
    assert coverage.sites_touching(area) == set()
    coverage.put(EdgeInfo(NORTH, Box(51.0, 7.0, 52.0, 8.0), outside_squares=((1201, 200), (1200, 200))))
    assert coverage.sites_touching(area) == {"north"}


def test_endpoints_outside_the_coverage_are_found_across_the_antimeridian_and_around_a_pole() -> None:
    coverage = CoverageTable()
    small = Box(51.0, 7.0, 52.0, 8.0)
    coverage.put(EdgeInfo(NORTH, small, outside_squares=((0, 3599), (0, -3600))))
    coverage.put(EdgeInfo(SOUTH, small, outside_squares=((1799, 1234),)))
    assert coverage.sites_touching(Box(0.0, 179.99, 0.01, -179.99)) == {"north"}
    assert coverage.sites_touching(Box(0.0, -179.99, 0.01, -179.98)) == {"north"}
    assert coverage.sites_touching(Box(0.0, -179.9, 0.01, 179.9)) == set()
    assert coverage.sites_touching(Circle(Place(89.99, 0.0), 5_000.0)) == {"south"}
