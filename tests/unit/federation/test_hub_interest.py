"""Interest: the sites with a subscription that matches a message."""

from dataclasses import replace

from central_hub_in_memory import START, forwarded
from milepost.federation.hub_routing import SiteInterest, shared_interest_of
from milepost.model.addresses import ToContent
from milepost.model.areas import Around, Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.queries import parse_query
from milepost.model.site_records import EdgeRef
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.time_windows import TimeWindow

CAR, BUS = EndpointId("car"), EndpointId("bus")
HERE, FAR = Place(51.0, 7.0), Place(40.0, 7.0)
AROUND_HERE = Circle(HERE, 1_000.0)


def subscription(query: str, **options: object) -> Subscription:
    return Subscription(CAR, parse_query(query), **options)  # type: ignore[arg-type]


def message(topic: str, place: Place | None = None) -> Message:
    return forwarded(EdgeRef("east", "1"), 1, topic, place=place).message


def interest() -> SiteInterest:
    return SiteInterest(("north", "south", "east"))


def sites_for(found: SiteInterest, topic: str, place: Place | None = None) -> set[str]:
    return set(found.sites_matching(message(topic, place), START))


def test_a_site_has_the_interest_of_its_endpoints() -> None:
    found = interest()
    found.put("north", "k", CAR, subscription("topic:fleet/#"), None)
    assert sites_for(found, "fleet/a") == {"north"}
    assert sites_for(found, "weather") == set()
    found.remove("north", "k")
    assert sites_for(found, "fleet/a") == set()


def test_equal_subscriptions_of_a_site_count_as_one_and_end_with_the_last() -> None:
    found = interest()
    found.put("north", "a", CAR, subscription("topic:fleet/#", id=SubscriptionId(7), qos=2), None)
    found.put("north", "b", BUS, replace(subscription("topic:fleet/#", share="s"), owner=BUS), None)
    assert [(change.site, change.is_added) for change in found.take_changes()] == [("north", True)]
    found.remove("north", "a")
    assert found.take_changes() == []
    assert sites_for(found, "fleet/a") == {"north"}
    found.remove("north", "b")
    assert [(change.site, change.is_added) for change in found.take_changes()] == [("north", False)]


def test_a_subscription_under_the_same_key_replaces_the_earlier_one() -> None:
    found = interest()
    found.put("north", "a", CAR, subscription("topic:x"), None)
    found.put("north", "a", CAR, subscription("topic:y"), None)
    assert sites_for(found, "x") == set()
    assert sites_for(found, "y") == {"north"}
    assert len(found) == 1


def test_subscriptions_count_at_the_endpoints_site_and_where_they_are_announced() -> None:
    found = interest()
    found.put("north", "a", CAR, subscription("topic:x"), "north")
    found.locate(CAR, "south")
    assert sites_for(found, "x") == {"north", "south"}
    found.locate(CAR, "east")
    assert sites_for(found, "x") == {"north", "east"}
    found.remove("north", "a")
    assert sites_for(found, "x") == set()
    assert len(found) == 0


def test_a_subscription_announced_after_the_endpoint_moved_counts_at_both_sites() -> None:
    found = interest()
    found.put("north", "a", CAR, subscription("topic:x"), "south")
    assert sites_for(found, "x") == {"north", "south"}
    found.locate(CAR, None)
    assert sites_for(found, "x") == {"north"}


def test_temporary_interest_counts_until_it_expires() -> None:
    found = interest()
    found.add_temporary("south", CAR, [subscription("topic:x")], Instant(START + SECOND_NS))
    found.add_temporary("south", CAR, [subscription("topic:x"), subscription("topic:y")], Instant(START + 2 * SECOND_NS))
    found.expire(Instant(START + SECOND_NS))
    assert sites_for(found, "x") == sites_for(found, "y") == {"south"}
    found.expire(Instant(START + 2 * SECOND_NS))
    assert sites_for(found, "x") == sites_for(found, "y") == set()


def test_areas_and_time_windows_apply_but_a_moving_area_counts_as_everywhere() -> None:
    found = interest()
    found.put("north", "a", CAR, subscription("topic:x", area=AROUND_HERE), None)
    found.put("south", "a", CAR, subscription("topic:x", area=Around(100.0)), None)
    found.put("east", "a", CAR, subscription("topic:x", time_window=TimeWindow(Instant(0), Instant(START - 1))), None)
    assert sites_for(found, "x", HERE) == {"north", "south"}
    assert sites_for(found, "x", FAR) == {"south"}
    assert sites_for(found, "x") == {"south"}
    assert shared_interest_of(subscription("x", area=Around(100.0))) == shared_interest_of(subscription("x"))


def test_a_message_to_content_within_an_area_is_matched_by_its_content() -> None:
    found = interest()
    found.put("north", "a", CAR, subscription("topic:x"), None)
    assert found.sites_matching(replace(message("x"), address=ToContent(AROUND_HERE)), START) == {"north"}


def test_cached_results_change_with_subscriptions() -> None:
    found = interest()
    assert sites_for(found, "x") == sites_for(found, "x") == set()
    found.put("north", "a", CAR, subscription("topic:x"), None)
    assert sites_for(found, "x") == sites_for(found, "x") == {"north"}


def test_a_site_with_more_subscriptions_than_fit_receives_everything() -> None:
    found = interest()
    for number in range(20):
        found.put("north", str(number), CAR, subscription(f"!t{number}"), None)
    assert sites_for(found, "whatever") == {"north"}
    assert len(found) == 20
    for number in range(20):
        found.remove("north", str(number))
    assert sites_for(found, "whatever") == set()
    assert len(found) == 0


def test_too_many_negated_queries_count_as_interest_in_everything() -> None:
    found = interest()
    for number in range(17):
        found.put("north", str(number), CAR, subscription(f"!t{number} & !all"), None)
    all_tags = forwarded(EdgeRef("east", "1"), 1, "x", tags=frozenset({"all"})).message  # type: ignore[arg-type]
    assert found.sites_matching(all_tags, START) == {"north"}
    found.remove("north", "16")
    assert found.sites_matching(all_tags, START) == set()
