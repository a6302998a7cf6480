"""A region: the edges of one site with adjacent coverages, each with listeners for MQTT and plain UDP."""

import contextlib
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from milepost.config.site_settings import SiteLog
from milepost.model.areas import Box
from milepost.model.places import Place
from milepost_experiments.papers.load.programs import LoadFailed
from milepost_experiments.papers.load.testbed import Testbed, empty_testbed, free_port, milepost_command, wait_until_listening

SITE: Final = "region"


@dataclass(frozen=True, slots=True)
class RegionEdge:
    """One edge of the region: its coverage and its ports."""

    name: str
    box: Box
    mqtt_port: int
    udp_port: int


@dataclass(frozen=True, slots=True)
class Region:
    """A running region."""

    testbed: Testbed
    log: SiteLog
    edges: tuple[RegionEdge, ...]

    def edge_at(self, place: Place) -> RegionEdge:
        """Return the edge that covers a place; outside all coverages, the nearest edge."""
        return min(self.edges, key=lambda edge: _outside(edge.box, place))


def tiles(south_west: Place, north_east: Place, *, rows: int, columns: int) -> list[Box]:
    """Return boxes that cover the area between two corners."""
    height = (north_east.latitude - south_west.latitude) / rows
    width = (north_east.longitude - south_west.longitude) / columns
    return [
        Box(
            south=south_west.latitude + row * height,
            west=south_west.longitude + column * width,
            north=south_west.latitude + (row + 1) * height,
            east=south_west.longitude + (column + 1) * width,
        )
        for row in range(rows)
        for column in range(columns)
    ]


@contextlib.contextmanager
def running_region(boxes: Sequence[Box], *, alert_radius_m: float = 500.0) -> Iterator[Region]:
    """Run edges with these coverages on one embedded log for the block; all are ready."""
    with empty_testbed() as testbed:
        log = SiteLog(SITE, folder=str(testbed.folder / "log"))
        edges = tuple(
            RegionEdge(f"edge-{number}", box, free_port(), free_port(socket.SOCK_DGRAM)) for number, box in enumerate(boxes, 1)
        )
        started = []
        for one in edges:
            command = milepost_command(testbed, "edge", one.name, _lines(testbed, log, one, alert_radius_m))
            started.append((testbed.start(one.name, command), one))
        for process, one in started:
            wait_until_listening(process, one.mqtt_port)
        try:
            yield Region(testbed, log, edges)
        except LoadFailed:
            testbed.check()  # the fault of an ended process explains more than its consequence
            raise


def _lines(testbed: Testbed, log: SiteLog, edge: RegionEdge, alert_radius_m: float) -> list[str]:
    box = edge.box
    ring = [(box.west, box.south), (box.east, box.south), (box.east, box.north), (box.west, box.north), (box.west, box.south)]
    corners = ", ".join(f"{longitude!r} {latitude!r}" for longitude, latitude in ring)
    return [
        "[edge]",
        f'name = "{edge.name}"',
        f'data = "{testbed.folder / edge.name}"',
        f'coverage = "POLYGON (({corners}))"',
        "[[mqtt.listen]]",
        f'address = "127.0.0.1:{edge.mqtt_port}"',
        "[udp]",
        f'address = "127.0.0.1:{edge.udp_port}"',
        'encryption = "none"',
        "reporting_interval_s = 1.0",
        "messages_per_s = 1_000_000",  # the rate limit of one endpoint must not affect the measurement
        "messages_burst = 1_000_000",
        "[[rules.alert]]",
        'topic = "Emergency"',
        f"radius_m = {alert_radius_m}",
        "[[access.rules]]",  # the endpoints are not authenticated
        "allow = true",
        'action = "publish"',
        'topics = "Emergency"',
        "[site]",
        f'name = "{log.name}"',
        'log = "embedded"',
        f'folder = "{log.folder}"',
    ]


def _outside(box: Box, place: Place) -> float:
    """Return the distance of a place from a box, in degrees; 0 inside."""
    height = max(box.south - place.latitude, place.latitude - box.north, 0.0)
    width = max(box.west - place.longitude, place.longitude - box.east, 0.0)
    return height + width
