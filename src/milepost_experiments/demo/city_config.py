"""The configuration files of the demo: edges that cover the city in tiles, their sites, and the other processes.

┌─────────┬─────────┐
│  edge   │  edge   │   each a box that overlaps its neighbours a little: a vehicle that drives
│ nw      │ ne      │   along a border does not change edges back and forth
├─────────┼─────────┤
│ sw      │ se      │
└─────────┴─────────┘
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time_ns
from typing import Final

import numpy as np

from milepost.config.site_settings import LogType, SiteLog
from milepost.incidents.engine import ENGINE
from milepost.model.areas import Box
from milepost.model.instants import Instant
from milepost.model.places import EARTH_RADIUS_M
from milepost.roads import RoadNetwork
from milepost.runtime.certificate_authority import (
    AUTHORITY,
    AUTHORITY_KEY,
    REVOKED,
    issue_in,
    make_authority,
    new_keys,
    public_keys_of,
)
from milepost.runtime.services.ports import LOOPBACK, free_ports
from milepost.runtime.trust_files import TrustFileType, write_new

SITES: Final = {"north": ("north-west", "north-east"), "south": ("south-west", "south-east")}
"""Sites, each with its edges."""
OVERLAP_M: Final = 60.0
BEYOND_M: Final = 100.0
"""Coverage beyond the last road."""
BORDER_M: Final = 140.0
"""Minimum distance of collisions from the border between sites."""
EVENT: Final = "Collision"
PATH_TEST: Final = "PathTest"
"""Topic of test reports, sent at the start until one has passed through Spark."""
CONTROL: Final = "city/control"
UPSTREAM_S: Final = 20.0

_KINDS: Final = f"""
[incidents]
roads = "ROADS"
upstream_s = {UPSTREAM_S}
allowed_lateness_s = 1.0
FILES

[[incidents.kinds]]
name = "{EVENT}"
topic = "{EVENT}"
alert = "Alert/{EVENT}"
predicate = "weight >= 3 and reports >= 5"
interval_s = 2.0
slots = 6
margin_m = 100.0
clear_after_s = 6.0
valid_s = 120.0
priority = "emergency"
"""
_PATH_TEST_KIND: Final = f"""
[[incidents.kinds]]
name = "{PATH_TEST}"
topic = "{PATH_TEST}"
predicate = "reports >= 1"
interval_s = 1.0
slots = 1
"""


@dataclass(frozen=True, slots=True)
class Tile:
    """An edge: its coverage, in degrees, and its ports."""

    name: str
    site: str
    south: float
    west: float
    north: float
    east: float
    mqtt: int
    udp: int

    def covers(self, latitude: float, longitude: float) -> bool:
        """Return whether the edge covers a place."""
        return self.south <= latitude <= self.north and self.west <= longitude <= self.east


@dataclass(frozen=True, slots=True)
class CityConfig:
    """All configuration files, in a folder."""

    folder: Path
    sites: tuple[SiteLog, ...]
    tiles: tuple[Tile, ...]
    map_port: int

    def log_of(self, tile: Tile) -> SiteLog:
        """Return the log of an edge's site."""
        return next(log for log in self.sites if log.name == tile.site)

    def config(self, name: str) -> str:
        """Return the path of a process's settings."""
        return str(self.folder / f"{name}.toml")


def tiles_over(network: RoadNetwork) -> tuple[Tile, ...]:
    """Return four boxes with about equally many roads in each."""
    latitudes, longitudes = network.latitudes, network.longitudes
    edges = [(site, name) for site, names in SITES.items() for name in names]
    ports = free_ports(2 * len(edges))
    metre = float(np.degrees(1 / EARTH_RADIUS_M))
    metre_east = metre / float(np.cos(np.radians(np.median(latitudes))))
    middle_latitude, middle_longitude = float(np.median(latitudes)), float(np.median(longitudes))
    south, north = float(latitudes.min()) - BEYOND_M * metre, float(latitudes.max()) + BEYOND_M * metre
    west, east = float(longitudes.min()) - BEYOND_M * metre_east, float(longitudes.max()) + BEYOND_M * metre_east
    tiles = []
    for at, (site, name) in enumerate(edges):
        overlap, overlap_east = OVERLAP_M * metre, OVERLAP_M * metre_east
        low, high = (middle_latitude - overlap, north) if "north" in name else (south, middle_latitude + overlap)
        left, right = (west, middle_longitude + overlap_east) if "west" in name else (middle_longitude - overlap_east, east)
        tiles.append(Tile(name, site, low, left, high, right, ports[2 * at], ports[2 * at + 1]))
    return tuple(tiles)


def border_of(tiles: Sequence[Tile]) -> Box:
    """Return the border zone between sites, where each site would receive only part of an event's reports."""
    sites = list(SITES)
    north = [tile for tile in tiles if tile.site == sites[0]]
    south = [tile for tile in tiles if tile.site == sites[1]]
    width = float(np.degrees(BORDER_M / EARTH_RADIUS_M))
    west, east = min(tile.west for tile in tiles), max(tile.east for tile in tiles)
    return Box(min(tile.south for tile in north) - width, west, max(tile.north for tile in south) + width, east)


def write_sites(folder: Path, sites: Sequence[SiteLog], roads: Path) -> None:
    """Write the settings of each site's processes, and the certificate authority; `roads` is the network file."""
    make_authority(folder / "ca", Instant(time_ns()))
    _write_keys(folder, ENGINE, role="service")
    signing = f'[trust]\nca = "{folder / "ca" / AUTHORITY}"\n'
    files = f'certificate = "{folder / ENGINE}.cert"\nkey = "{folder / ENGINE}.key"\n'
    for log in sites:
        pipelines = (
            f'[pipelines]\nfolder = "{folder / f"pipelines-{log.name}"}"\ntopics = ["{EVENT}", "{PATH_TEST}"]\nhttp = ""\n'
        )
        for name in ("pipelines", "incidents"):
            (folder / f"{name}-{log.name}.toml").write_text(
                f"[site]\n{_log_text(log)}\n{signing}{pipelines}{_incidents_text(roads, files)}{_PATH_TEST_KIND}"
            )
    (folder / "hub.toml").write_text(f'{_sites_text(sites)}[http]\naddress = ""\n')


def write_edges(city: CityConfig, *, roads: Path, road_lines: Path) -> None:
    """Write the settings of edges and of the map; `road_lines` is the GeoJSON file of roads for the map."""
    for tile in city.tiles:
        _write_keys(city.folder, tile.name, role="edge")
        (city.folder / f"{tile.name}.toml").write_text(_edge_text(city, tile))
    dashboard = f'[dashboard]\naddress = "{LOOPBACK}:{city.map_port}"\nroads = "{road_lines}"\n'
    pipelines = f'[pipelines]\nfolder = "{city.folder / f"pipelines-{city.sites[0].name}"}"\n'
    (city.folder / "map.toml").write_text(f"{_sites_text(city.sites)}{dashboard}{pipelines}{_incidents_text(roads)}")


def _sites_text(sites: Sequence[SiteLog]) -> str:
    return '[hub]\nname = "hub"\n' + "".join(f"[[hub.sites]]\n{_log_text(log)}\n" for log in sites)


def _incidents_text(roads: Path, files: str = "") -> str:
    return _KINDS.replace("ROADS", str(roads)).replace("FILES\n", files)


def _edge_text(city: CityConfig, tile: Tile) -> str:
    ca = city.folder / "ca"
    return f"""[edge]
name = "{tile.name}"
data = "{city.folder / tile.name}"
coverage = "BOX ({tile.west} {tile.south}, {tile.east} {tile.north})"

[site]
{_log_text(city.log_of(tile))}
advertise = "mqtt://{LOOPBACK}:{tile.mqtt}"
position_interval_s = 1.0
handover_timeout_s = 8.0

[[mqtt.listen]]
address = "{LOOPBACK}:{tile.mqtt}"

[udp]
address = "{LOOPBACK}:{tile.udp}"
reporting_interval_s = 3.0

[trust]
ca = "{ca / AUTHORITY}"
certificate = "{city.folder / tile.name}.cert"
key = "{city.folder / tile.name}.key"
revoked = "{ca / REVOKED}"

[http]
address = ""
"""


def _write_keys(folder: Path, name: str, *, role: str) -> None:
    keys = new_keys(signs=True)
    certificate = issue_in(folder / "ca", name, public_keys_of(keys), role=role, days=1, now=Instant(time_ns()))
    write_new(folder / f"{name}.key", TrustFileType.KEY, b"".join(keys))
    write_new(folder / f"{name}.cert", TrustFileType.CERTIFICATE, certificate.data)


def _log_text(log: SiteLog) -> str:
    if log.log_type is LogType.KAFKA:
        return f'name = "{log.name}"\nlog = "kafka"\naddress = "{log.address}"\nprefix = "{log.prefix}"'
    return f'name = "{log.name}"\nfolder = "{log.folder}"'


def authority_key_in(ca: Path) -> Path:
    """Return the path of the certificate authority's private key."""
    return ca / AUTHORITY_KEY


def authority_in(ca: Path) -> Path:
    """Return the path of the certificate authority's public key."""
    return ca / AUTHORITY
