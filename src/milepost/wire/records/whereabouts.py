"""Where endpoints are: claims, places, and what the centre says to edges about them."""

from typing import Final

from milepost.model.endpoints import endpoint_id
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.sites import Claim, Claimed, Epoch, Places, Prior, Whereabouts
from milepost.wire.json_form import reading
from milepost.wire.json_form.messages import read_place, write_place
from milepost.wire.json_form.reading import JsonObject, Members
from milepost.wire.records.saying import read_ref

CLAIM: Final = ("type", "endpoint", "edge", "epoch", "anew", "asks", "place")
PLACES: Final = ("type", "edge", "places")
CLAIMED: Final = ("type", "claim")
PRIOR: Final = ("type", "endpoint", "epoch", "edge")
_PLACE_COLUMNS: Final = 6


def write_claim(claim: Claim) -> JsonObject:
    """The members of a claim."""
    found: JsonObject = {
        "type": "claim",
        "endpoint": claim.endpoint,
        "edge": str(claim.edge),
        "epoch": str(claim.epoch),
    }
    if claim.anew:
        found["anew"] = str(claim.anew)
    if claim.asks:
        found["asks"] = True
    if claim.place is not None:
        found["place"] = write_place(claim.place)
    return found


def read_claim(value: object, where: str = "claim") -> Claim:
    """A claim."""
    members = Members(value, where, CLAIM)
    return Claim(
        endpoint_id(members.need("endpoint", reading.text)),
        members.need("edge", read_ref),
        Epoch(members.need("epoch", reading.digits)),
        Epoch(members.maybe("anew", reading.digits, 0)),
        members.maybe("asks", reading.truth, False),
        members.maybe("place", read_place, None),
    )


def write_claimed(claimed: Claimed) -> JsonObject:
    """The members of the centre's word that an endpoint appeared elsewhere."""
    return {"type": "claimed", "claim": write_claim(claimed.claim)}


def read_claimed(value: object) -> Claimed:
    """The centre's word that an endpoint appeared elsewhere."""
    return Claimed(Members(value, "claimed", CLAIMED).need("claim", read_claim))


def write_prior(prior: Prior) -> JsonObject:
    """The members of the centre's word on an earlier stay."""
    found: JsonObject = {"type": "prior", "endpoint": prior.endpoint, "epoch": str(prior.epoch)}
    if prior.edge is not None:
        found["edge"] = str(prior.edge)
    return found


def read_prior(value: object) -> Prior:
    """The centre's word on an earlier stay."""
    members = Members(value, "prior", PRIOR)
    return Prior(
        endpoint_id(members.need("endpoint", reading.text)),
        Epoch(members.need("epoch", reading.digits)),
        members.maybe("edge", read_ref, None),
    )


def write_places(places: Places) -> JsonObject:
    """The members of where endpoints are: a row for each, short because there are many."""
    rows = [
        [one.endpoint, one.place.latitude, one.place.longitude, one.heading_deg, one.speed_mps, str(one.seen_at)]
        for one in places.places
    ]
    return {"type": "places", "edge": str(places.edge), "places": rows}


def read_places(value: object) -> Places:
    """Where endpoints are."""
    members = Members(value, "places", PLACES)
    rows = members.need("places", reading.array)
    return Places(members.need("edge", read_ref), tuple(_row(one, f"places[{at}]") for at, one in enumerate(rows)))


def _row(value: object, where: str) -> Whereabouts:
    row = reading.array(value, where)
    if len(row) != _PLACE_COLUMNS:
        raise ValueError(f"{where} has {len(row)} columns, not {_PLACE_COLUMNS}")
    endpoint, latitude, longitude, heading, speed, seen_at = row
    return Whereabouts(
        endpoint_id(reading.text(endpoint, where)),
        Place(reading.number(latitude, where), reading.number(longitude, where)),
        None if heading is None else reading.number(heading, where),
        None if speed is None else reading.number(speed, where),
        Instant(reading.digits(seen_at, where)),
    )
