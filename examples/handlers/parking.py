"""Parking: car parks announce their free spaces, drivers request the nearest car parks with free spaces and reserve one.

    milepost handler run examples/handlers/parking.py --config milepost.toml

    service/parking/free       a car park: {"place": "station", "latitude": 40.76, "longitude": -111.89, "free": 12}
    service/parking/find       a driver: {"latitude": 40.7608, "longitude": -111.891}
    service/parking/reserve    a driver: {"place": "station"}

Answers are published on the same topic followed by /accept or /reject. A reservation expires after fifteen minutes.
"""

from typing import TypedDict, cast

from milepost.handlers import NOTHING, Handler, Message, Reject, Store
from milepost.model import Place
from milepost.model.places import distance_m

RESERVED_S = 15 * 60
SECOND_NS = 1_000_000_000

NAME = {"type": "string", "minLength": 1, "maxLength": 64}
LATITUDE = {"type": "number", "minimum": -90, "maximum": 90}
LONGITUDE = {"type": "number", "minimum": -180, "maximum": 180}
SPACES = {"type": "integer", "minimum": 0, "maximum": 100_000}


def record(required: dict[str, object], **others: object) -> dict[str, object]:
    """Return the schema of an object with exactly these members."""
    return {
        "type": "object",
        "properties": required | others,
        "required": list(required),
        "additionalProperties": False,
    }


FREE = record({"place": NAME, "latitude": LATITUDE, "longitude": LONGITUDE, "free": SPACES})
FIND = record(
    {"latitude": LATITUDE, "longitude": LONGITUDE},
    within_m={"type": "number", "exclusiveMinimum": 0, "maximum": 20_000},
    most={"type": "integer", "minimum": 1, "maximum": 20},
)
FOUND = record(
    {
        "places": {
            "type": "array",
            "maxItems": 20,
            "items": record({"place": NAME, "free": SPACES, "distance_m": {"type": "integer", "minimum": 0}}),
        }
    }
)
RESERVE = record({"place": NAME})
RESERVED = record({"place": NAME, "valid_s": {"type": "integer", "const": RESERVED_S}})


class CarPark(TypedDict):
    latitude: float
    longitude: float
    free: int
    reserved: dict[str, int]
    """Expiry of each reservation by driver, in nanoseconds."""


class ParkingRequest(TypedDict, total=False):
    latitude: float
    longitude: float
    within_m: float
    most: int


app = Handler("parking")


@app.on("service/parking/free", accepts=FREE, answers=NOTHING)
def announce(request: dict[str, object], _message: Message, store: Store) -> None:
    place = f"place/{request.pop('place')}"
    known = cast("CarPark | None", store.get(place))
    store.put(place, request | {"reserved": known["reserved"] if known else {}})


@app.on("service/parking/find", accepts=FIND, answers=FOUND)
def find(request: ParkingRequest, message: Message, store: Store) -> dict[str, object]:
    here = Place(request["latitude"], request["longitude"])
    found = []
    for name, value in store.items("place/"):
        park = cast("CarPark", value)
        distance = distance_m(here, Place(park["latitude"], park["longitude"]))
        free = free_spaces(park, message)
        if free > 0 and distance <= request.get("within_m", 2_000.0):
            found.append({"place": name.removeprefix("place/"), "free": free, "distance_m": round(distance)})
    if not found:
        raise Reject("no free space near you")
    found.sort(key=lambda one: cast("int", one["distance_m"]))
    return {"places": found[: request.get("most", 3)]}


@app.on("service/parking/reserve", accepts=RESERVE, answers=RESERVED)
def reserve(request: dict[str, str], message: Message, store: Store) -> dict[str, object]:
    key = f"place/{request['place']}"
    park = cast("CarPark | None", store.get(key))
    if park is None:
        raise Reject("no such place")
    reserved = {driver: until for driver, until in park["reserved"].items() if until > message.seen_at}
    if message.source not in reserved and park["free"] - len(reserved) <= 0:
        raise Reject("no free space left")
    reserved[message.source] = message.seen_at + RESERVED_S * SECOND_NS
    store.put(key, park | {"reserved": reserved})
    return {"place": request["place"], "valid_s": RESERVED_S}


def free_spaces(park: CarPark, message: Message) -> int:
    """Return the number of free spaces that no other driver has reserved."""
    others = [driver for driver, until in park["reserved"].items() if until > message.seen_at and driver != message.source]
    return park["free"] - len(others)
