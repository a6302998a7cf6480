"""Records for every pipeline, by a seed: event messages, reports of two edges, deliveries, and records that cannot be read.

They are seen within `SECONDS` an hour ago, in order, one piece for each second. The closing pieces are seen long after all of
them: the first advances the watermark, and when a query has read the second, everything that waited for it is published.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, radians
from random import Random
from typing import Final

import orjson

from live.pipelines.passes import ReportTuple, by_edge
from milepost.eventlog.log import Entry
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EVENT_KINDS
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import UNPUBLISH, UNPUBLISHED_ID, Message, MessageId
from milepost.model.places import Place
from milepost.model.site_records import EdgeRef, ForwardedMessage
from milepost.pipelines.records import DELIVERIES_TOPIC, MESSAGES_TOPIC, REPORTS_TOPIC, TOPICS
from milepost.wire.records import to_record

SECONDS: Final = 180
CLOSING_S: Final = 2_400
CARS: Final = 6
EDGES: Final = ("north/e1", "north/e2")
HOME: Final = Place(52.5, 13.4)
_DEGREE_M: Final = 111_195.0
_FAULTY: Final = (b"nonsense", b"[]", b"\xff\xfe", b'{"type": "reports"}', b'{"v": 7}')

Piece = Sequence[Entry]


@dataclass(frozen=True)
class Traffic:
    """The records of one seed, the same for every log."""

    pieces: Sequence[Piece]
    closing_pieces: Sequence[Piece]

    @property
    def count(self) -> int:
        return sum(map(len, [*self.pieces, *self.closing_pieces]))


def draw_traffic(seed: int) -> Traffic:
    """Return the records of *seed*, for the hour before now."""
    random, start_s = Random(seed), (int(time.time()) - 3_600) // 60 * 60
    pieces = [_piece(random, start_s, second) for second in range(SECONDS)]
    clock = [("clock", *_away(9_000, 9_000), 0.0, 5.0)]
    closing = [_entries(_reports(start_s + CLOSING_S + second, clock, EDGES[0], covered=0)) for second in range(2)]
    return Traffic(pieces, closing)


def _piece(random: Random, start_s: int, second: int) -> Piece:
    """Return the records of one second, in random order."""
    at_s = start_s + second
    cars = [(f"car-{number}", *_away(11.0 * second, 40.0 * number), 90.0, 11.0) for number in range(CARS)]
    still = ("still", *_away(0, 300), 90.0, 12.0)
    moved = 1 + second * CARS // SECONDS
    reports = [
        *_reports(at_s, [*cars[moved:], still], EDGES[0], covered=0),
        *_reports(at_s, cars[:moved], EDGES[1], covered=2 if second % 4 == 0 else 0),
    ]
    entries = [*_entries(reports), *(_message(random, at_s, second * 10 + number) for number in range(3))]
    if second % 3 == 0:
        entries.append(Entry(random.choice(TOPICS), "e", random.choice(_FAULTY)))
    if second % 5 == 0:
        entries.append(_delivery(random, at_s, second))
    random.shuffle(entries)
    return entries


def _reports(at_s: int, cars: Sequence[tuple[str, float, float, float, float]], edge: str, *, covered: int) -> list[ReportTuple]:
    return [(edge, name, at_s * 1_000_000, *where, 0, covered) for name, *where in cars]  # type: ignore[misc]


def _entries(reports: Sequence[ReportTuple]) -> list[Entry]:
    return [Entry(REPORTS_TOPIC, "e", row["value"].encode()) for row in by_edge(reports)]


def _message(random: Random, at_s: int, number: int) -> Entry:
    """Return an event, or now and then the withdrawal of an earlier one."""
    is_withdrawal = number % 50 == 2
    message = Message(
        id=MessageId(number + 1),
        source=EndpointId("car-0" if is_withdrawal else f"car-{random.randrange(CARS)}"),
        topic=UNPUBLISH if is_withdrawal else random.choice(EVENT_KINDS).topic,
        seen_at=Instant(at_s * SECOND_NS + random.randrange(1_000) * 1_000_000),
        place=Place(*_away(random.randrange(400), random.randrange(400))),
        fields={UNPUBLISHED_ID: str(number - 40)} if is_withdrawal else {"speed_mps": float(random.randrange(20))},
    )
    return Entry(MESSAGES_TOPIC, "e", to_record(ForwardedMessage(EdgeRef("north", "e1"), number + 1, message)))


def _delivery(random: Random, at_s: int, number: int) -> Entry:
    endpoints = [f"car-{one}" for one in range(CARS)]
    value = {
        "type": "deliveries",
        "edge": EDGES[0],
        "source": "car-0",
        "id": str(number),
        "topic": "Collision",
        "endpoints": endpoints,
        "states": random.choices(["matched", "sent", "acknowledged", "dropped"], k=CARS),
        "at_us": [at_s * 1_000_000 + one for one in range(CARS)],
        "reasons": [0] * CARS,
    }
    return Entry(DELIVERIES_TOPIC, "e", orjson.dumps(value))


def _away(east_m: float, north_m: float) -> tuple[float, float]:
    return HOME.latitude + north_m / _DEGREE_M, HOME.longitude + east_m / _DEGREE_M / cos(radians(HOME.latitude))
