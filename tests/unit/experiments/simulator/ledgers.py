"""A ledger without violations: three vehicles inside a circle, one outside, an all-clear, and a control stream."""

from milepost.model.areas import Area, Circle
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved
from milepost_experiments.simulator.ledger import AlertKey, ClientPeriod, Fix, PublishedAlert, Receipt, RunLedger

HERE = Place(52.43, 13.53)
RADIUS_M = 500.0
BEGAN = 1_900_000_000 * SECOND_NS
INSIDE = ("car-1", "car-2", "car-3")
OUTSIDE = "car-4"
ALL_VEHICLES = (*INSIDE, OUTSIDE)
RUN_S = 60
RAISED_S = 20
CLEARED_S = 40


def at(second: float) -> Instant:
    return Instant(BEGAN + int(second * SECOND_NS))


def fix(second: float, place: Place, *, heading_deg: float = 0.0, speed_mps: float = 10.0) -> Fix:
    return Fix(at(second), place.latitude, place.longitude, heading_deg, speed_mps)


def place_at(metres: float, bearing_deg: float = 90.0) -> Place:
    return moved(HERE, bearing_deg, metres)


def alert(second: float = RAISED_S, phase: str = "raised", area: Area | None = None) -> PublishedAlert:
    key = AlertKey("Collision-1", phase, at(second))
    return PublishedAlert(key, at(second), at(second + 120), HERE, area or Circle(HERE, RADIUS_M))


def all_clear(second: float = CLEARED_S) -> PublishedAlert:
    return PublishedAlert(
        AlertKey("Collision-1", "cleared", at(second)), at(second), at(second + 120), HERE, None, ("Collision-1",)
    )


def drive(ledger: RunLedger, name: str, metres: float, *, since: float = 0, until: float = RUN_S) -> None:
    """Let a vehicle report from one place, once a second."""
    ledger.reports[name] = [one for one in ledger.reports[name] if not at(since) <= one.at < at(until)]
    ledger.reports[name] += [fix(second + 0.3, place_at(metres)) for second in range(int(since), int(until))]
    ledger.reports[name].sort()


def valid_ledger() -> RunLedger:
    """Return a ledger without violations."""
    ledger = RunLedger()
    for name in ALL_VEHICLES:
        ledger.clients[name] = ClientPeriod("udp", at(0))
        drive(ledger, name, 100.0 if name in INSIDE else 2_000.0)
        ledger.true_positions[name] = list(ledger.reports[name])
    raised, over = alert(), all_clear()
    ledger.alerts = {one.key: one for one in (raised, over)}
    for name in INSIDE:
        ledger.record_receipt(name, raised.key, Receipt(at(RAISED_S + 0.05), is_duplicate=False))
        ledger.record_receipt(name, over.key, Receipt(at(CLEARED_S + 0.05), is_duplicate=False))
    for number in range(1, RUN_S):
        ledger.published_numbers[number] = at(number)
        for name in ALL_VEHICLES:
            ledger.received_numbers[name][number].append(Receipt(at(number + 0.02), is_duplicate=False))
    return ledger
