"""The matching engine: refusals that change nothing, receivers of messages, and reused rows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from milepost.matching import Matcher, MatcherLimits
from milepost.matching.matcher import EXPIRED_PER_CALL_MAX, NEGATED_ONLY_MAX
from milepost.model import (
    FOREVER,
    Area,
    Around,
    Box,
    Circle,
    EndpointId,
    Instant,
    Malformed,
    Message,
    MessageId,
    Place,
    Reason,
    Subscription,
    SubscriptionId,
    TimeWindow,
    ToArea,
    ToContent,
    ToEveryone,
    parse_query,
    tags,
)

X = EndpointId("x")
NOW = Instant(1_000)
HERE = Place(50.0, 7.0)
NEARBY = Circle(HERE, 500.0)
FAR = Circle(Place(-50.0, 7.0), 500.0)
ICE = tags(["ice"])


def new_matcher(subscriptions_max: int = 64, endpoints_max: int = 16, atoms_max: int = 1024) -> Matcher:
    return Matcher(MatcherLimits(subscriptions_max, endpoints_max, atoms_max))


def new_subscription(text: str = "ice", area: Area | Around | None = None, **more: Any) -> Subscription:
    return Subscription(X, parse_query(text), area, **more)


def message(**more: Any) -> Message:
    return replace(Message(MessageId(1), X, "road/7", NOW, ICE, place=HERE), **more)


def owners(matcher: Matcher, now: int = NOW, **more: Any) -> list[int]:
    return sorted(matcher.find_receivers(message(**more), Instant(now)).owners.tolist())


def state(matcher: Matcher) -> tuple[object, ...]:
    """Return the state that a refused change must leave unchanged."""
    formulas = matcher._queries
    counts = len(matcher), len(formulas), len(formulas._vocabulary), matcher._groups.count, matcher._timed, matcher.epoch
    return counts, bytes(matcher._negated_only), owners(matcher), owners(matcher, tags=tags(["other"]), place=None)


def full_of_subscriptions() -> tuple[Matcher, int, Subscription]:
    matcher = new_matcher(subscriptions_max=2)
    for owner in range(2):
        matcher.add(owner, new_subscription())
    return matcher, 3, new_subscription("other & new", NEARBY, share="g", time_window=TimeWindow(end=Instant(2_000)))


def full_of_atoms() -> tuple[Matcher, int, Subscription]:
    matcher = new_matcher(atoms_max=2)
    matcher.add(0, new_subscription())
    return matcher, 3, new_subscription("other & new")


def full_of_simple_queries() -> tuple[Matcher, int, Subscription]:
    matcher = new_matcher(atoms_max=1)
    matcher.add(0, new_subscription())
    return matcher, 3, new_subscription("new")


def full_of_negations() -> tuple[Matcher, int, Subscription]:
    matcher = new_matcher()
    for number in range(NEGATED_ONLY_MAX):
        matcher.add(3, new_subscription(f"!t{number}"))
    return matcher, 3, new_subscription("!other & !new", share="g")


def full_of_clauses() -> tuple[Matcher, int, Subscription]:
    matcher = new_matcher(subscriptions_max=2)
    matcher.add(0, new_subscription("ice | a & b | c & d | e & f"))
    return matcher, 3, new_subscription("other & a | other & b | other & c | other & d | other & e")


def unknown_owner(owner: int) -> Callable[[], tuple[Matcher, int, Subscription]]:
    def make() -> tuple[Matcher, int, Subscription]:
        matcher = new_matcher()
        matcher.add(0, new_subscription())
        return matcher, owner, new_subscription("other")

    return make


def never_true() -> tuple[Matcher, int, Subscription]:
    matcher = new_matcher()
    matcher.add(0, new_subscription())
    return matcher, 3, new_subscription("other & !other")


def too_complex() -> tuple[Matcher, int, Subscription]:
    matcher = new_matcher()
    matcher.add(0, new_subscription())
    return matcher, 3, new_subscription(" & ".join(f"(other{n} | new{n})" for n in range(10)))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (full_of_subscriptions, Reason.SUBSCRIPTIONS_FULL),
        (full_of_clauses, Reason.SUBSCRIPTIONS_FULL),
        (full_of_atoms, Reason.VOCABULARY_FULL),
        (full_of_simple_queries, Reason.VOCABULARY_FULL),
        (full_of_negations, Reason.NEGATED_ONLY_FULL),
        (unknown_owner(16), Reason.ENDPOINTS_FULL),
        (unknown_owner(-1), Reason.ENDPOINTS_FULL),
        (never_true, Reason.QUERY_NEVER_TRUE),
        (too_complex, Reason.QUERY_TOO_COMPLEX),
    ],
)
def test_a_refused_subscription_has_a_reason_and_changes_nothing(
    make: Callable[[], tuple[Matcher, int, Subscription]], reason: Reason
) -> None:
    matcher, owner, subscription = make()
    before = state(matcher)
    assert before[2], "there must be state that could change"
    for _ in range(3):
        with pytest.raises(Malformed) as caught:
            matcher.add(owner, subscription)
        assert caught.value.reason is reason
    assert state(matcher) == before


def test_a_subscription_refused_for_lack_of_room_is_accepted_once_there_is_room() -> None:
    matcher, owner, subscription = full_of_subscriptions()
    with pytest.raises(Malformed):
        matcher.add(owner, subscription)
    matcher.remove(0)
    matcher.add(owner, subscription)
    assert owners(matcher, tags=tags(["other", "new"])) == [owner]


def test_queries_of_negations_alone_are_counted_per_endpoint_and_released() -> None:
    matcher, owner, subscription = full_of_negations()
    matcher.add(owner + 1, subscription)
    matcher.add(owner, new_subscription("!other & new"))
    matcher.remove(0)
    assert matcher.add(owner, subscription) == 0


def test_subscriptions_with_ever_new_ends_are_always_accepted() -> None:
    matcher = new_matcher(subscriptions_max=8)
    for turn in range(20):
        row = matcher.add(0, new_subscription(time_window=TimeWindow(end=Instant(turn << 33))))
        matcher.remove(row)
    assert len(matcher) == 0


def test_popular_topics_may_change_while_a_few_subscriptions_keep_the_old_ones() -> None:
    matcher = new_matcher(subscriptions_max=256, endpoints_max=256)
    for day in range(20):
        rows = [matcher.add(owner, new_subscription(f"day-{day}")) for owner in range(200)]
        for row in rows[2:]:
            matcher.remove(row)
    assert len(matcher) == 40


def test_an_expired_message_matches_nothing() -> None:
    matcher = new_matcher()
    matcher.add(0, new_subscription())
    assert [owners(matcher, now, valid_until=Instant(2_000)) for now in (1_000, 2_000, 2_001)] == [[0], [0], []]


def test_t3_a_subscription_matches_by_content_place_and_time_at_once() -> None:
    matcher = new_matcher()
    matcher.add(0, new_subscription("ice & topic:road/#", NEARBY, time_window=TimeWindow(Instant(900), Instant(1_100))))
    assert owners(matcher) == [0]
    assert owners(matcher, tags=tags(["snow"])) == owners(matcher, topic="rail/7") == []
    assert owners(matcher, place=Place(50.01, 7.0)) == owners(matcher, place=None) == []
    assert owners(matcher, seen_at=Instant(899)) == owners(matcher, seen_at=Instant(1_101), now=1_101) == []


def test_t7_after_its_time_window_a_subscription_matches_nothing_even_if_seen_within_it() -> None:
    matcher = new_matcher()
    matcher.add(0, new_subscription(time_window=TimeWindow(end=Instant(1_100))))
    assert owners(matcher, now=1_100) == [0]
    assert owners(matcher, now=1_101) == []


def test_m5_a_message_to_content_within_an_area_reaches_only_receivers_inside() -> None:
    matcher = new_matcher()
    for owner in range(4):
        matcher.add(owner, new_subscription() if owner < 3 else new_subscription("snow"))
    matcher.move([0, 1, 3], [50.0, -50.0, 50.0], [7.0, 7.0, 7.0])  # the position of 2 is unknown
    assert owners(matcher) == [0, 1, 2]
    assert owners(matcher, address=ToContent(NEARBY)) == [0]
    assert owners(matcher, address=ToContent(Box(-90.0, -180.0, 90.0, 180.0))) == [0, 1]
    matcher.forget([0])
    assert owners(matcher, address=ToContent(NEARBY)) == []


@pytest.mark.parametrize("address", [ToContent(), ToEveryone(), ToArea(FAR)])
def test_other_addresses_do_not_change_the_matching_subscribers(address: ToContent | ToEveryone | ToArea) -> None:
    matcher = new_matcher()
    matcher.add(0, new_subscription())
    assert owners(matcher, address=address) == [0]


def test_m5_endpoints_in_an_area_are_found_with_or_without_a_subscription() -> None:
    matcher = new_matcher()
    matcher.move([3, 4, 5], [50.0, 50.001, -50.0], [7.0, 7.0, 7.0])
    assert sorted(matcher.find_inside(NEARBY).tolist()) == [3, 4]


def test_a_receiver_has_all_its_matching_rows_with_their_subscription_ids_and_the_highest_qos() -> None:
    matcher = new_matcher()
    rows = [
        matcher.add(5, new_subscription("ice", id=SubscriptionId(11), qos=0)),
        matcher.add(5, new_subscription("ice | snow", NEARBY, id=SubscriptionId(2**32 - 1), qos=2)),
        matcher.add(5, new_subscription("snow", id=SubscriptionId(13), qos=2)),
        matcher.add(6, new_subscription("!snow", qos=1)),
    ]
    receivers = matcher.find_receivers(message(), NOW)
    told = {int(owner): sorted(receivers.rows_of(at).tolist()) for at, owner in enumerate(receivers.owners)}
    assert told == {5: rows[:2], 6: rows[3:]}
    assert dict(zip(receivers.owners.tolist(), matcher.qos_of(receivers).tolist(), strict=True)) == {5: 2, 6: 1}
    labels = dict(zip(receivers.rows.tolist(), matcher.subscription_ids_of(receivers.rows).tolist(), strict=True))
    assert labels == {rows[0]: 11, rows[1]: 2**32 - 1, rows[3]: 0}


def test_a_result_does_not_change_with_the_next_subscription() -> None:
    matcher = new_matcher()
    row = matcher.add(0, new_subscription())
    receivers = matcher.find_receivers(message(), NOW)
    matcher.remove(row)
    matcher.add(1, new_subscription("other"))
    matcher.add(2, new_subscription())
    assert (receivers.owners.tolist(), receivers.rows.tolist()) == ([0], [row])


def test_the_area_of_a_subscription_can_be_replaced_or_removed() -> None:
    matcher = new_matcher()
    row = matcher.add(0, new_subscription(area=FAR))
    other = matcher.add(1, new_subscription())
    found = []
    areas: list[Area | Around | None] = [NEARBY, Box(49.0, 6.0, 51.0, 8.0), FAR, None, Around(500.0), NEARBY]
    for area in areas:
        matcher.relocate(row, area)
        found.append(owners(matcher))
    assert found == [[0, 1], [0, 1], [1], [0, 1], [1], [0, 1]]
    matcher.remove(row)
    matcher.remove(other)
    assert not any(size.around or len(size.fixed) for size in matcher._areas._size_classes.values())


def test_t7_subscriptions_expire_in_limited_batches_until_all_are_removed() -> None:
    matcher = new_matcher(subscriptions_max=2_000)
    count = 3 * EXPIRED_PER_CALL_MAX + 5
    for number in range(count):
        matcher.add(number % 16, new_subscription(time_window=TimeWindow(end=Instant(1_500 + number % 2))))
    stays = matcher.add(0, new_subscription(time_window=TimeWindow(end=Instant(9_000))))
    ever = matcher.add(1, new_subscription())
    assert matcher.expire(Instant(1_500)) == []
    ended: list[int] = []
    while over := matcher.expire(Instant(1_502)):
        assert len(over) <= EXPIRED_PER_CALL_MAX
        ended += over
    assert len(set(ended)) == len(ended) == count
    assert len(matcher) == 2
    assert sorted(matcher.find_receivers(message(), NOW).rows.tolist()) == [stays, ever]
    assert matcher.expire(Instant(FOREVER - 1)) == [stays]


def test_a_reused_row_keeps_nothing_of_its_previous_subscription() -> None:
    matcher = new_matcher(subscriptions_max=1)
    first = new_subscription(
        "ice & !snow", NEARBY, time_window=TimeWindow(end=Instant(5_000)), share="g", qos=2, id=SubscriptionId(9)
    )
    for subscription, owner in (
        (first, 0),
        (new_subscription("other"), 1),
        (new_subscription("!snow"), 2),
        (new_subscription(area=Around(5.0)), 3),
        (new_subscription(), 4),
    ):
        row = matcher.add(owner, subscription)
        assert row == 0
        if owner < 4:
            matcher.remove(row)
    receivers = matcher.find_receivers(message(place=None, seen_at=Instant(6_000)), Instant(6_000))
    assert receivers.owners.tolist() == [4]
    assert (matcher.qos_of(receivers).tolist(), matcher.subscription_ids_of(receivers.rows).tolist()) == ([1], [0])
    assert matcher.expire(Instant(FOREVER - 1)) == []


def test_a_free_row_cannot_be_removed_or_relocated() -> None:
    matcher = new_matcher()
    row = matcher.add(0, new_subscription())
    matcher.remove(row)
    for number in (row, -1, 5, 10**6):
        with pytest.raises(AssertionError, match="is not a subscription"):
            matcher.remove(number)
        with pytest.raises(AssertionError, match="is not a subscription"):
            matcher.relocate(number, None)


def test_the_epoch_grows_with_every_change_of_subscriptions_and_only_then() -> None:
    matcher = new_matcher()
    epochs = [matcher.epoch]
    row = matcher.add(0, new_subscription(time_window=TimeWindow(end=Instant(1_100))))
    epochs.append(matcher.epoch)
    matcher.relocate(row, NEARBY)
    epochs.append(matcher.epoch)
    matcher.move([0], [50.0], [7.0])
    matcher.find_receivers(message(), NOW)
    matcher.forget([0])
    assert matcher.epoch == epochs[-1]
    matcher.expire(Instant(1_101))
    epochs.append(matcher.epoch)
    matcher.remove(matcher.add(0, new_subscription()))
    epochs.append(matcher.epoch)
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("bad", [-1, 16])
def test_a_move_beyond_the_endpoint_limit_refuses_the_whole_batch(bad: int) -> None:
    matcher = new_matcher()
    matcher.move([1], [50.0], [7.0])
    with pytest.raises(Malformed) as caught:
        matcher.move([1, bad], [0.0, 0.0], [0.0, 0.0])
    assert caught.value.reason is Reason.ENDPOINTS_FULL
    assert matcher.find_inside(NEARBY).tolist() == [1]


@pytest.mark.parametrize("direct_max", [0, 2_000])
def test_lookup_by_place_and_by_query_find_the_same(direct_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.matching.area_index.DIRECT_MAX", direct_max)
    matcher = new_matcher()
    asked: list[tuple[str, Area | Around | None]] = [
        ("ice", NEARBY),
        ("ice", FAR),
        ("snow", NEARBY),
        ("ice & !snow", Around(50.0)),
    ]
    for owner, (text, area) in enumerate([*asked, ("ice", None)]):
        matcher.add(owner, new_subscription(text, area))
    matcher.move([3], [50.0], [7.0])
    assert owners(matcher) == [0, 3, 4]
    assert owners(matcher, tags=tags(["snow"])) == [2]
    assert owners(matcher, place=None) == [4]
