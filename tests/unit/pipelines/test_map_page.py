import re

import pytest

from milepost.model.areas import Area, Box, Circle, Corridor, Polygon, Union
from milepost.model.places import Place, moved
from milepost.pipelines.map_page import HEIGHT, WIDTH, MapDot, MapPage, html, svg

HOME = Place(40.7608, -111.891)
FIJI = Place(-17.0, 179.9999)
SQUARE = Polygon(
    (Place(40.0, -112.0), Place(40.0, -111.0), Place(41.0, -111.0), Place(41.0, -112.0), Place(40.0, -112.0)),
    ((Place(40.4, -111.6), Place(40.4, -111.4), Place(40.6, -111.4), Place(40.4, -111.6)),),
)


def points(drawing: str) -> list[tuple[float, float]]:
    """Return the centres of all dots."""
    found = re.findall(r'class="mark" cx="([-0-9.]+)" cy="([-0-9.]+)"', drawing)
    return [(float(x), float(y)) for x, y in found]


@pytest.mark.parametrize("home", [HOME, FIJI, Place(0.0, 0.0), Place(89.9, 10.0)])
@pytest.mark.parametrize("apart_m", [0.0, 30.0, 90_000.0])
def test_every_dot_is_inside_the_drawing_with_north_up_and_east_right(home: Place, apart_m: float) -> None:
    places = [home, moved(home, 0.0, apart_m), moved(home, 90.0, apart_m)]
    middle, north, east = points(svg([MapDot(place, "good", "") for place in places]))
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in (middle, north, east))
    if apart_m and home.latitude < 89:
        assert north[1] < middle[1]
        assert east[0] > middle[0]


@pytest.mark.parametrize(
    "area",
    [Circle(FIJI, 500.0), Box(40.0, -112.0, 41.0, -111.0), SQUARE, Corridor((HOME, moved(HOME, 45.0, 900.0)), 30.0)],
)
def test_every_shape_is_drawn_inside_the_picture(area: Area) -> None:
    drawing = svg([], Union((area, Circle(area_middle(area), 10.0))))
    numbers = re.findall(r'(?:d|points)="([^"]+)"', drawing)
    assert len(numbers) == 2
    for x, y in re.findall(r"([-0-9.]+)[ ,]([-0-9.]+)", " ".join(numbers)):
        assert 0 <= float(x) <= WIDTH
        assert 0 <= float(y) <= HEIGHT


def area_middle(area: Area) -> Place:
    box = area.boxes[0]
    return Place((box.south + box.north) / 2, box.west if box.west > box.east else (box.west + box.east) / 2)


def test_a_page_has_its_table_and_escapes_markup() -> None:
    page = html(MapPage("<b>", [MapDot(HOME, "bad", "<i>&")], [("bad", "<u>")], ["endpoint"], [["<s>"]], Circle(HOME, 100.0)))
    assert not re.search("<[bius]>", page)
    assert "<td>&lt;s&gt;</td>" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_an_empty_page_is_valid() -> None:
    assert points(html(MapPage("nothing", [], [], ["endpoint"], []))) == []
