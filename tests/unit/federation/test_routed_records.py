"""What a site said last and what others brought to it."""

from central_hub_in_memory import START
from milepost.federation.hub_streams import Arrivals, Routed, RoutedRecords
from milepost.model.instants import Instant


def routed(number: int, sender: str = "north/1", size: int = 10) -> Routed:
    return Routed(number, Instant(START + number), sender, number, bytes(size), frozenset())


def offsets(recent: RoutedRecords, mark: int = 0) -> list[int]:
    return [one.offset for one in recent.above(lambda sender: mark)]


def test_what_each_sender_said_above_its_mark_comes_in_the_order_of_the_log() -> None:
    recent = RoutedRecords(1)
    for number, sender in ((1, "north/1"), (2, "north/2"), (3, "north/1"), (4, "north/2")):
        recent.put(routed(number, sender))
    cursors = {"north/1": 1, "north/2": 2}
    assert [one.offset for one in recent.above(cursors.__getitem__)] == [3, 4]
    assert offsets(recent) == [1, 2, 3, 4]


def test_the_oldest_go_when_there_are_too_many_or_they_are_too_large() -> None:
    recent = RoutedRecords(1, records_max=2, bytes_max=100)
    for number in (1, 2, 3):
        recent.put(routed(number))
    assert (recent.first, offsets(recent)) == (2, [2, 3])
    recent.put(routed(4, size=95))
    assert (recent.first, offsets(recent)) == (4, [4])


def test_it_tells_whether_all_since_an_instant_is_there() -> None:
    recent = RoutedRecords(1, records_max=2)
    assert not recent.reaches(Instant(START))
    recent.put(routed(1))
    assert recent.reaches(Instant(START + 2))
    assert not recent.reaches(Instant(START + 1))
    for number in (2, 3):
        recent.put(routed(number))
    assert recent.reaches(Instant(START + 2))
    assert not recent.reaches(Instant(START + 1))


def test_what_has_arrived_is_known_and_what_readers_would_drop() -> None:
    arrivals = Arrivals(limit=2)
    arrivals.add("north/1", 5)
    assert ("north/1", 5) in arrivals
    assert ("north/1", 4) not in arrivals
    assert arrivals.is_passed("north/1", 4)
    assert not arrivals.is_passed("north/1", 6)
    assert not arrivals.is_passed("north/2", 1)


def test_what_came_for_one_endpoint_alone_lets_others_have_what_is_earlier() -> None:
    arrivals = Arrivals(limit=2)
    arrivals.add_extra("north/1", 9)
    assert ("north/1", 9) in arrivals
    assert not arrivals.is_passed("north/1", 8)


def test_the_oldest_arrivals_are_forgotten_but_not_how_far_they_went() -> None:
    arrivals = Arrivals(limit=2)
    for number in (5, 6, 7):
        arrivals.add("north/1", number)
    assert ("north/1", 5) not in arrivals
    assert arrivals.is_passed("north/1", 7)
