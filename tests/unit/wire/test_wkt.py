"""Well-known text: the form of each shape, and errors with the position of the character."""

import pytest

from milepost.model.areas import UNION_DEPTH_MAX, Area, Box, Circle, Corridor, Polygon, Stretch, Union, Upstream
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.wire.wkt import WKT_CHARACTERS_MAX, area_from_wkt, area_to_wkt

OUTER = (Place(50.0, 10.0), Place(50.0, 11.0), Place(51.0, 11.0), Place(50.0, 10.0))
INNER = (Place(50.2, 10.7), Place(50.2, 10.8), Place(50.3, 10.8), Place(50.2, 10.7))
RING = "(10.0 50.0, 11.0 50.0, 11.0 51.0, 10.0 50.0)"
HOLE = "(10.7 50.2, 10.8 50.2, 10.8 50.3, 10.7 50.2)"
CIRCLE = Circle(Place(50.0, 10.0), 500.0)

SHAPES: list[tuple[Area, str]] = [
    (CIRCLE, "CIRCLE (10.0 50.0, 500.0)"),
    (Corridor((Place(50.0, 10.0), Place(51.0, 11.0)), 25.5), "CORRIDOR (10.0 50.0, 11.0 51.0; 25.5)"),
    (
        Upstream.of((Stretch((Place(50.0, 10.0), Place(51.0, 11.0)), 12.5, 90.0, 30.0, 900.0, 300.0),)),
        "UPSTREAM ((10.0 50.0, 11.0 51.0; 12.5, 90.0 30.0, 900.0 300.0))",
    ),
    (Box(-10.0, 170.0, 10.0, -170.0), "BOX (170.0 -10.0, -170.0 10.0)"),
    (Polygon(OUTER), f"POLYGON ({RING})"),
    (Polygon(OUTER, (INNER,)), f"POLYGON ({RING}, {HOLE})"),
    (Union((Polygon(OUTER, (INNER,)), Polygon(OUTER))), f"MULTIPOLYGON (({RING}, {HOLE}), ({RING}))"),
    (
        Union((Union((CIRCLE,)), Polygon(OUTER))),
        f"GEOMETRYCOLLECTION (GEOMETRYCOLLECTION (CIRCLE (10.0 50.0, 500.0)), POLYGON ({RING}))",
    ),
]


def refusal(text: str) -> Malformed:
    with pytest.raises(Malformed) as caught:
        area_from_wkt(text)
    return caught.value


@pytest.mark.parametrize(("area", "text"), SHAPES)
def test_each_shape_is_written_and_read(area: Area, text: str) -> None:
    assert area_to_wkt(area) == text
    assert area_from_wkt(text) == area


@pytest.mark.parametrize("text", ["circle(10 50,500)", "  Circle\n(\t+10. 5e1 , .5E+3 )  ", "CIRCLE(1e1 50.0,500)"])
def test_space_case_and_number_format_do_not_matter(text: str) -> None:
    assert area_from_wkt(text) == CIRCLE


@pytest.mark.parametrize(
    ("text", "at", "detail"),
    [
        ("", 0, "the end of the text"),
        ("   ", 3, "the end of the text"),
        ("POINT (1 2)", 0, "one of CIRCLE, BOX"),
        ("SRID=4326;POLYGON ((0 0))", 0, "found 'SRID'"),
        ("CIRCLE 10 50", 7, "'('"),
        ("CIRCLE (10 50 500)", 14, "leave out the altitude"),
        ("CIRCLE (10 50; 500)", 13, "','"),
        ("CIRCLE (10, 50)", 10, "a latitude"),
        ("UPSTREAM (10 50, 11 51; 12, 9 3, 9 3)", 10, "'('"),
        ("UPSTREAM ((10 50, 11 51; 12, 9, 9 3))", 30, "seconds left at the end"),
        ("CIRCLE (10 50,)", 14, "a radius in metres"),
        ("CIRCLE (10 50, 500", 18, "')', found the end"),
        ("CIRCLE (10 50, 500) x", 20, "the end of the text"),
        ("CIRCLE (1O 50, 500)", 8, "does not start a keyword"),
        ("CIRCLE (1.2.3 50, 500)", 8, "does not start a keyword"),
        ("CIRCLE (10 -, 500)", 11, "does not start a keyword"),
        ("CIRCLE (10 50, 0x10)", 15, "does not start a keyword"),
        ("CIRCLE (١ 50, 500)", 8, "does not start a keyword"),
        ("CIRCLE (nan 50, 500)", 8, "a longitude"),
        ("POLYGON Z ((0 0 0))", 8, "altitude"),
        ("POLYGON ((0 0 0))", 14, "altitude"),
        ("POLYGON (0 0, 1 1)", 9, "'('"),
        ("POLYGON ((0 0, 1 1", 18, "',' or ')'"),
        ("CORRIDOR (0 0, 1 1, 5)", 21, "a latitude"),
        ("CORRIDOR (0 0, 1 1)", 18, "',' or ';'"),
        ("BOX (0 0, 1 1, 2 2)", 13, "')'"),
        ("MULTIPOLYGON (POLYGON ((0 0)))", 14, "'('"),
        ("GEOMETRYCOLLECTION ((0 0))", 20, "one of CIRCLE"),
    ],
)
def test_error_points_at_the_character(text: str, at: int, detail: str) -> None:
    error = refusal(text)
    assert (error.reason, error.at) == (Reason.AREA_UNREADABLE, at)
    assert detail in error.detail


@pytest.mark.parametrize(
    ("text", "at", "reason"),
    [
        ("POLYGON EMPTY", 8, Reason.AREA_EMPTY),
        ("CIRCLE (10 95, 5)", 8, Reason.COORDINATE_RANGE),
        ("CIRCLE (1e999 5, 5)", 8, Reason.COORDINATE_RANGE),
        ("CIRCLE (10 50, -5)", 0, Reason.AREA_RADIUS),
        ("GEOMETRYCOLLECTION (CIRCLE (10 50, 5), BOX (0 1, 1 0))", 39, Reason.AREA_EMPTY),
        (f"MULTIPOLYGON (({RING}), ((0 0, 1 1, 0 0)))", 62, Reason.AREA_RING),
        ("POLYGON ((0 0, 1 1, 0 1, 1 0, 0 0))", 0, Reason.AREA_SELF_CROSSING),
        (f"POLYGON ({RING}, {RING})", 0, Reason.AREA_HOLE),
    ],
)
def test_faults_of_the_area_itself_keep_their_reason_and_point_at_its_text(text: str, at: int, reason: Reason) -> None:
    error = refusal(text)
    assert (error.reason, error.at) == (reason, at)


def test_a_text_above_the_limit_is_refused_before_parsing() -> None:
    assert area_from_wkt("CIRCLE (10 50, 500)".ljust(WKT_CHARACTERS_MAX)) == CIRCLE
    assert refusal("CIRCLE (10 50, 500)".ljust(WKT_CHARACTERS_MAX + 1)).reason is Reason.AREA_TOO_COMPLEX


def test_collections_within_collections_end_at_the_stated_level() -> None:
    def nested(levels: int) -> str:
        return "GEOMETRYCOLLECTION (" * levels + "CIRCLE (10 50, 500)" + ")" * levels

    area_from_wkt(nested(UNION_DEPTH_MAX))
    assert refusal(nested(UNION_DEPTH_MAX + 1)).reason is Reason.AREA_TOO_COMPLEX
    assert refusal(nested(9000)).reason is Reason.AREA_TOO_COMPLEX


def test_points_and_parts_are_counted_while_they_are_read() -> None:
    error = refusal(f"CORRIDOR ({', '.join(['0 0'] * 1001)}; 5)")
    assert error.reason is Reason.AREA_TOO_COMPLEX
    assert error.at == 10 + 5 * 1000 - 2
    assert refusal(f"MULTIPOLYGON ({', '.join([f'({RING})'] * 65)})").reason is Reason.AREA_TOO_COMPLEX
    many = "GEOMETRYCOLLECTION (" + ", ".join(["CIRCLE (1 1, 1)"] * 40) + ")"
    assert "65 parts" in refusal(f"GEOMETRYCOLLECTION ({many}, {many})").detail
