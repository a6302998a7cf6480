"""Routing: the sites that a message is copied to."""

import pytest

from central_hub_in_memory import START, Sites, forwarded, ref
from milepost.federation.central_hub import CentralHub
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Box, Circle
from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost.model.site_records import CROSS_HUB, EdgeInfo, Epoch, ForwardedMessage, Handover, LoggedRecord, MissedMessages
from milepost.wire.records import from_record, to_record

CAR = EndpointId("car")
NORTH_AREA, SOUTH_AREA = Box(51.0, 7.0, 52.0, 8.0), Box(49.0, 7.0, 50.0, 8.0)
IN_SOUTH = Circle(Place(49.5, 7.5), 100.0)


@pytest.fixture
def sites() -> Sites:
    """Three sites; north and south cover areas, east everything."""
    found = Sites("north", "south", "east")
    found.start_hub()
    for edge, area in (("north/1", NORTH_AREA), ("south/1", SOUTH_AREA), ("east/1", None)):
        found.describe_edge(edge, EdgeInfo(ref(edge), area))
    found.run_until_idle()
    return found


def received_topics(sites: Sites) -> dict[str, list[str]]:
    return {site: sites.received_topics(site) for site in sites.stores}


def test_a_message_is_copied_unchanged_to_the_sites_with_a_matching_subscription(sites: Sites) -> None:
    sites.subscribe("south/1", "car", "topic:fleet/#")
    sites.run_until_idle()
    sites.publish("north/1", "fleet/a")
    sites.publish("north/1", "weather")
    sites.run_until_idle()
    assert received_topics(sites) == {"north": ["fleet/a", "weather"], "south": ["fleet/a"], "east": []}
    assert sites.records("south")[0].value == sites.records("north")[0].value
    assert sites.records("south")[0].key == ""


def test_a_message_copied_by_a_hub_is_not_copied_again(sites: Sites) -> None:
    sites.subscribe("south/1", "car", "topic:x")
    sites.subscribe("north/1", "bus", "topic:x")
    sites.run_until_idle()
    sites.publish("east/1", "x")
    sites.run_until_idle()
    assert received_topics(sites) == {"north": ["x"], "south": ["x"], "east": ["x"]}
    assert [len(sites.records(site)) for site in sites.stores] == [1, 1, 1]


def test_a_message_to_an_endpoint_goes_to_all_sites_with_a_claim_of_it(sites: Sites) -> None:
    sites.claim("south/1", "car", 5)
    sites.claim("east/1", "car", 7)
    sites.run_until_idle()
    sites.publish("north/1", "x", to=ToEndpoint(EndpointId("car")))
    sites.publish("north/1", "y", to=ToEndpoint(EndpointId("nobody")))
    sites.run_until_idle()
    assert received_topics(sites) == {"north": ["x", "y"], "south": ["x"], "east": ["x"]}
    counts = sites.processes[0].hub.counts
    assert {why.name: count for why, count in counts.dropped.items()} == {"ENDPOINT_UNKNOWN": 1}


def test_a_message_to_an_area_goes_to_the_sites_that_cover_a_part_of_it(sites: Sites) -> None:
    sites.publish("east/1", "x", to=ToArea(IN_SOUTH))
    sites.run_until_idle()
    assert received_topics(sites) == {"north": [], "south": ["x"], "east": ["x"]}


def test_a_message_to_content_within_an_area_needs_subscription_and_coverage(sites: Sites) -> None:
    for edge in ("north/1", "east/1"):
        sites.subscribe(edge, "car", "topic:x")
    sites.run_until_idle()
    sites.publish("south/1", "x", to=ToContent(IN_SOUTH))
    sites.run_until_idle()
    assert received_topics(sites) == {"north": [], "south": ["x"], "east": ["x"]}


@pytest.mark.parametrize("options", [{"to": ToEveryone()}, {"retained": True}])
def test_a_message_to_everyone_and_a_retained_one_go_to_all_sites(sites: Sites, options: dict[str, object]) -> None:
    sites.publish("north/1", "x", **options)
    sites.run_until_idle()
    assert received_topics(sites) == {"north": ["x"], "south": ["x"], "east": ["x"]}


def test_a_message_sent_directly_to_a_site_is_not_copied_there_by_the_hub(sites: Sites) -> None:
    sites.publish("north/1", "x", to=ToEveryone(), direct=("south",))
    sites.run_until_idle()
    assert received_topics(sites) == {"north": ["x"], "south": [], "east": ["x"]}


def test_invalid_records_are_counted_and_later_ones_are_routed(sites: Sites) -> None:
    sites.subscribe("south/1", "car", "topic:x")
    sites.run_until_idle()
    for value in (
        b"no json",
        b"{}",
        b'{"type":"forwarded"}',
        b"\xff",
        b'{"type":"claim","endpoint":"a","edge":"north/1","epoch":"1"}',
        None,
    ):
        sites.append("north", CROSS_HUB, "", value)
    sites.append("north", CROSS_HUB, "nowhere/1", b"[]")
    sites.publish("north/1", "x")
    sites.run_until_idle()
    assert sites.received_topics("south") == ["x"]
    assert len(sites.records("south")) == 1
    counts = sites.processes[0].hub.counts
    assert {why.name for why in counts.dropped} == {"UNREADABLE", "FALSE"}


def test_a_restart_loses_nothing_and_repeats_nothing(sites: Sites) -> None:
    sites.subscribe("south/1", "car", "topic:x/#")
    sites.run_until_idle()
    expected = []
    for number in range(5):
        sites.publish("north/1", f"x/{number}")
        expected.append(f"x/{number}")
        sites.run_until_idle()
        sites.processes[0].kill()
        sites.publish("north/1", f"x/{number}/while-away")
        expected.append(f"x/{number}/while-away")
        sites.start_hub()
    assert sites.received_topics("south") == expected
    assert len(sites.records("south")) == len(expected)


def test_a_second_process_takes_over_the_sites_of_a_killed_one() -> None:
    sites = Sites("north", "south")
    first = sites.start_hub("first")
    second = sites.start_hub("second")
    sites.subscribe("south/1", "car", "topic:x")
    sites.run_until_idle()
    assert first.hub.owned | second.hub.owned == {"north", "south"}
    assert not first.hub.owned & second.hub.owned
    first.kill()
    sites.run_until_idle()
    assert second.hub.owned == {"north", "south"}
    sites.publish("north/1", "x")
    sites.run_until_idle()
    assert sites.received_topics("south") == ["x"]


def routed(hub: CentralHub, site: str, message: ForwardedMessage, offset: int) -> list[str]:
    """Return the sites that a record of a site's cross-hub is copied to."""
    hub.route(site, [LoggedRecord(offset, "", to_record(message), START)], START)
    return [append.site for append in hub.take_appends() if append.topic == CROSS_HUB]


def hub_of(*sites: str) -> CentralHub:
    hub = CentralHub("hub", sites)
    for site in sites:
        hub.own(site, True, START)
    hub.take_appends()
    return hub


def test_messages_published_at_another_site_are_not_copied() -> None:
    hub = hub_of("north", "south", "east")
    assert routed(hub, "north", forwarded(ref("east/1"), 7, "x", to=ToEveryone()), 0) == []
    assert sorted(routed(hub, "north", forwarded(ref("north/1"), 7, "x", to=ToEveryone()), 1)) == ["east", "south"]


def test_a_message_passed_over_is_never_copied_and_is_sent_as_missed() -> None:
    hub = hub_of("north", "south")
    later, earlier = forwarded(ref("north/2"), START + 9, "x"), forwarded(ref("north/2"), START + 5, "x", to=ToEveryone())
    hub.on_records("south", CROSS_HUB, [LoggedRecord(0, "", to_record(later), START)], START)
    assert routed(hub, "north", earlier, 0) == []
    handover = Handover(CAR, Epoch(1), ref("north/1"), ref("south/1"), 1, as_of=START)
    hub.on_records("south", CROSS_HUB, [LoggedRecord(1, "south/1", to_record(handover), START)], START)
    (missed,) = (from_record(append.value or b"") for append in hub.take_appends())
    assert isinstance(missed, MissedMessages)
    assert missed.messages == (earlier,)
