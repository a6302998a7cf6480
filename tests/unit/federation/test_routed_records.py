"""The cached messages of a site, and the messages of other sites that have arrived there."""

from central_hub_in_memory import START
from milepost.federation.hub_streams import Arrivals, Routed, RoutedRecords
from milepost.model.instants import Instant


def routed(number: int, sender: str = "north/1", size: int = 10) -> Routed:
    return Routed(number, Instant(START + number), sender, number, bytes(size), frozenset())


def offsets(recent: RoutedRecords, cursor: int = 0) -> list[int]:
    return [one.offset for one in recent.above(lambda sender: cursor)]


def test_messages_above_the_cursor_of_each_origin_are_returned_in_log_order() -> None:
    recent = RoutedRecords(1)
    for number, sender in ((1, "north/1"), (2, "north/2"), (3, "north/1"), (4, "north/2")):
        recent.put(routed(number, sender))
    cursors = {"north/1": 1, "north/2": 2}
    assert [one.offset for one in recent.above(cursors.__getitem__)] == [3, 4]
    assert offsets(recent) == [1, 2, 3, 4]


def test_the_oldest_records_are_dropped_beyond_the_limits_in_number_and_bytes() -> None:
    recent = RoutedRecords(1, records_max=2, bytes_max=100)
    for number in (1, 2, 3):
        recent.put(routed(number))
    assert (recent.first, offsets(recent)) == (2, [2, 3])
    recent.put(routed(4, size=95))
    assert (recent.first, offsets(recent)) == (4, [4])


def test_reaches_shows_whether_all_records_since_a_time_are_cached() -> None:
    recent = RoutedRecords(1, records_max=2)
    assert not recent.reaches(Instant(START))
    recent.put(routed(1))
    assert recent.reaches(Instant(START + 2))
    assert not recent.reaches(Instant(START + 1))
    for number in (2, 3):
        recent.put(routed(number))
    assert recent.reaches(Instant(START + 2))
    assert not recent.reaches(Instant(START + 1))


def test_arrivals_know_present_messages_and_those_that_readers_would_drop() -> None:
    arrivals = Arrivals(limit=2)
    arrivals.add("north/1", 5)
    assert ("north/1", 5) in arrivals
    assert ("north/1", 4) not in arrivals
    assert arrivals.is_passed("north/1", 4)
    assert not arrivals.is_passed("north/1", 6)
    assert not arrivals.is_passed("north/2", 1)


def test_a_message_for_one_endpoint_alone_does_not_count_as_passed_for_others() -> None:
    arrivals = Arrivals(limit=2)
    arrivals.add_for_one("north/1", 9)
    assert ("north/1", 9) in arrivals
    assert not arrivals.is_passed("north/1", 8)


def test_the_oldest_arrivals_are_forgotten_but_the_highest_number_is_not() -> None:
    arrivals = Arrivals(limit=2)
    for number in (5, 6, 7):
        arrivals.add("north/1", number)
    assert ("north/1", 5) not in arrivals
    assert arrivals.is_passed("north/1", 7)
