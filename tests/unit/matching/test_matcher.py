"""The engine: what it refuses and that a refusal changes nothing, who takes what, and numbers that are used again."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from milepost.matching import Limits, Matcher
from milepost.matching.matcher import EXPIRE_A_TURN, NEGATED_ONLY_MAX
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


def engine(subscriptions_max: int = 64, endpoints_max: int = 16, atoms_max: int = 1024) -> Matcher:
    return Matcher(Limits(subscriptions_max, endpoints_max, atoms_max))


def asking(text: str = "ice", area: Area | Around | None = None, **more: Any) -> Subscription:
    return Subscription(X, parse_query(text), area, **more)


def message(**more: Any) -> Message:
    return replace(Message(MessageId(1), X, "road/7", NOW, ICE, place=HERE), **more)


def owners(matcher: Matcher, now: int = NOW, **more: Any) -> list[int]:
    return sorted(matcher.who_wants(message(**more), Instant(now)).owners.tolist())


def state(matcher: Matcher) -> tuple[object, ...]:
    """All that a refused change must leave as it was."""
    formulas = matcher._formulas
    counts = len(matcher), len(formulas), len(formulas._vocabulary), matcher._shares.count, matcher._timed, matcher.epoch
    return counts, bytes(matcher._keyless), owners(matcher), owners(matcher, tags=tags(["other"]), place=None)


def full_of_subscriptions() -> tuple[Matcher, int, Subscription]:
    matcher = engine(subscriptions_max=2)
    for owner in range(2):
        matcher.add(owner, asking())
    return matcher, 3, asking("other & new", NEARBY, share="g", time_window=TimeWindow(end=Instant(2_000)))


def full_of_names() -> tuple[Matcher, int, Subscription]:
    matcher = engine(atoms_max=2)
    matcher.add(0, asking())
    return matcher, 3, asking("other & new")


def full_of_plain_names() -> tuple[Matcher, int, Subscription]:
    matcher = engine(atoms_max=1)
    matcher.add(0, asking())
    return matcher, 3, asking("new")


def full_of_negations() -> tuple[Matcher, int, Subscription]:
    matcher = engine()
    for number in range(NEGATED_ONLY_MAX):
        matcher.add(3, asking(f"!t{number}"))
    return matcher, 3, asking("!other & !new", share="g")


def full_of_clauses() -> tuple[Matcher, int, Subscription]:
    matcher = engine(subscriptions_max=2)
    matcher.add(0, asking("ice | a & b | c & d | e & f"))
    return matcher, 3, asking("other & a | other & b | other & c | other & d | other & e")


def unknown_owner(owner: int) -> Callable[[], tuple[Matcher, int, Subscription]]:
    def make() -> tuple[Matcher, int, Subscription]:
        matcher = engine()
        matcher.add(0, asking())
        return matcher, owner, asking("other")

    return make


def never_true() -> tuple[Matcher, int, Subscription]:
    matcher = engine()
    matcher.add(0, asking())
    return matcher, 3, asking("other & !other")


def too_complex() -> tuple[Matcher, int, Subscription]:
    matcher = engine()
    matcher.add(0, asking())
    return matcher, 3, asking(" & ".join(f"(other{n} | new{n})" for n in range(10)))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (full_of_subscriptions, Reason.SUBSCRIPTIONS_FULL),
        (full_of_clauses, Reason.SUBSCRIPTIONS_FULL),
        (full_of_names, Reason.VOCABULARY_FULL),
        (full_of_plain_names, Reason.VOCABULARY_FULL),
        (full_of_negations, Reason.NEGATED_ONLY_FULL),
        (unknown_owner(16), Reason.ENDPOINTS_FULL),
        (unknown_owner(-1), Reason.ENDPOINTS_FULL),
        (never_true, Reason.QUERY_NEVER_TRUE),
        (too_complex, Reason.QUERY_TOO_COMPLEX),
    ],
)
def test_what_cannot_be_added_is_refused_with_its_reason_and_changes_nothing(
    make: Callable[[], tuple[Matcher, int, Subscription]], reason: Reason
) -> None:
    matcher, owner, subscription = make()
    before = state(matcher)
    assert before[2], "there must be something that could be spoilt"
    for _ in range(3):
        with pytest.raises(Malformed) as caught:
            matcher.add(owner, subscription)
        assert caught.value.reason is reason
    assert state(matcher) == before


def test_what_was_refused_for_want_of_room_is_let_in_when_there_is_some() -> None:
    matcher, owner, subscription = full_of_subscriptions()
    with pytest.raises(Malformed):
        matcher.add(owner, subscription)
    matcher.remove(0)
    matcher.add(owner, subscription)
    assert owners(matcher, tags=tags(["other", "new"])) == [owner]


def test_negations_alone_are_counted_for_each_endpoint_and_given_back() -> None:
    matcher, owner, subscription = full_of_negations()
    matcher.add(owner + 1, subscription)
    matcher.add(owner, asking("!other & new"))
    matcher.remove(0)
    assert matcher.add(owner, subscription) == 0


def test_subscriptions_that_come_and_go_with_ever_other_ends_are_always_let_in() -> None:
    matcher = engine(subscriptions_max=8)
    for turn in range(20):
        row = matcher.add(0, asking(time_window=TimeWindow(end=Instant(turn << 33))))
        matcher.remove(row)
    assert len(matcher) == 0


def test_favourite_topics_may_change_from_day_to_day_while_a_few_keep_the_old() -> None:
    matcher = engine(subscriptions_max=256, endpoints_max=256)
    for day in range(20):
        rows = [matcher.add(owner, asking(f"day-{day}")) for owner in range(200)]
        for row in rows[2:]:
            matcher.remove(row)
    assert len(matcher) == 40


def test_an_expired_message_matches_nothing() -> None:
    matcher = engine()
    matcher.add(0, asking())
    assert [owners(matcher, now, valid_until=Instant(2_000)) for now in (1_000, 2_000, 2_001)] == [[0], [0], []]


def test_t3_a_subscription_matches_what_where_and_when_at_once() -> None:
    matcher = engine()
    matcher.add(0, asking("ice & topic:road/#", NEARBY, time_window=TimeWindow(Instant(900), Instant(1_100))))
    assert owners(matcher) == [0]
    assert owners(matcher, tags=tags(["snow"])) == owners(matcher, topic="rail/7") == []
    assert owners(matcher, place=Place(50.01, 7.0)) == owners(matcher, place=None) == []
    assert owners(matcher, seen_at=Instant(899)) == owners(matcher, seen_at=Instant(1_101), now=1_101) == []


def test_t7_when_the_time_window_is_over_also_what_was_seen_in_it_is_no_longer_delivered() -> None:
    matcher = engine()
    matcher.add(0, asking(time_window=TimeWindow(end=Instant(1_100))))
    assert owners(matcher, now=1_100) == [0]
    assert owners(matcher, now=1_101) == []


def test_m5_addressed_to_content_within_an_area_only_takers_inside_get_it() -> None:
    matcher = engine()
    for owner in range(4):
        matcher.add(owner, asking() if owner < 3 else asking("snow"))
    matcher.move([0, 1, 3], [50.0, -50.0, 50.0], [7.0, 7.0, 7.0])  # nobody knows where 2 is
    assert owners(matcher) == [0, 1, 2]
    assert owners(matcher, address=ToContent(NEARBY)) == [0]
    assert owners(matcher, address=ToContent(Box(-90.0, -180.0, 90.0, 180.0))) == [0, 1]
    matcher.forget([0])
    assert owners(matcher, address=ToContent(NEARBY)) == []


@pytest.mark.parametrize("address", [ToContent(), ToEveryone(), ToArea(FAR)])
def test_other_addresses_do_not_change_who_wants_a_message(address: ToContent | ToEveryone | ToArea) -> None:
    matcher = engine()
    matcher.add(0, asking())
    assert owners(matcher, address=address) == [0]


def test_m5_those_in_an_area_are_found_subscribed_or_not() -> None:
    matcher = engine()
    matcher.move([3, 4, 5], [50.0, 50.001, -50.0], [7.0, 7.0, 7.0])
    assert sorted(matcher.who_is_in(NEARBY).tolist()) == [3, 4]


def test_a_taker_has_all_its_matching_rows_with_their_labels_and_the_highest_quality() -> None:
    matcher = engine()
    rows = [
        matcher.add(5, asking("ice", id=SubscriptionId(11), qos=0)),
        matcher.add(5, asking("ice | snow", NEARBY, id=SubscriptionId(2**32 - 1), qos=2)),
        matcher.add(5, asking("snow", id=SubscriptionId(13), qos=2)),
        matcher.add(6, asking("!snow", qos=1)),
    ]
    takers = matcher.who_wants(message(), NOW)
    told = {int(owner): sorted(takers.rows_of(at).tolist()) for at, owner in enumerate(takers.owners)}
    assert told == {5: rows[:2], 6: rows[3:]}
    assert dict(zip(takers.owners.tolist(), matcher.qos_of(takers).tolist(), strict=True)) == {5: 2, 6: 1}
    labels = dict(zip(takers.rows.tolist(), matcher.labels_of(takers.rows).tolist(), strict=True))
    assert labels == {rows[0]: 11, rows[1]: 2**32 - 1, rows[3]: 0}


def test_what_was_found_does_not_change_with_the_next_subscription() -> None:
    matcher = engine()
    row = matcher.add(0, asking())
    takers = matcher.who_wants(message(), NOW)
    matcher.remove(row)
    matcher.add(1, asking("other"))
    matcher.add(2, asking())
    assert (takers.owners.tolist(), takers.rows.tolist()) == ([0], [row])


def test_a_subscription_can_be_given_another_area_or_none() -> None:
    matcher = engine()
    row = matcher.add(0, asking(area=FAR))
    other = matcher.add(1, asking())
    found = []
    areas: list[Area | Around | None] = [NEARBY, Box(49.0, 6.0, 51.0, 8.0), FAR, None, Around(500.0), NEARBY]
    for area in areas:
        matcher.relocate(row, area)
        found.append(owners(matcher))
    assert found == [[0, 1], [0, 1], [1], [0, 1], [1], [0, 1]]
    matcher.remove(row)
    matcher.remove(other)
    assert not any(size.around or len(size.fixed) for size in matcher._reaches._classes.values())


def test_t7_subscriptions_end_in_turns_of_limited_size_until_all_that_are_over_have() -> None:
    matcher = engine(subscriptions_max=2_000)
    count = 3 * EXPIRE_A_TURN + 5
    for number in range(count):
        matcher.add(number % 16, asking(time_window=TimeWindow(end=Instant(1_500 + number % 2))))
    stays = matcher.add(0, asking(time_window=TimeWindow(end=Instant(9_000))))
    ever = matcher.add(1, asking())
    assert matcher.expire(Instant(1_500)) == []
    ended: list[int] = []
    while over := matcher.expire(Instant(1_502)):
        assert len(over) <= EXPIRE_A_TURN
        ended += over
    assert len(set(ended)) == len(ended) == count
    assert len(matcher) == 2
    assert sorted(matcher.who_wants(message(), NOW).rows.tolist()) == [stays, ever]
    assert matcher.expire(Instant(FOREVER - 1)) == [stays]


def test_rows_are_used_again_with_nothing_of_what_they_were() -> None:
    matcher = engine(subscriptions_max=1)
    first = asking("ice & !snow", NEARBY, time_window=TimeWindow(end=Instant(5_000)), share="g", qos=2, id=SubscriptionId(9))
    for subscription, owner in (
        (first, 0),
        (asking("other"), 1),
        (asking("!snow"), 2),
        (asking(area=Around(5.0)), 3),
        (asking(), 4),
    ):
        row = matcher.add(owner, subscription)
        assert row == 0
        if owner < 4:
            matcher.remove(row)
    takers = matcher.who_wants(message(place=None, seen_at=Instant(6_000)), Instant(6_000))
    assert takers.owners.tolist() == [4]
    assert (matcher.qos_of(takers).tolist(), matcher.labels_of(takers.rows).tolist()) == ([1], [0])
    assert matcher.expire(Instant(FOREVER - 1)) == []


def test_a_row_that_is_no_subscription_cannot_be_removed_or_relocated() -> None:
    matcher = engine()
    row = matcher.add(0, asking())
    matcher.remove(row)
    for number in (row, -1, 5, 10**6):
        with pytest.raises(AssertionError, match="is not a subscription"):
            matcher.remove(number)
        with pytest.raises(AssertionError, match="is not a subscription"):
            matcher.relocate(number, None)


def test_the_epoch_grows_with_every_change_of_subscriptions_and_with_nothing_else() -> None:
    matcher = engine()
    epochs = [matcher.epoch]
    row = matcher.add(0, asking(time_window=TimeWindow(end=Instant(1_100))))
    epochs.append(matcher.epoch)
    matcher.relocate(row, NEARBY)
    epochs.append(matcher.epoch)
    matcher.move([0], [50.0], [7.0])
    matcher.who_wants(message(), NOW)
    matcher.forget([0])
    assert matcher.epoch == epochs[-1]
    matcher.expire(Instant(1_101))
    epochs.append(matcher.epoch)
    matcher.remove(matcher.add(0, asking()))
    epochs.append(matcher.epoch)
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize("bad", [-1, 16])
def test_an_endpoint_beyond_the_limit_cannot_move_and_nobody_else_moves_with_it(bad: int) -> None:
    matcher = engine()
    matcher.move([1], [50.0], [7.0])
    with pytest.raises(Malformed) as caught:
        matcher.move([1, bad], [0.0, 0.0], [0.0, 0.0])
    assert caught.value.reason is Reason.ENDPOINTS_FULL
    assert matcher.who_is_in(NEARBY).tolist() == [1]


@pytest.mark.parametrize("direct_max", [0, 2_000])
def test_by_place_and_by_query_the_same_is_found(direct_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.matching.reaches.DIRECT_MAX", direct_max)
    matcher = engine()
    asked: list[tuple[str, Area | Around | None]] = [
        ("ice", NEARBY),
        ("ice", FAR),
        ("snow", NEARBY),
        ("ice & !snow", Around(50.0)),
    ]
    for owner, (text, area) in enumerate([*asked, ("ice", None)]):
        matcher.add(owner, asking(text, area))
    matcher.move([3], [50.0], [7.0])
    assert owners(matcher) == [0, 3, 4]
    assert owners(matcher, tags=tags(["snow"])) == [2]
    assert owners(matcher, place=None) == [4]
