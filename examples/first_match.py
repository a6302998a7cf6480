"""A first match: a hundred thousand vehicles, one collision, and who should hear of it. Run it with `make demo`."""

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from milepost.matching import Matcher
from milepost.model import (
    Around,
    EndpointId,
    Instant,
    Kind,
    Malformed,
    Message,
    MessageId,
    Place,
    Subscription,
    ToArea,
    parse_query,
    tags,
)
from milepost.model.queries import point_at
from milepost.wire.geojson import area_from_geojson
from milepost.wire.times import frame_from_text, instant_to_text

Answer = TypeVar("Answer")
Degrees = NDArray[np.float64]

VEHICLES = 100_000
NOW = Instant(1_900_000_000_000_000_000)
SOUTH, NORTH, WEST, EAST = 40.2, 41.2, -112.6, -111.4
CRASH = Place(40.765, -111.95)
# The road that leads to the crash from the west, 150 m to either side.
APPROACH = {
    "type": "LineString",
    "coordinates": [[-112.25, 40.72], [-112.10, 40.77], [-111.95, 40.765]],
    "half_width_m": 150,
}
ASKED = {
    "truck-7": ("collision & (i80 | i15) & !cleared", "around", "next 2 hours"),
    "dispatch": ("topic:Collision", "everywhere", "always"),
    "night-shift": ("collision", "everywhere", "from 2030-03-17T22:00Z until 2030-03-18T06:00Z"),
    "parking-app": ("topic:city/+/parking/#", "everywhere", "always"),
    "i15-board": ("collision & i15", "everywhere", "always"),
}


def main() -> None:
    engine = Matcher()
    random = np.random.default_rng(1)
    latitudes, longitudes = random.uniform(SOUTH, NORTH, VEHICLES), random.uniform(WEST, EAST, VEHICLES)
    latitudes[0], longitudes[0] = 40.75, -111.99  # vehicle 0 is truck-7, 4 km away
    engine.move(np.arange(VEHICLES), latitudes, longitudes)
    print(f"{VEHICLES:,} vehicles have said where they are. Some of them, and two offices, have asked for messages:\n")
    subscribe(engine)

    message = Message(
        MessageId(1),
        EndpointId("car-4711"),
        Kind.COLLISION.value.topic,
        NOW,
        tags(["collision", "i80", "lane2"]),
        ToArea(area_from_geojson(APPROACH)),
        CRASH,
        Instant(NOW + Kind.COLLISION.value.validity_ns),
        Kind.COLLISION.value.priority,
    )
    what, where = ", ".join(sorted(message.tags)), f"{CRASH.latitude} N, {-CRASH.longitude} W"
    print(f"\n{instant_to_text(NOW)}: {message.source} reports {what} at {where}\n")
    area = area_from_geojson(APPROACH)
    takers, wanted_us = timed(lambda: engine.who_wants(message, NOW))
    inside, inside_us = timed(lambda: engine.who_is_in(area))
    names = list(ASKED)
    print(f"who wants it      {', '.join(names[owner] for owner in sorted(takers.owners.tolist()))}  ({wanted_us:.0f} µs)")
    print(f"who will reach it {inside.size} vehicles on the road to it, of {VEHICLES:,}  ({inside_us:.0f} µs)\n")
    print(picture(latitudes, longitudes, inside))
    show_a_refusal()


def timed(ask: Callable[[], Answer]) -> tuple[Answer, float]:
    """The answer, and the microseconds it took the second time, when everything is loaded."""
    ask()
    started = time.perf_counter()
    answer = ask()
    return answer, (time.perf_counter() - started) * 1e6


def subscribe(engine: Matcher) -> None:
    for number, (name, (query, where, when)) in enumerate(ASKED.items()):
        around = Around(5_000.0) if where == "around" else None
        print(f"  {name:12} {query:36} {'within 5 km of me' if around else where:18} {when}")
        engine.add(number, Subscription(EndpointId(name), parse_query(query), around, frame_from_text(when, NOW)))


def picture(latitudes: Degrees, longitudes: Degrees, inside: NDArray[np.int32]) -> str:
    """The country around the crash in letters: dots are vehicles, # those that are warned, X the crash."""
    box = (40.69, 40.80, -112.28, -111.92)
    rows, columns = 16, 76
    canvas = np.full((rows, columns), " ")
    for mark, who in ((".", np.arange(latitudes.size)), ("#", inside)):
        shown = (latitudes[who] - box[0]) / (box[1] - box[0]), (longitudes[who] - box[2]) / (box[3] - box[2])
        is_shown = (shown[0] >= 0) & (shown[0] < 1) & (shown[1] >= 0) & (shown[1] < 1)
        canvas[rows - 1 - (shown[0][is_shown] * rows).astype(int), (shown[1][is_shown] * columns).astype(int)] = mark
    y, x = (CRASH.latitude - box[0]) / (box[1] - box[0]), (CRASH.longitude - box[2]) / (box[3] - box[2])
    canvas[rows - 1 - int(y * rows), int(x * columns)] = "X"
    frame = "+" + "-" * columns + "+"
    return "\n".join([frame, *("|" + "".join(row) + "|" for row in canvas), frame, ". vehicle   # warned   X collision"])


def show_a_refusal() -> None:
    text = "collision & (i80 | ) & !cleared"
    print("\nWhat cannot be understood is refused, with a number, a name and what to change:\n")
    try:
        parse_query(text)
    except Malformed as fault:
        print(point_at(text, fault.at or 0))
        print(fault)


if __name__ == "__main__":
    main()
