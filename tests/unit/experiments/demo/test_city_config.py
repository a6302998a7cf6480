"""The town of the demo: tiles that leave no gap, and settings that every process can read."""

from pathlib import Path

import numpy as np
import pytest
from milepost_experiments.demo.city_config import SITES, Tile, Town, border_of, tiles_over, write_edges, write_sites

from milepost.config.settings import read_settings
from milepost.config.site_settings import Backbone, SiteLog
from milepost.model.areas import Box
from milepost.model.places import vectors
from unit.roads.drawn import drawn

CITY = drawn({"a": (0, 0), "b": (2_000, 0), "c": (2_000, 1_500), "d": (0, 1_500)}, "a-b", "b-c", "c-d", "d-a", "a-c")


def test_every_place_of_the_city_is_covered_and_neighbours_overlap() -> None:
    tiles = tiles_over(CITY)
    assert len(tiles) == 4
    up = np.linspace(CITY.latitudes.min(), CITY.latitudes.max(), 60).tolist()
    over = np.linspace(CITY.longitudes.min(), CITY.longitudes.max(), 60).tolist()
    covered = [[sum(tile.has(latitude, longitude) for tile in tiles) for longitude in over] for latitude in up]
    assert {count for row in covered for count in row} == {1, 2, 4}
    ports = [port for tile in tiles for port in (tile.mqtt, tile.udp)]
    assert len(set(ports)) == len(ports)


def test_the_border_of_sites_holds_what_both_cover_and_not_the_rest() -> None:
    tiles = tiles_over(CITY)
    border = border_of(tiles)
    up = np.linspace(CITY.latitudes.min(), CITY.latitudes.max(), 200)
    over = np.full(up.size, CITY.longitudes.mean())
    sites = [{tile.site for tile in tiles if tile.has(*place)} for place in zip(up.tolist(), over.tolist(), strict=True)]
    is_border = border.contains(vectors(up, over))
    assert all(is_border[at] for at, some in enumerate(sites) if len(some) == 2)
    assert 0.1 < is_border.mean() < 0.5


def test_north_is_north_and_west_is_west() -> None:
    tiles = {tile.name: tile for tile in tiles_over(CITY)}
    assert tiles["north-west"].south > tiles["south-west"].south
    assert tiles["north-east"].west > tiles["north-west"].west


@pytest.mark.parametrize("backbone", list(Backbone))
def test_all_settings_can_be_read(tmp_path: Path, backbone: Backbone) -> None:
    roads, drawn_roads = tmp_path / "city.net.xml", tmp_path / "roads.geojson"
    for path in (roads, drawn_roads):
        path.write_text("{}")
    town = Town(tmp_path, tuple(log_of(site, backbone, tmp_path) for site in SITES), tiles_over(CITY), 8470)
    write_sites(tmp_path, town.sites, roads)
    write_edges(town, roads=roads, drawn=drawn_roads)
    for tile in town.tiles:
        settings = read_settings(Path(town.config(tile.name)))
        assert settings.site.log.name == tile.site
        assert settings.site.log.backbone is backbone
        assert settings.edge.name == tile.name
        assert settings.edge.coverage is not None
    for site in SITES:
        for name in ("pipelines", "incidents"):
            settings = read_settings(Path(town.config(f"{name}-{site}")))
            assert settings.site.log.name == site
            assert [kind.name for kind in settings.incidents.kinds] == ["Collision", "Rehearsal"]
    assert len(read_settings(Path(town.config("centre"))).centre.sites) == len(SITES)
    shown = read_settings(Path(town.config("map")))
    assert [kind.name for kind in shown.incidents.kinds] == ["Collision"]
    assert shown.dashboard.address == "127.0.0.1:8470"


def log_of(site: str, backbone: Backbone, folder: Path) -> SiteLog:
    if backbone is Backbone.KAFKA:
        return SiteLog(site, backbone, folder="", address="127.0.0.1:9092", prefix=f"{site}.")
    return SiteLog(site, folder=str(folder / site))


def test_a_tile_has_what_its_coverage_has() -> None:
    tile = Tile("north-west", "north", 52.0, 13.0, 52.5, 13.5, 1, 2)
    box = Box(52.0, 13.0, 52.5, 13.5)
    assert tile.has(52.2, 13.4)
    assert not tile.has(52.6, 13.4)
    assert box.contains(np.array([[0.0, 0.0, 1.0]])).tolist() == [False]
