"""A replay compared with a live engine that receives cells in batches, some time after their reports (M24)."""

import random
from collections.abc import Iterable
from typing import Final, NamedTuple

import pytest

from milepost.incidents.engine import IncidentEngine
from milepost.model.incidents import EVENT_KINDS
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message
from milepost.model.places import Place, moved
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.pipelines.arrivals import Arrival, GrowingCells
from milepost.pipelines.backtest import Replay
from milepost.wire.incidents import cell_to_json
from milepost.wire.records import from_record
from unit.incidents.events import HOME, NOON

KINDS: Final = tuple(kind for kind in EVENT_KINDS if kind.name in ("Collision", "Obstacle", "Congestion"))
HOUR_S: Final = 3_600
LATE_S: Final = 2.0
BATCH_MS: Final = 500
LATENCY_MS: Final = 200
END: Final = Instant(NOON + HOUR_S * SECOND_NS)


class ComparedAlert(NamedTuple):
    """The compared fields of an alert that is neither early nor raised."""

    id: str
    kind: str
    phase: str
    at: Instant
    place: Place | None
    radius_m: object
    reports: object
    witnesses: object


def recorded_hour(chance: random.Random) -> list[Arrival]:
    """Return the arrivals of an hour: traffic on some roads, with jams and collisions that begin, grow, move and end."""
    scenes = [(moved(HOME, chance.uniform(0, 360), chance.uniform(0, 6_000)), chance.randrange(HOUR_S - 400)) for _ in range(40)]
    found = []
    for place, start_s in scenes:
        kind, bearing = chance.choice(KINDS), chance.uniform(0, 360)
        for number in range(chance.randrange(3, 60)):
            seconds = start_s + chance.expovariate(1 / 60) + number * 0.7
            spot = moved(moved(place, bearing, number * 6.0), chance.uniform(0, 360), chance.uniform(0, 60))
            found.append(arrival(chance, kind.name, seconds, spot, f"car-{chance.randrange(400)}"))
    return sorted(found)


def arrival(chance: random.Random, name: str, seconds: float, spot: Place, endpoint: str) -> Arrival:
    kind = next(kind for kind in KINDS if kind.name == name)
    seen_at = Instant(NOON + int(min(seconds, HOUR_S - LATE_S) * 1_000_000) * 1_000)
    (row, column), north, east = kind.grid.locate(spot)
    appended_us = seen_at // 1_000_000 * 1_000 + chance.randrange(5, 900) * 1_000
    value = int(chance.uniform(0, 7) * 1_000) if name == "Congestion" else None
    return appended_us, name, seen_at // kind.interval_ns, row, column, endpoint, seen_at // 1_000, north, east, (value,)


def live(arrivals: list[Arrival]) -> list[Message]:
    """Return the alerts of an engine that receives the changed cells of every half second, a fifth of a second later."""
    engine = IncidentEngine("north", KINDS, allowed_lateness_s=LATE_S, since=NOON)
    growing, waiting, found = GrowingCells(KINDS), list(arrivals), []
    for until_ms in range(0, (HOUR_S + 10) * 1_000, BATCH_MS):
        until_us = NOON // 1_000 + until_ms * 1_000
        count = next((number for number, one in enumerate(waiting) if one[0] >= until_us), len(waiting))
        batch, waiting = waiting[:count], waiting[count:]
        now = Instant((until_us + LATENCY_MS * 1_000) * 1_000)
        if now > END + LATE_S * SECOND_NS:
            break
        engine.tick(now)
        engine.add_cells([cell_to_json(cell) for cell in growing.add(batch)], now)
        found += taken(engine)
    engine.tick(Instant(END + int(LATE_S * SECOND_NS)))
    return found + taken(engine)


def taken(engine: IncidentEngine) -> list[Message]:
    return messages_of(append.value for append in engine.take_appends() if append.topic == CROSS_HUB)


def messages_of(records: Iterable[bytes]) -> list[Message]:
    found = [from_record(record) for record in records]
    return [one.message for one in found if isinstance(one, ForwardedMessage)]


def compared(messages: list[Message]) -> list[ComparedAlert]:
    return sorted(
        ComparedAlert(
            str(one.fields["incident"]),
            str(one.fields["kind"]),
            str(one.fields["phase"]),
            one.seen_at,
            one.place,
            *(one.fields[name] for name in ("radius_m", "reports", "witnesses")),
        )
        for one in messages
        if one.fields["phase"] in ("moved", "grown", "lasting", "cleared")
    )


def early(messages: list[Message]) -> dict[str, Instant]:
    return {str(one.fields["incident"]): one.seen_at for one in messages if one.fields["phase"] == "early"}


@pytest.mark.parametrize("seed", range(4))
def test_a_replay_of_an_hour_has_the_incidents_of_the_live_engine_and_nearly_all_of_its_early_alerts(seed: int) -> None:
    arrivals = recorded_hour(random.Random(seed))
    of_live = live(arrivals)
    of_replay = messages_of(Replay("north", KINDS, allowed_lateness_s=LATE_S, since=NOON).alerts(arrivals, END))
    warned, warned_in_replay = early(of_live), early(of_replay)
    differing = {one.id for one in set(compared(of_live)) ^ set(compared(of_replay))}
    assert differing <= warned.keys() ^ warned_in_replay.keys(), "only all-clears of early alerts that the other did not publish"
    both = warned.keys() & warned_in_replay.keys()
    assert len(both) >= 0.95 * max(len(warned), len(warned_in_replay))
    # The rest is due to batches, and to bins that are evaluated again when they have an eighth more reports.
    in_time = [name for name in both if 0 <= warned[name] - warned_in_replay[name] <= (BATCH_MS + LATENCY_MS) * 1_000_000]
    assert len(in_time) >= 0.9 * len(both)
