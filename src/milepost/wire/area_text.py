"""Places and areas as one line of human-readable text, latitude first.

    place     40.7608,-111.891
    area      circle 40.7608,-111.891 500      or GeoJSON, or WKT, which have longitude first

Numbers are decimal, with a point; ambiguous input is refused.
"""

import re
from typing import Final

from milepost.model.areas import Area, Around, Circle
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.wire.geojson import area_from_geojson, area_to_geojson
from milepost.wire.json_form.codec import decode_any, encode_any
from milepost.wire.wkt import area_from_wkt

NUMBERS_CHARACTERS_MAX: Final = 128
"""Maximum characters of the numbers of a place, a report or a radius."""

_DIGITS_TOO_MANY: Final = re.compile("[0-9]{40}")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def numbers_from_text(text: str, names: str, needed: int) -> list[float]:
    """Return the numbers of a text such as `40.7608,-111.891`: at least *needed*, at most one for each of *names*."""
    parts = [part.strip(" ") for part in text[: NUMBERS_CHARACTERS_MAX + 1].split(",")]
    is_short = len(text) <= NUMBERS_CHARACTERS_MAX
    if not is_short or not needed <= len(parts) <= names.count(",") + 1 or not all(map(_NUMBER.fullmatch, parts)):
        raise Malformed(Reason.FIELD_TYPE, f"{_shown(text)} is not {names} in decimal numbers")
    return [float(part) for part in parts]


def place_from_text(text: str) -> Place:
    """Return the place of a text with latitude and longitude."""
    latitude, longitude = numbers_from_text(text, "LATITUDE,LONGITUDE", 2)
    return Place(latitude, longitude)


def place_to_text(place: Place) -> str:
    """Return the text of a place, with exact coordinates."""
    return f"{float(place.latitude)!r},{float(place.longitude)!r}"


def area_from_text(text: str) -> Area:
    """Return the area of a text: GeoJSON, WKT, or a circle with latitude first."""
    if text.lstrip(" ").startswith("{"):
        return area_from_geojson(_loaded(text))
    word, _, rest = text.strip(" ").partition(" ")
    if word.lower() != "circle" or "(" in rest:
        return _area_from_wkt(text)
    place, _, radius_m = rest.rpartition(" ")
    return Circle(place_from_text(place), _metres(radius_m))


def where_from_text(text: str) -> Area | Around:
    """Return the area of a text, or for `around 500` the area within 500 m of the subscriber."""
    word, _, rest = text.strip(" ").partition(" ")
    return Around(_metres(rest)) if word.lower() == "around" else area_from_text(text)


def area_to_text(area: Area) -> str:
    """Return the area as GeoJSON in one line, which decodes to the same area."""
    return encode_any(area_to_geojson(area)).decode()


def _metres(text: str) -> float:
    return numbers_from_text(text, "RADIUS_M", 1)[0]


def _area_from_wkt(text: str) -> Area:
    # The time to reject a malformed number grows fast with its length; no coordinate needs 40 digits.
    if found := _DIGITS_TOO_MANY.search(text):
        raise Malformed(Reason.AREA_UNREADABLE, f"a number of 40 digits or more at {found.start()}", at=found.start())
    return area_from_wkt(text)


def _loaded(text: str) -> object:
    try:
        return decode_any(text)
    except Malformed as fault:
        raise Malformed(Reason.AREA_UNREADABLE, fault.detail, at=fault.at) from None


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
