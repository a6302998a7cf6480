"""Every decoder against a million mutated inputs: it accepts or it raises `Malformed`, nothing else.

FUZZ_INPUTS sets the total number (by default 20,000, and 400,000 in `make test-long`), FUZZ_SEED the seed.
"""

import os
from collections.abc import Callable
from random import Random
from typing import Final

import orjson
import pytest

from effort import amount
from fuzz.mutations import mutated_bytes, mutated_text, tokens
from milepost.model.areas import Area, Box, Circle, Corridor, Polygon, Union
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.queries import parse_query
from milepost.model.reasons import Malformed
from milepost.wire.datagrams import decode
from milepost.wire.geojson import area_from_geojson, area_to_geojson
from milepost.wire.json_form import from_json
from milepost.wire.times import duration_from_text, instant_from_text, time_window_from_text
from milepost.wire.wkt import area_from_wkt, area_to_wkt
from scripts.make_vectors import VECTORS

INPUTS: Final = amount("FUZZ_INPUTS", fast=20_000, long=400_000, soak=5_000_000)
SEED: Final = int(os.environ.get("FUZZ_SEED", "1"))

NOW: Final = Instant(1_893_499_200_000_000_000)
ACCEPTED: Final = orjson.loads(VECTORS.read_bytes())["accepted"]
DATAGRAMS: Final = [bytes.fromhex(vector["hex"]) for vector in ACCEPTED]
RING: Final = (Place(0.0, 0.0), Place(0.0, 1.0), Place(1.0, 1.0), Place(0.0, 0.0))
AREAS: Final[list[Area]] = [
    Circle(Place(1.0, 2.0), 500.0),
    Box(-1.0, 170.0, 1.0, -170.0),
    Corridor((Place(0.0, 0.0), Place(0.5, 0.5), Place(1.0, 0.0)), 20.0),
    Polygon(RING),
    Union((Circle(Place(1.0, 2.0), 500.0), Box(0.0, 0.0, 1.0, 1.0))),
    Union((Polygon(RING),)),
]
QUERIES: Final = [
    "collision & (i80 | i15) & !cleared",
    'topic:city/+/parking/# & !topic:"old town/#"',
    '!(a | b & !"topic:c")',
    "a|b",
]
INSTANTS: Final = ["2030-05-01T18:00:00Z", "2030-05-01 20:00:00.123456789+02:00", "18:00Z", "10 minutes ago", "in 2 hours", "now"]
DURATIONS: Final = ["10 minutes", "1h30m", "90s", "1.5 hours", "PT10M", "P1DT12H"]
TIME_WINDOWS: Final = [
    "last 10 minutes",
    "until 18:00Z",
    "from last 10 minutes on",
    "2030-05-01T18:00:00Z/PT2H",
    "../now",
    "always",
]

Make = Callable[[Random], bytes | str]


def _texts(*seeds: str) -> Make:
    split = [tokens(seed) for seed in seeds]
    return lambda random: mutated_text(random, split)


def _json_bytes(random: Random) -> bytes:
    return mutated_bytes(random, JSON_TEXTS) if random.randrange(8) == 0 else str(JSON_TOKENS(random)).encode(errors="replace")


def _geojson(text: bytes | str) -> object:
    try:
        value = orjson.loads(text.encode(errors="replace") if isinstance(text, str) else text)
    except orjson.JSONDecodeError:
        value = {"type": "Point", "coordinates": [text, 1], "radius_m": 1.0}  # still unusual input
    return area_from_geojson(value)


JSON_TEXTS: Final = [orjson.dumps(vector["value"]) for vector in ACCEPTED]
JSON_TOKENS: Final = _texts(*(text.decode() for text in JSON_TEXTS))

# A decoder, the generator of its inputs, and its share of all inputs.
DECODERS: Final[dict[str, tuple[Callable[..., object], Make, float]]] = {
    "datagrams": (decode, lambda random: mutated_bytes(random, DATAGRAMS), 0.35),
    "json": (from_json, _json_bytes, 0.25),
    "geojson": (_geojson, _texts(*(orjson.dumps(area_to_geojson(area)).decode() for area in AREAS)), 0.1),
    "wkt": (area_from_wkt, _texts(*map(area_to_wkt, AREAS)), 0.1),
    "queries": (parse_query, _texts(*QUERIES), 0.1),
    "instants": (lambda text: instant_from_text(text, NOW), _texts(*INSTANTS), 0.04),
    "durations": (duration_from_text, _texts(*DURATIONS), 0.02),
    "time windows": (lambda text: time_window_from_text(text, NOW), _texts(*TIME_WINDOWS), 0.04),
}


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_accepts_or_refuses_any_input(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    read, make, share = DECODERS[name]
    random = Random(f"{SEED} {name}")
    inputs, refused = int(INPUTS * share), 0
    for _ in range(inputs):
        found = make(random)
        try:
            read(found)
        except Malformed:
            refused += 1
        except BaseException as fault:
            fault.add_note(f"{name}, seed {SEED}, input {found!r}")
            raise
    with capsys.disabled():
        print(f"\n{name:10} {inputs:9,} inputs {inputs - refused:9,} accepted {refused:9,} refused", end="")
    assert 0 < refused < inputs


def test_the_shares_of_all_decoders_add_up_to_one() -> None:
    assert sum(share for _, _, share in DECODERS.values()) == pytest.approx(1)
