"""Interest: which sites want a message."""

from dataclasses import replace

from central_hub_in_memory import START, say
from milepost.federation.hub_routing import SiteInterest, shared_interest_of
from milepost.model.addresses import ToContent
from milepost.model.areas import Around, Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.queries import parse_query
from milepost.model.sites import EdgeRef
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.time_windows import TimeWindow

CAR, BUS = EndpointId("car"), EndpointId("bus")
HERE, FAR = Place(51.0, 7.0), Place(40.0, 7.0)
AROUND_HERE = Circle(HERE, 1_000.0)


def asks(query: str, **options: object) -> Subscription:
    return Subscription(CAR, parse_query(query), **options)  # type: ignore[arg-type]


def message(topic: str, place: Place | None = None) -> Message:
    return say(EdgeRef("east", "1"), 1, topic, place=place).message


def interest() -> SiteInterest:
    return SiteInterest(("north", "south", "east"))


def wanted(found: SiteInterest, topic: str, place: Place | None = None) -> set[str]:
    return set(found.wanted_by(message(topic, place), START))


def test_a_site_wants_what_one_of_its_endpoints_asks_for() -> None:
    found = interest()
    found.put("north", "k", CAR, asks("topic:fleet/#"), None)
    assert wanted(found, "fleet/a") == {"north"}
    assert wanted(found, "weather") == set()
    found.take_away("north", "k")
    assert wanted(found, "fleet/a") == set()


def test_equal_wishes_of_a_site_are_one_and_end_with_the_last() -> None:
    found = interest()
    found.put("north", "a", CAR, asks("topic:fleet/#", id=SubscriptionId(7), qos=2), None)
    found.put("north", "b", BUS, replace(asks("topic:fleet/#", share="s"), owner=BUS), None)
    assert [(change.site, change.is_wanted) for change in found.take_changes()] == [("north", True)]
    found.take_away("north", "a")
    assert found.take_changes() == []
    assert wanted(found, "fleet/a") == {"north"}
    found.take_away("north", "b")
    assert [(change.site, change.is_wanted) for change in found.take_changes()] == [("north", False)]


def test_a_wish_under_the_same_key_replaces_the_one_before() -> None:
    found = interest()
    found.put("north", "a", CAR, asks("topic:x"), None)
    found.put("north", "a", CAR, asks("topic:y"), None)
    assert wanted(found, "x") == set()
    assert wanted(found, "y") == {"north"}
    assert len(found) == 1


def test_wishes_move_with_their_endpoint_and_stay_where_they_are_said() -> None:
    found = interest()
    found.put("north", "a", CAR, asks("topic:x"), "north")
    found.locate(CAR, "south")
    assert wanted(found, "x") == {"north", "south"}
    found.locate(CAR, "east")
    assert wanted(found, "x") == {"north", "east"}
    found.take_away("north", "a")
    assert wanted(found, "x") == set()
    assert len(found) == 0


def test_a_wish_said_after_its_endpoint_has_moved_counts_there_too() -> None:
    found = interest()
    found.put("north", "a", CAR, asks("topic:x"), "south")
    assert wanted(found, "x") == {"north", "south"}
    found.locate(CAR, None)
    assert wanted(found, "x") == {"north"}


def test_what_is_lent_counts_for_a_while() -> None:
    found = interest()
    found.lend("south", CAR, [asks("topic:x")], Instant(START + SECOND_NS))
    found.lend("south", CAR, [asks("topic:x"), asks("topic:y")], Instant(START + 2 * SECOND_NS))
    found.expire(Instant(START + SECOND_NS))
    assert wanted(found, "x") == wanted(found, "y") == {"south"}
    found.expire(Instant(START + 2 * SECOND_NS))
    assert wanted(found, "x") == wanted(found, "y") == set()


def test_areas_and_time_windows_count_but_an_area_that_moves_counts_as_everywhere() -> None:
    found = interest()
    found.put("north", "a", CAR, asks("topic:x", area=AROUND_HERE), None)
    found.put("south", "a", CAR, asks("topic:x", area=Around(100.0)), None)
    found.put("east", "a", CAR, asks("topic:x", time_window=TimeWindow(Instant(0), Instant(START - 1))), None)
    assert wanted(found, "x", HERE) == {"north", "south"}
    assert wanted(found, "x", FAR) == {"south"}
    assert wanted(found, "x") == {"south"}
    assert shared_interest_of(asks("x", area=Around(100.0))) == shared_interest_of(asks("x"))


def test_a_message_for_takers_within_an_area_is_matched_by_its_content() -> None:
    found = interest()
    found.put("north", "a", CAR, asks("topic:x"), None)
    assert found.wanted_by(replace(message("x"), address=ToContent(AROUND_HERE)), START) == {"north"}


def test_answers_that_were_remembered_change_with_wishes() -> None:
    found = interest()
    assert wanted(found, "x") == wanted(found, "x") == set()
    found.put("north", "a", CAR, asks("topic:x"), None)
    assert wanted(found, "x") == wanted(found, "x") == {"north"}


def test_a_site_whose_wishes_cannot_all_be_looked_through_gets_everything() -> None:
    found = interest()
    for number in range(20):
        found.put("north", str(number), CAR, asks(f"!t{number}"), None)
    assert wanted(found, "whatever") == {"north"}
    assert len(found) == 20
    for number in range(20):
        found.take_away("north", str(number))
    assert wanted(found, "whatever") == set()
    assert len(found) == 0


def test_one_wish_too_many_of_negations_alone_is_a_wish_for_everything() -> None:
    found = interest()
    for number in range(17):
        found.put("north", str(number), CAR, asks(f"!t{number} & !all"), None)
    all_tags = say(EdgeRef("east", "1"), 1, "x", tags=frozenset({"all"})).message  # type: ignore[arg-type]
    assert found.wanted_by(all_tags, START) == {"north"}
    found.take_away("north", "16")
    assert found.wanted_by(all_tags, START) == set()
