"""What every site is told about the others, and that a centre is there."""

from central_hub_in_memory import START, Sites, ref
from milepost.model.areas import Around, Box
from milepost.model.endpoints import EndpointId
from milepost.model.queries import parse_query
from milepost.model.sites import ALL, SUBSCRIPTION_INFO, EdgeInfo, HubInfo, Interest
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record

WISH = Subscription(EndpointId("car"), parse_query("x"))


def wishes_at(sites: Sites, site: str) -> list[tuple[str, str]]:
    """What is wanted elsewhere, as a site is told: where, and the query."""
    table = sites.table(site)
    return sorted(
        (one.edge.site, str(one.subscription.query))
        for key, one in table.items()
        if key.startswith("@@") and isinstance(one, Interest) and one.edge.edge == ALL
    )


def test_all_other_sites_are_told_what_a_site_wants_and_it_is_not() -> None:
    sites = Sites("north", "south", "east")
    sites.start_centre()
    sites.wants("north/1", "car", "topic:fleet/#", area=Around(50.0))
    sites.settle()
    assert wishes_at(sites, "south") == wishes_at(sites, "east") == [("north", "topic:fleet/#")]
    assert wishes_at(sites, "north") == []


def test_equal_wishes_are_told_once_and_taken_back_with_the_last_after_a_while() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.wants("north/1", "car", "topic:x")
    sites.wants("north/2", "bus", "topic:x")
    sites.settle()
    assert len([one for one in sites.records("south", SUBSCRIPTION_INFO) if one.key != "@@centre"]) == 1
    sites.wants_no_more("north/1", "car", "topic:x")
    sites.pass_s(10)
    assert wishes_at(sites, "south") == [("north", "topic:x")]
    sites.wants_no_more("north/2", "bus", "topic:x")
    sites.pass_s(4)
    assert wishes_at(sites, "south") == [("north", "topic:x")]
    sites.pass_s(2)
    assert wishes_at(sites, "south") == []


def test_a_wish_that_comes_back_within_the_while_was_never_taken_back() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.wants("north/1", "car", "topic:x")
    sites.settle()
    sites.wants_no_more("north/1", "car", "topic:x")
    sites.pass_s(3)
    sites.wants("north/1", "car", "topic:x")
    sites.pass_s(10)
    entries = [one for one in sites.records("south", SUBSCRIPTION_INFO) if one.key != "@@centre"]
    assert len(entries) == 1


def test_the_next_process_says_what_is_missing_and_takes_back_what_is_too_much() -> None:
    sites = Sites("north", "south")
    first = sites.start_centre("first")
    sites.wants("north/1", "car", "topic:x")
    sites.settle()
    first.kill()
    sites.wants_no_more("north/1", "car", "topic:x")
    sites.wants("north/1", "car", "topic:y")
    sites.start_centre("second")
    sites.pass_s(6)
    assert wishes_at(sites, "south") == [("north", "topic:y")]


def test_an_entry_that_somebody_removed_is_said_again() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.wants("north/1", "car", "topic:x")
    sites.settle()
    (key,) = (key for key in sites.table("south") if key.startswith("@@"))
    sites.append("south", SUBSCRIPTION_INFO, key, None)
    sites.settle()
    assert wishes_at(sites, "south") == []
    sites.pass_s(3)
    assert wishes_at(sites, "south") == [("north", "topic:x")]


def test_edges_are_described_at_all_other_sites_as_they_describe_themselves() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    info = EdgeInfo(ref("north/1"), Box(51.0, 7.0, 52.0, 8.0), address="mqtt://127.0.0.1:1883")
    sites.covers("north/1", info)
    sites.settle()
    assert sites.table("south") == {"@@north\n@north/1": info}
    changed = EdgeInfo(ref("north/1"), Box(51.0, 7.0, 53.0, 8.0))
    sites.covers("north/1", changed)
    sites.settle()
    assert sites.table("south") == {"@@north\n@north/1": changed}
    sites.covers("north/1", None)
    sites.pass_s(6)
    assert sites.table("south") == {}


def test_a_sign_of_life_stands_at_each_owned_site_every_second() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.pass_s(3)
    for site in ("north", "south"):
        beats = [one for one in sites.records(site, SUBSCRIPTION_INFO) if one.key == "@@centre"]
        infos = [from_record(one.value or b"") for one in beats]
        assert infos[-1] == HubInfo("centre", ("north", "south"), sites.now)
        assert len(infos) in (4, 5)
    assert sites.now > START


def test_what_lies_changes_nothing_but_a_count() -> None:
    sites = Sites("north", "south")
    process = sites.start_centre()
    sites.append("north", SUBSCRIPTION_INFO, "south/1\ncar\nx", Interest(ref("south/1"), WISH))
    sites.append("north", SUBSCRIPTION_INFO, "@south/1", EdgeInfo(ref("south/1")))
    sites.append("north", SUBSCRIPTION_INFO, "north/1\ncar\nx", b"no json")
    sites.append("north", SUBSCRIPTION_INFO, "@@centre", b"no json")
    sites.settle()
    assert sites.table("south") == {}
    assert {why.name: count for why, count in process.centre.counts.dropped.items()} == {"FALSE": 2, "UNREADABLE": 2}
    assert len([event for event, _, _ in process.told if event.startswith("record ")]) == 4
