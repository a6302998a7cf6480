"""Books in which everything held: three vehicles inside of a circle, one outside, an all-clear, and a control stream."""

from milepost_experiments.simulator.ledger import AlertKey, AlertSaid, Books, Fix, Heard, Stay

from milepost.model.areas import Area, Circle
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved

HERE = Place(52.43, 13.53)
RADIUS_M = 500.0
BEGAN = 1_900_000_000 * SECOND_NS
INSIDE = ("car-1", "car-2", "car-3")
OUTSIDE = "car-4"
EVERYBODY = (*INSIDE, OUTSIDE)
LASTS_S = 60
RAISED_S = 20
CLEARED_S = 40


def at(second: float) -> Instant:
    return Instant(BEGAN + int(second * SECOND_NS))


def fix(second: float, place: Place, *, heading_deg: float = 0.0, speed_mps: float = 10.0) -> Fix:
    return Fix(at(second), place.latitude, place.longitude, heading_deg, speed_mps)


def away(metres: float, bearing_deg: float = 90.0) -> Place:
    return moved(HERE, bearing_deg, metres)


def alert(second: float = RAISED_S, phase: str = "raised", area: Area | None = None) -> AlertSaid:
    key = AlertKey("Collision-1", phase, at(second))
    return AlertSaid(key, at(second), at(second + 120), HERE, area or Circle(HERE, RADIUS_M))


def all_clear(second: float = CLEARED_S) -> AlertSaid:
    return AlertSaid(AlertKey("Collision-1", "cleared", at(second)), at(second), at(second + 120), HERE, None, ("Collision-1",))


def drive(books: Books, name: str, metres: float, *, since: float = 0, until: float = LASTS_S) -> None:
    """Have somebody report from one place, second by second."""
    books.reports[name] = [one for one in books.reports[name] if not at(since) <= one.at < at(until)]
    books.reports[name] += [fix(second + 0.3, away(metres)) for second in range(int(since), int(until))]
    books.reports[name].sort()


def good_books() -> Books:
    """All as it should be."""
    books = Books()
    for name in EVERYBODY:
        books.stays[name] = Stay("udp", at(0))
        drive(books, name, 100.0 if name in INSIDE else 2_000.0)
        books.truths[name] = list(books.reports[name])
    raised, over = alert(), all_clear()
    books.alerts = {one.key: one for one in (raised, over)}
    for name in INSIDE:
        books.hear_alert(name, raised.key, Heard(at(RAISED_S + 0.05), is_again=False))
        books.hear_alert(name, over.key, Heard(at(CLEARED_S + 0.05), is_again=False))
    for number in range(1, LASTS_S):
        books.said[number] = at(number)
        for name in EVERYBODY:
            books.numbers[name][number].append(Heard(at(number + 0.02), is_again=False))
    return books
