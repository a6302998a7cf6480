"""The configuration of the demo: tiles that leave no gap, and settings that every process can read."""

from pathlib import Path
from time import time_ns

import numpy as np
import pytest

from milepost.config.settings import read_settings
from milepost.config.site_settings import LogType, SiteLog
from milepost.model.areas import Box
from milepost.model.instants import Instant
from milepost.model.places import vectors
from milepost.runtime.incidents import find_signer
from milepost_experiments.demo.city_config import SITES, CityConfig, Tile, border_of, tiles_over, write_edges, write_sites
from unit.roads.small_networks import small_network

CITY = small_network({"a": (0, 0), "b": (2_000, 0), "c": (2_000, 1_500), "d": (0, 1_500)}, "a-b", "b-c", "c-d", "d-a", "a-c")


def test_edges_cover_the_whole_city_and_neighbours_overlap() -> None:
    tiles = tiles_over(CITY)
    assert len(tiles) == 4
    latitudes = np.linspace(CITY.latitudes.min(), CITY.latitudes.max(), 60).tolist()
    longitudes = np.linspace(CITY.longitudes.min(), CITY.longitudes.max(), 60).tolist()
    covered = [[sum(tile.covers(latitude, longitude) for tile in tiles) for longitude in longitudes] for latitude in latitudes]
    assert {count for row in covered for count in row} == {1, 2, 4}
    ports = [port for tile in tiles for port in (tile.mqtt, tile.udp)]
    assert len(set(ports)) == len(ports)


def test_the_border_zone_is_where_both_sites_cover() -> None:
    tiles = tiles_over(CITY)
    border = border_of(tiles)
    latitudes = np.linspace(CITY.latitudes.min(), CITY.latitudes.max(), 200)
    longitudes = np.full(latitudes.size, CITY.longitudes.mean())
    sites = [
        {tile.site for tile in tiles if tile.covers(*place)}
        for place in zip(latitudes.tolist(), longitudes.tolist(), strict=True)
    ]
    is_border = border.contains(vectors(latitudes, longitudes))
    assert all(is_border[at] for at, some in enumerate(sites) if len(some) == 2)
    assert 0.1 < is_border.mean() < 0.5


def test_edges_are_named_by_their_position() -> None:
    tiles = {tile.name: tile for tile in tiles_over(CITY)}
    assert tiles["north-west"].south > tiles["south-west"].south
    assert tiles["north-east"].west > tiles["north-west"].west


@pytest.mark.parametrize("log_type", list(LogType))
def test_all_written_settings_can_be_read(tmp_path: Path, log_type: LogType) -> None:
    roads, road_lines = tmp_path / "city.net.xml", tmp_path / "roads.geojson"
    for path in (roads, road_lines):
        path.write_text("{}")
    city = CityConfig(tmp_path, tuple(log_of(site, log_type, tmp_path) for site in SITES), tiles_over(CITY), 8470)
    write_sites(tmp_path, city.sites, roads)
    write_edges(city, roads=roads, road_lines=road_lines)
    for tile in city.tiles:
        settings = read_settings(Path(city.config(tile.name)))
        assert settings.site.log.name == tile.site
        assert settings.site.log.log_type is log_type
        assert settings.edge.name == tile.name
        assert settings.edge.coverage is not None
    for site in SITES:
        for name in ("pipelines", "incidents"):
            settings = read_settings(Path(city.config(f"{name}-{site}")))
            assert settings.site.log.name == site
            assert [kind.name for kind in settings.incidents.kinds] == ["Collision", "PathTest"]
            assert find_signer(settings, Instant(time_ns())) is not None
    assert len(read_settings(Path(city.config("hub"))).hub.sites) == len(SITES)
    dashboard = read_settings(Path(city.config("map")))
    assert [kind.name for kind in dashboard.incidents.kinds] == ["Collision"]
    assert dashboard.dashboard.address == "127.0.0.1:8470"


def log_of(site: str, log_type: LogType, folder: Path) -> SiteLog:
    if log_type is LogType.KAFKA:
        return SiteLog(site, log_type, folder="", address="127.0.0.1:9092", prefix=f"{site}.")
    return SiteLog(site, folder=str(folder / site))


def test_a_tile_contains_the_places_of_its_coverage() -> None:
    tile = Tile("north-west", "north", 52.0, 13.0, 52.5, 13.5, 1, 2)
    box = Box(52.0, 13.0, 52.5, 13.5)
    assert tile.covers(52.2, 13.4)
    assert not tile.covers(52.6, 13.4)
    assert box.contains(np.array([[0.0, 0.0, 1.0]])).tolist() == [False]
