"""Where messages are copied to."""

import pytest

from central_hub_in_memory import START, Sites, ref, say
from milepost.federation.central_hub import CentralHub
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Box, Circle
from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost.model.sites import CROSS_HUB, EdgeInfo, Epoch, ForwardedMessage, Handover, LoggedRecord, MissedMessages
from milepost.wire.records import from_record, to_record

CAR = EndpointId("car")
NORTH_AREA, SOUTH_AREA = Box(51.0, 7.0, 52.0, 8.0), Box(49.0, 7.0, 50.0, 8.0)
IN_SOUTH = Circle(Place(49.5, 7.5), 100.0)


@pytest.fixture
def sites() -> Sites:
    """Three sites; north and south cover areas, east everything."""
    found = Sites("north", "south", "east")
    found.start_centre()
    for edge, area in (("north/1", NORTH_AREA), ("south/1", SOUTH_AREA), ("east/1", None)):
        found.covers(edge, EdgeInfo(ref(edge), area))
    found.settle()
    return found


def heard(sites: Sites) -> dict[str, list[str]]:
    return {site: sites.heard(site) for site in sites.stores}


def test_a_message_goes_to_the_sites_that_want_it_as_it_stands(sites: Sites) -> None:
    sites.wants("south/1", "car", "topic:fleet/#")
    sites.settle()
    sites.said("north/1", "fleet/a")
    sites.said("north/1", "weather")
    sites.settle()
    assert heard(sites) == {"north": ["fleet/a", "weather"], "south": ["fleet/a"], "east": []}
    assert sites.records("south")[0].value == sites.records("north")[0].value
    assert sites.records("south")[0].key == ""


def test_what_was_brought_by_a_centre_is_not_brought_on(sites: Sites) -> None:
    sites.wants("south/1", "car", "topic:x")
    sites.wants("north/1", "bus", "topic:x")
    sites.settle()
    sites.said("east/1", "x")
    sites.settle()
    assert heard(sites) == {"north": ["x"], "south": ["x"], "east": ["x"]}
    assert [len(sites.records(site)) for site in sites.stores] == [1, 1, 1]


def test_a_message_to_an_endpoint_goes_to_all_sites_that_have_something_of_it(sites: Sites) -> None:
    sites.claims("south/1", "car", 5)
    sites.claims("east/1", "car", 7)
    sites.settle()
    sites.said("north/1", "x", to=ToEndpoint(EndpointId("car")))
    sites.said("north/1", "y", to=ToEndpoint(EndpointId("nobody")))
    sites.settle()
    assert heard(sites) == {"north": ["x", "y"], "south": ["x"], "east": ["x"]}
    counts = sites.processes[0].centre.counts
    assert {why.name: count for why, count in counts.dropped.items()} == {"ENDPOINT_UNKNOWN": 1}


def test_a_message_to_an_area_goes_to_the_sites_that_it_concerns(sites: Sites) -> None:
    sites.said("east/1", "x", to=ToArea(IN_SOUTH))
    sites.settle()
    assert heard(sites) == {"north": [], "south": ["x"], "east": ["x"]}


def test_a_message_to_content_within_an_area_needs_both(sites: Sites) -> None:
    for edge in ("north/1", "east/1"):
        sites.wants(edge, "car", "topic:x")
    sites.settle()
    sites.said("south/1", "x", to=ToContent(IN_SOUTH))
    sites.settle()
    assert heard(sites) == {"north": [], "south": ["x"], "east": ["x"]}


@pytest.mark.parametrize("options", [{"to": ToEveryone()}, {"retained": True}])
def test_a_message_to_everyone_and_a_retained_one_go_everywhere(sites: Sites, options: dict[str, object]) -> None:
    sites.said("north/1", "x", **options)
    sites.settle()
    assert heard(sites) == {"north": ["x"], "south": ["x"], "east": ["x"]}


def test_a_site_that_got_it_from_its_edge_does_not_get_it_from_the_centre(sites: Sites) -> None:
    sites.said("north/1", "x", to=ToEveryone(), direct=("south",))
    sites.settle()
    assert heard(sites) == {"north": ["x"], "south": [], "east": ["x"]}


def test_poison_changes_nothing_but_a_count_and_what_follows_is_routed(sites: Sites) -> None:
    sites.wants("south/1", "car", "topic:x")
    sites.settle()
    for value in (
        b"no json",
        b"{}",
        b'{"type":"said"}',
        b"\xff",
        b'{"type":"claim","endpoint":"a","edge":"north/1","epoch":"1"}',
        None,
    ):
        sites.append("north", CROSS_HUB, "", value)
    sites.append("north", CROSS_HUB, "nowhere/1", b"[]")
    sites.said("north/1", "x")
    sites.settle()
    assert sites.heard("south") == ["x"]
    assert len(sites.records("south")) == 1
    counts = sites.processes[0].centre.counts
    assert {why.name for why in counts.dropped} == {"UNREADABLE", "FALSE"}


def test_a_restart_loses_nothing_and_repeats_nothing(sites: Sites) -> None:
    sites.wants("south/1", "car", "topic:x/#")
    sites.settle()
    expected = []
    for number in range(5):
        sites.said("north/1", f"x/{number}")
        expected.append(f"x/{number}")
        sites.settle()
        sites.processes[0].kill()
        sites.said("north/1", f"x/{number}/while-away")
        expected.append(f"x/{number}/while-away")
        sites.start_centre()
    assert sites.heard("south") == expected
    assert len(sites.records("south")) == len(expected)


def test_a_second_process_takes_over_what_the_first_had() -> None:
    sites = Sites("north", "south")
    first = sites.start_centre("first")
    second = sites.start_centre("second")
    sites.wants("south/1", "car", "topic:x")
    sites.settle()
    assert first.centre.owned | second.centre.owned == {"north", "south"}
    assert not first.centre.owned & second.centre.owned
    first.kill()
    sites.settle()
    assert second.centre.owned == {"north", "south"}
    sites.said("north/1", "x")
    sites.settle()
    assert sites.heard("south") == ["x"]


def routed(centre: CentralHub, site: str, said: ForwardedMessage, offset: int) -> list[str]:
    """The sites that a record of a site's cross-hub is copied to."""
    centre.route(site, [LoggedRecord(offset, "", to_record(said), START)], START)
    return [append.site for append in centre.take_appends() if append.topic == CROSS_HUB]


def centre_of(*sites: str) -> CentralHub:
    centre = CentralHub("centre", sites)
    for site in sites:
        centre.own(site, True, START)
    centre.take_appends()
    return centre


def test_what_stands_at_a_site_without_being_said_there_is_nothing_to_copy() -> None:
    centre = centre_of("north", "south", "east")
    assert routed(centre, "north", say(ref("east/1"), 7, "x", to=ToEveryone()), 0) == []
    assert sorted(routed(centre, "north", say(ref("north/1"), 7, "x", to=ToEveryone()), 1)) == ["east", "south"]


def test_what_was_not_copied_before_something_later_was_stays_so_and_comes_extra() -> None:
    centre = centre_of("north", "south")
    later, earlier = say(ref("north/2"), START + 9, "x"), say(ref("north/2"), START + 5, "x", to=ToEveryone())
    centre.on_records("south", CROSS_HUB, [LoggedRecord(0, "", to_record(later), START)], START)
    assert routed(centre, "north", earlier, 0) == []
    handover = Handover(CAR, Epoch(1), ref("north/1"), ref("south/1"), 1, as_of=START)
    centre.on_records("south", CROSS_HUB, [LoggedRecord(1, "south/1", to_record(handover), START)], START)
    (extra,) = (from_record(append.value or b"") for append in centre.take_appends())
    assert isinstance(extra, MissedMessages)
    assert extra.messages == (earlier,)
