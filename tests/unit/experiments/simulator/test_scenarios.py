"""Scenarios: which net a file names, and where on Earth it is; by the numbers that the roads are read by."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from milepost.roads.sumo import read_sumo
from milepost_experiments.simulator.scenarios import ground_of, scenario_of
from milepost_experiments.simulator.sumo import SumoFault

UTM = "+proj=utm +zone=33 +ellps=WGS84 +units=m +no_defs"
NET = """<net><location netOffset="-395000.00,-5810000.00" projParameter="{0}"/>
<edge id="ab" from="a" to="b"><lane id="ab_0" index="0" speed="13.9" length="100" shape="1000,2000 1100,2000"/></edge></net>"""
CONFIG = '<configuration><input><net-file value="{0}"/></input></configuration>'


def scenario(folder: Path, *, projection: str = UTM, config: str = CONFIG, packed: bool = False) -> Path:
    name = "town.net.xml.gz" if packed else "town.net.xml"
    text = NET.format(projection).encode()
    (folder / name).write_bytes(gzip.compress(text) if packed else text)
    path = folder / "town.sumocfg"
    path.write_text(config.format(name))
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_a_vehicle_is_where_the_roads_are(tmp_path: Path, packed: bool) -> None:
    found = scenario_of(scenario(tmp_path, packed=packed))
    with found.net.open("rb") as file:
        roads = read_sumo(file)
    latitudes, longitudes = found.ground.places(np.array([1000.0, 1100.0]), np.array([2000.0, 2000.0]))
    assert np.allclose(latitudes, roads.latitudes, atol=1e-7)
    assert np.allclose(longitudes, roads.longitudes, atol=1e-7)


@pytest.mark.parametrize("projection", ["!", "-", ""])
def test_a_net_that_does_not_say_where_it_is_is_refused(tmp_path: Path, projection: str) -> None:
    with pytest.raises(SumoFault, match="where on Earth"):
        scenario_of(scenario(tmp_path, projection=projection))


def test_what_is_no_scenario_is_refused_with_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(SumoFault, match="cannot be read"):
        scenario_of(tmp_path / "none.sumocfg")
    with pytest.raises(SumoFault, match="names no net"):
        scenario_of(scenario(tmp_path, config="<configuration/>"))
    with pytest.raises(SumoFault, match="no XML"):
        scenario_of(scenario(tmp_path, config="net"))
    with pytest.raises(SumoFault, match=r"other\.net\.xml cannot be read"):
        scenario_of(scenario(tmp_path, config='<configuration><net-file value="other.net.xml"/></configuration>'))
    (tmp_path / "torn.net.xml").write_text("<net><location")
    with pytest.raises(SumoFault, match="no XML that SUMO wrote"):
        ground_of(tmp_path / "torn.net.xml")
