"""Road network files: the format by file name, and faults for unusable files (M26)."""

from pathlib import Path

import pytest

from milepost.config.errors import UsageFault
from milepost.config.settings import IncidentSettings
from milepost.runtime.road_files import read_roads

NET = """<net><location netOffset="-500000,-4982950" projParameter="+proj=utm +zone=33"/>
<edge id="a" from="x" to="y"><lane id="a_0" index="0" speed="10" length="100" shape="0,0 100,0"/></edge></net>"""
OSM = """<osm version="0.6"><node id="1" version="1" lat="45" lon="15"/><node id="2" version="1" lat="45.01" lon="15"/>
<way id="7" version="1"><nd ref="1"/><nd ref="2"/><tag k="highway" v="primary"/></way></osm>"""


def test_m26_the_file_name_ending_selects_the_format(tmp_path: Path) -> None:
    for name, text, roads in (("town.net.xml", NET, ("a",)), ("town.osm", OSM, ("7#0", "-7#0"))):
        (tmp_path / name).write_text(text)
        assert read_roads(str(tmp_path / name)).ids == roads


def test_an_unusable_road_network_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "bad.net.xml").write_text("<routes/>")
    for name, why in (
        ("gone.net.xml", "does not exist"),
        ("town.geojson", "is not a road network by its name"),
        ("bad.net.xml", "bad.net.xml: the root element is 'routes'"),
    ):
        with pytest.raises(UsageFault, match=why):
            read_roads(str(tmp_path / name))


@pytest.mark.parametrize("seconds", [0.0, 3_601.0])
def test_an_upstream_reach_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="upstream_s"):
        IncidentSettings(upstream_s=seconds)
