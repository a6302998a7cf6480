"""Scenarios: the network that a file names, and its projection, which equals that of the roads."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from milepost.roads.sumo import read_sumo
from milepost_experiments.simulator.scenarios import projection_of, read_scenario
from milepost_experiments.simulator.sumo import SumoFault

UTM = "+proj=utm +zone=33 +ellps=WGS84 +units=m +no_defs"
NET = """<net><location netOffset="-395000.00,-5810000.00" projParameter="{0}"/>
<edge id="ab" from="a" to="b"><lane id="ab_0" index="0" speed="13.9" length="100" shape="1000,2000 1100,2000"/></edge></net>"""
CONFIG = '<configuration><input><net-file value="{0}"/></input></configuration>'


def scenario(folder: Path, *, projection: str = UTM, config: str = CONFIG, packed: bool = False) -> Path:
    name = "city.net.xml.gz" if packed else "city.net.xml"
    text = NET.format(projection).encode()
    (folder / name).write_bytes(gzip.compress(text) if packed else text)
    path = folder / "city.sumocfg"
    path.write_text(config.format(name))
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_vehicles_and_roads_use_the_same_projection(tmp_path: Path, packed: bool) -> None:
    found = read_scenario(scenario(tmp_path, packed=packed))
    with found.net.open("rb") as file:
        roads = read_sumo(file)
    latitudes, longitudes = found.projection.places(np.array([1000.0, 1100.0]), np.array([2000.0, 2000.0]))
    assert np.allclose(latitudes, roads.latitudes, atol=1e-7)
    assert np.allclose(longitudes, roads.longitudes, atol=1e-7)


@pytest.mark.parametrize("projection", ["!", "-", ""])
def test_a_network_without_projection_is_refused(tmp_path: Path, projection: str) -> None:
    with pytest.raises(SumoFault, match="is not georeferenced"):
        read_scenario(scenario(tmp_path, projection=projection))


def test_an_invalid_scenario_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(SumoFault, match="cannot be read"):
        read_scenario(tmp_path / "none.sumocfg")
    with pytest.raises(SumoFault, match="names no road network"):
        read_scenario(scenario(tmp_path, config="<configuration/>"))
    with pytest.raises(SumoFault, match="is not XML"):
        read_scenario(scenario(tmp_path, config="net"))
    with pytest.raises(SumoFault, match=r"other\.net\.xml cannot be read"):
        read_scenario(scenario(tmp_path, config='<configuration><net-file value="other.net.xml"/></configuration>'))
    (tmp_path / "torn.net.xml").write_text("<net><location")
    with pytest.raises(SumoFault, match="is not a network of SUMO"):
        projection_of(tmp_path / "torn.net.xml")
