"""Shares: of all that share a name and a query, one at a time is served, in turn, the same way every time."""

from collections import Counter

import numpy as np

from milepost.matching import Limits, Matcher
from milepost.matching.matcher import Shares
from milepost.model import (
    Around,
    Circle,
    EndpointId,
    Instant,
    Message,
    MessageId,
    Place,
    Subscription,
    TimeWindow,
    parse_query,
    tags,
)

X = EndpointId("x")
ICE = Message(MessageId(1), X, "road", Instant(50), tags(["ice"]), place=Place(10.0, 10.0))


def asking(
    text: str = "ice", share: str | None = "g", area: Circle | Around | None = None, time_window: TimeWindow | None = None
) -> Subscription:
    return Subscription(X, parse_query(text), area, time_window or TimeWindow(), share=share)


def engine() -> Matcher:
    return Matcher(Limits(subscriptions_max=64, endpoints_max=64, atoms_max=1024))


def chosen(shares: Shares, *rows: int) -> list[int]:
    return sorted(shares.one_of_each(np.array(rows, np.int32)).tolist())


def takers(matcher: Matcher, count: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for _ in range(count):
        found.update(matcher.who_wants(ICE, Instant(50)).owners.tolist())
    return found


def test_rows_of_a_share_take_turns_and_all_others_always_come_along() -> None:
    shares = Shares(10)
    for row in (2, 5, 8):
        shares.join(row, "g", 0)
    assert [chosen(shares, 8, 1, 5, 2, 0) for _ in range(4)] == [[0, 1, 2], [0, 1, 5], [0, 1, 8], [0, 1, 2]]


def test_without_a_shared_row_nothing_is_left_out() -> None:
    shares = Shares(10)
    shares.join(2, "g", 0)
    assert chosen(shares, 3, 1) == [1, 3]


def test_other_names_and_other_queries_are_other_shares() -> None:
    shares = Shares(10)
    for row, name, query in ((0, "g", 0), (1, "g", 0), (2, "h", 0), (3, "g", 1)):
        shares.join(row, name, query)
    assert shares.count == 3
    assert [chosen(shares, 0, 1, 2, 3) for _ in range(2)] == [[0, 2, 3], [1, 2, 3]]


def test_the_same_history_gives_the_same_choices() -> None:
    def life() -> list[list[int]]:
        shares = Shares(10)
        for row in range(4):
            shares.join(row, "g", 0)
        return [chosen(shares, *rows) for rows in ((0, 1, 2, 3), (1, 2), (3,), (0, 3), (0, 1, 2, 3))]

    assert life() == life()


def test_turns_are_fair_among_those_that_always_match() -> None:
    matcher = engine()
    for owner in range(5):
        matcher.add(owner, asking())
    assert takers(matcher, 100) == dict.fromkeys(range(5), 20)


def test_the_order_in_which_the_same_query_was_written_does_not_part_a_share() -> None:
    matcher = engine()
    matcher.add(0, asking("ice & road | snow"))
    matcher.add(1, asking("snow | road & ice"))
    message = Message(MessageId(1), X, "road", Instant(50), tags(["ice", "road"]))
    assert [matcher.who_wants(message, Instant(50)).owners.tolist() for _ in range(3)] == [[0], [1], [0]]


def test_a_member_elsewhere_or_out_of_time_misses_its_turn_and_another_takes_it() -> None:
    matcher = engine()
    matcher.add(0, asking())
    matcher.add(1, asking(area=Circle(Place(-10.0, 10.0), 500.0)))
    matcher.add(2, asking(time_window=TimeWindow(Instant(60), Instant(70))))
    matcher.add(3, asking(area=Circle(Place(10.0, 10.0), 500.0), time_window=TimeWindow(end=Instant(50))))
    matcher.add(4, asking(area=Around(500.0)))
    assert takers(matcher, 10) == {0: 5, 3: 5}
    matcher.move([4], [10.0], [10.0])
    assert takers(matcher, 9) == {0: 3, 3: 3, 4: 3}


def test_beside_a_share_one_may_ask_for_oneself_too() -> None:
    matcher = engine()
    matcher.add(0, asking())
    own = matcher.add(0, asking(share=None))
    matcher.add(1, asking())
    found = [matcher.who_wants(ICE, Instant(50)) for _ in range(2)]
    assert [sorted(one.owners.tolist()) for one in found] == [[0], [0, 1]]
    assert all(own in one.rows.tolist() for one in found)


def test_a_share_dissolves_with_its_last_member_and_its_number_is_used_again() -> None:
    shares = Shares(2)
    for turn in range(10):
        shares.join(0, f"g{turn}", 0)
        shares.join(1, f"g{turn}", 0)
        assert [chosen(shares, 0, 1) for _ in range(2)] == [[0], [1]], "a new share begins with its first"
        shares.leave(0)
        assert shares.count == 1
        assert chosen(shares, 0, 1) == [0, 1], "the one that left is served by itself"
        shares.leave(1)
        assert shares.count == 0


def test_a_share_made_after_another_dissolved_does_not_mix_with_those_that_stayed() -> None:
    shares = Shares(8)
    for row, name in ((0, "g"), (1, "h"), (2, "h")):
        shares.join(row, name, 0)
    shares.leave(0)
    shares.join(3, "i", 0)
    shares.join(4, "j", 0)
    assert [chosen(shares, 1, 2, 3, 4) for _ in range(2)] == [[1, 3, 4], [2, 3, 4]]


def test_all_rows_may_be_in_shares_of_their_own() -> None:
    shares = Shares(8)
    for row in range(8):
        shares.join(row, str(row), 0)
    assert chosen(shares, *range(8)) == list(range(8))


def test_members_that_leave_are_no_longer_counted_in() -> None:
    matcher = engine()
    rows = [matcher.add(owner, asking()) for owner in range(3)]
    matcher.remove(rows[1])
    assert takers(matcher, 10) == {0: 5, 2: 5}
    matcher.remove(rows[0])
    matcher.remove(rows[2])
    assert matcher._shares.count == 0
    assert takers(matcher, 1) == {}
