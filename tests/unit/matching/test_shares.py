"""Shared subscriptions: of all rows with one name and query one at a time is chosen, in a deterministic rotation."""

from collections import Counter

import numpy as np

from milepost.matching import Matcher, MatcherLimits
from milepost.matching.matcher import ShareGroups
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


def new_subscription(
    text: str = "ice", share: str | None = "g", area: Circle | Around | None = None, time_window: TimeWindow | None = None
) -> Subscription:
    return Subscription(X, parse_query(text), area, time_window or TimeWindow(), share=share)


def new_matcher() -> Matcher:
    return Matcher(MatcherLimits(subscriptions_max=64, endpoints_max=64, atoms_max=1024))


def chosen(shares: ShareGroups, *rows: int) -> list[int]:
    return sorted(shares.choose_one_of_each(np.array(rows, np.int32)).tolist())


def receivers(matcher: Matcher, count: int) -> Counter[int]:
    found: Counter[int] = Counter()
    for _ in range(count):
        found.update(matcher.find_receivers(ICE, Instant(50)).owners.tolist())
    return found


def test_rows_of_a_share_rotate_and_all_others_always_match() -> None:
    shares = ShareGroups(10)
    for row in (2, 5, 8):
        shares.join(row, "g", 0)
    assert [chosen(shares, 8, 1, 5, 2, 0) for _ in range(4)] == [[0, 1, 2], [0, 1, 5], [0, 1, 8], [0, 1, 2]]


def test_without_a_shared_row_every_row_matches() -> None:
    shares = ShareGroups(10)
    shares.join(2, "g", 0)
    assert chosen(shares, 3, 1) == [1, 3]


def test_another_name_or_query_is_another_share() -> None:
    shares = ShareGroups(10)
    for row, name, query in ((0, "g", 0), (1, "g", 0), (2, "h", 0), (3, "g", 1)):
        shares.join(row, name, query)
    assert shares.count == 3
    assert [chosen(shares, 0, 1, 2, 3) for _ in range(2)] == [[0, 2, 3], [1, 2, 3]]


def test_the_same_history_gives_the_same_choices() -> None:
    def life() -> list[list[int]]:
        shares = ShareGroups(10)
        for row in range(4):
            shares.join(row, "g", 0)
        return [chosen(shares, *rows) for rows in ((0, 1, 2, 3), (1, 2), (3,), (0, 3), (0, 1, 2, 3))]

    assert life() == life()


def test_rotation_is_fair_among_members_that_always_match() -> None:
    matcher = new_matcher()
    for owner in range(5):
        matcher.add(owner, new_subscription())
    assert receivers(matcher, 100) == dict.fromkeys(range(5), 20)


def test_equivalent_queries_form_one_share() -> None:
    matcher = new_matcher()
    matcher.add(0, new_subscription("ice & road | snow"))
    matcher.add(1, new_subscription("snow | road & ice"))
    message = Message(MessageId(1), X, "road", Instant(50), tags(["ice", "road"]))
    assert [matcher.find_receivers(message, Instant(50)).owners.tolist() for _ in range(3)] == [[0], [1], [0]]


def test_a_member_outside_its_area_or_time_window_is_skipped_in_the_rotation() -> None:
    matcher = new_matcher()
    matcher.add(0, new_subscription())
    matcher.add(1, new_subscription(area=Circle(Place(-10.0, 10.0), 500.0)))
    matcher.add(2, new_subscription(time_window=TimeWindow(Instant(60), Instant(70))))
    matcher.add(3, new_subscription(area=Circle(Place(10.0, 10.0), 500.0), time_window=TimeWindow(end=Instant(50))))
    matcher.add(4, new_subscription(area=Around(500.0)))
    assert receivers(matcher, 10) == {0: 5, 3: 5}
    matcher.move([4], [10.0], [10.0])
    assert receivers(matcher, 9) == {0: 3, 3: 3, 4: 3}


def test_an_endpoint_may_have_a_shared_and_an_ordinary_subscription() -> None:
    matcher = new_matcher()
    matcher.add(0, new_subscription())
    own = matcher.add(0, new_subscription(share=None))
    matcher.add(1, new_subscription())
    found = [matcher.find_receivers(ICE, Instant(50)) for _ in range(2)]
    assert [sorted(one.owners.tolist()) for one in found] == [[0], [0, 1]]
    assert all(own in one.rows.tolist() for one in found)


def test_a_share_ends_with_its_last_member_and_its_number_is_reused() -> None:
    shares = ShareGroups(2)
    for turn in range(10):
        shares.join(0, f"g{turn}", 0)
        shares.join(1, f"g{turn}", 0)
        assert [chosen(shares, 0, 1) for _ in range(2)] == [[0], [1]], "a new share begins with its first member"
        shares.leave(0)
        assert shares.count == 1
        assert chosen(shares, 0, 1) == [0, 1], "the member that left matches by itself"
        shares.leave(1)
        assert shares.count == 0


def test_a_share_created_after_another_ended_does_not_mix_with_existing_ones() -> None:
    shares = ShareGroups(8)
    for row, name in ((0, "g"), (1, "h"), (2, "h")):
        shares.join(row, name, 0)
    shares.leave(0)
    shares.join(3, "i", 0)
    shares.join(4, "j", 0)
    assert [chosen(shares, 1, 2, 3, 4) for _ in range(2)] == [[1, 3, 4], [2, 3, 4]]


def test_every_row_may_be_in_a_share_of_its_own() -> None:
    shares = ShareGroups(8)
    for row in range(8):
        shares.join(row, str(row), 0)
    assert chosen(shares, *range(8)) == list(range(8))


def test_members_that_leave_are_not_counted() -> None:
    matcher = new_matcher()
    rows = [matcher.add(owner, new_subscription()) for owner in range(3)]
    matcher.remove(rows[1])
    assert receivers(matcher, 10) == {0: 5, 2: 5}
    matcher.remove(rows[0])
    matcher.remove(rows[2])
    assert matcher._groups.count == 0
    assert receivers(matcher, 1) == {}
