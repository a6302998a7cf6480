"""Road networks from files; the file name ending selects the format."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.config.errors import UsageFault, cannot_read, missing_extra
from milepost.config.settings import IncidentSettings

if TYPE_CHECKING:
    from milepost.incidents.alerts import Approach
    from milepost.roads import RoadNetwork

SUMO: Final = (".net.xml", ".net.xml.gz")
OSM: Final = (".osm", ".osm.gz", ".osm.bz2", ".osm.pbf")


def find_approach(settings: IncidentSettings) -> "Approach | None":
    """Return the road-based audience of alerts, or None if no road file is set."""
    if not settings.roads:
        return None
    network = read_roads(settings.roads)
    from milepost.incidents.alerts import Approach  # noqa: PLC0415

    return Approach(network, upstream_s=settings.upstream_s)


def read_roads(name: str) -> "RoadNetwork":
    """Read a SUMO network or an OpenStreetMap extract; raise a `StartFault` that says what to do."""
    if not name.endswith((*SUMO, *OSM)):
        raise UsageFault(f"{name} is not a road network by its name: give a file that ends in {', '.join((*SUMO, *OSM))}")
    try:
        from milepost.roads.network import UnreadableRoads  # noqa: PLC0415
        from milepost.roads.osm import read_osm  # noqa: PLC0415  # an optional dependency
        from milepost.roads.sumo import read_sumo  # noqa: PLC0415
    except ModuleNotFoundError:
        raise missing_extra(f"a road network ({name})", "roads") from None
    try:
        with Path(name).open("rb") as file:
            return read_sumo(file) if name.endswith(SUMO) else read_osm(file)
    except OSError as error:
        raise cannot_read(name, error) from None
    except UnreadableRoads as fault:
        raise UsageFault(f"{name}: {fault}") from None
