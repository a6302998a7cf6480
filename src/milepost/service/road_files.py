"""Road networks from files, by their names."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.service.faults import StartFault, UsageFault, cannot_read
from milepost.service.incident_settings import IncidentSettings

if TYPE_CHECKING:
    from milepost.hub.incidents.approach import Approach
    from milepost.roads import Network

SUMO: Final = (".net.xml", ".net.xml.gz")
OSM: Final = (".osm", ".osm.gz", ".osm.bz2", ".osm.pbf")


def maybe_approach(settings: IncidentSettings) -> "Approach | None":
    """To whom alerts go where the roads are known; nothing if they are not."""
    if not settings.roads:
        return None
    network = read_roads(settings.roads)
    from milepost.hub.incidents.approach import Approach  # noqa: PLC0415

    return Approach(network, upstream_s=settings.upstream_s)


def read_roads(name: str) -> "Network":
    """The network in a file of SUMO's or an extract of OpenStreetMap; raises a `StartFault` that says what to do."""
    if not name.endswith((*SUMO, *OSM)):
        raise UsageFault(f"{name} is no road network by its name: give one that ends in {', '.join((*SUMO, *OSM))}")
    try:
        from milepost.roads.network import UnreadableRoads  # noqa: PLC0415
        from milepost.roads.osm import read_osm  # noqa: PLC0415  # an extra that not everybody installs
        from milepost.roads.sumo import read_sumo  # noqa: PLC0415
    except ModuleNotFoundError as fault:
        raise StartFault(f"{fault}; install it: pip install 'milepost[roads]'") from None
    try:
        with Path(name).open("rb") as file:
            return read_sumo(file) if name.endswith(SUMO) else read_osm(file)
    except OSError as error:
        raise cannot_read(name, error) from None
    except UnreadableRoads as fault:
        raise UsageFault(f"{name}: {fault}") from None
