"""What is said and who wants it: messages that left their edge, subscriptions, edges and the centre."""

from typing import Final

from milepost.model.instants import Instant
from milepost.model.sites import CentreInfo, EdgeInfo, EdgeRef, Said, Wanted, edge_ref
from milepost.wire.geojson import area_to_geojson
from milepost.wire.json_form import reading
from milepost.wire.json_form.messages import read_area, read_message, write_message
from milepost.wire.json_form.reading import JsonObject, Members
from milepost.wire.json_form.subscriptions import read_subscription, write_subscription

SAID: Final = ("type", "from", "number", "qos", "retained", "extras", "direct", "message")
WANTED: Final = ("type", "edge", "subscription")
EDGE: Final = ("type", "edge", "coverage", "strays", "address")
CENTRE: Final = ("type", "name", "sites", "at")


def write_said(said: Said) -> JsonObject:
    """The members of a message that left its edge."""
    found: JsonObject = {"type": "said", "from": str(said.sender), "number": str(said.number)}
    if said.qos:
        found["qos"] = said.qos
    if said.is_retained:
        found["retained"] = True
    if said.extras is not None:
        found["extras"] = reading.spell_octets(said.extras)
    if said.direct:
        found["direct"] = list(said.direct)
    found["message"] = write_message(said.message)
    return found


def read_said(value: object) -> Said:
    """The message that left its edge."""
    members = Members(value, "said", SAID)
    return Said(
        members.need("from", read_ref),
        members.need("number", reading.digits),
        members.need("message", read_message),
        members.maybe("qos", reading.integer, 0),
        members.maybe("retained", reading.truth, False),
        members.maybe("extras", reading.octets, None),
        tuple(members.maybe("direct", reading.texts, [])),
    )


def write_wanted(wanted: Wanted) -> JsonObject:
    """The members of what is wanted somewhere."""
    return {"type": "wanted", "edge": str(wanted.edge), "subscription": write_subscription(wanted.subscription)}


def read_wanted(value: object) -> Wanted:
    """What is wanted somewhere."""
    members = Members(value, "wanted", WANTED)
    return Wanted(members.need("edge", read_ref), members.need("subscription", read_subscription))


def write_edge(info: EdgeInfo) -> JsonObject:
    """The members that describe an edge."""
    found: JsonObject = {"type": "edge", "edge": str(info.edge)}
    if info.coverage is not None:
        found["coverage"] = area_to_geojson(info.coverage)
    if info.strays:
        found["strays"] = [list(square) for square in info.strays]
    if info.address:
        found["address"] = info.address
    return found


def read_edge(value: object) -> EdgeInfo:
    """An edge."""
    members = Members(value, "edge", EDGE)
    return EdgeInfo(
        members.need("edge", read_ref),
        members.maybe("coverage", read_area, None),
        members.maybe("strays", _squares, ()),
        members.maybe("address", reading.text, ""),
    )


def write_centre(info: CentreInfo) -> JsonObject:
    """The members that describe the centre."""
    return {"type": "centre", "name": info.name, "sites": list(info.sites), "at": str(info.at)}


def read_centre(value: object) -> CentreInfo:
    """The centre."""
    members = Members(value, "centre", CENTRE)
    return CentreInfo(
        members.need("name", reading.text),
        tuple(members.need("sites", reading.texts)),
        Instant(members.need("at", reading.digits)),
    )


def read_ref(value: object, where: str) -> EdgeRef:
    """An edge's name, as SITE/EDGE."""
    return edge_ref(reading.text(value, where))


def _squares(value: object, where: str) -> tuple[tuple[int, int], ...]:
    return tuple((row, column) for row, column in (reading.integers(one, where) for one in reading.array(value, where)))
