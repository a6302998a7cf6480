"""Announcements at each site: the interest and edges of the others, and the heartbeat of the hub."""

from central_hub_in_memory import START, Sites, ref
from milepost.model.areas import Around, Box
from milepost.model.endpoints import EndpointId
from milepost.model.queries import parse_query
from milepost.model.site_records import ANY_EDGE, SUBSCRIPTION_INFO, EdgeInfo, HubInfo, Interest
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record

SUBSCRIPTION = Subscription(EndpointId("car"), parse_query("x"))


def interest_at(sites: Sites, site: str) -> list[tuple[str, str]]:
    """Return the interest of other sites as announced at a site: site and query."""
    table = sites.table(site)
    return sorted(
        (one.edge.site, str(one.subscription.query))
        for key, one in table.items()
        if key.startswith("@@") and isinstance(one, Interest) and one.edge.edge == ANY_EDGE
    )


def test_the_interest_of_a_site_is_announced_at_all_other_sites_and_not_at_its_own() -> None:
    sites = Sites("north", "south", "east")
    sites.start_hub()
    sites.subscribe("north/1", "car", "topic:fleet/#", area=Around(50.0))
    sites.run_until_idle()
    assert interest_at(sites, "south") == interest_at(sites, "east") == [("north", "topic:fleet/#")]
    assert interest_at(sites, "north") == []


def test_equal_subscriptions_are_announced_once_and_withdrawn_with_the_last_after_a_while() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.subscribe("north/1", "car", "topic:x")
    sites.subscribe("north/2", "bus", "topic:x")
    sites.run_until_idle()
    assert len([one for one in sites.records("south", SUBSCRIPTION_INFO) if one.key != "@@hub"]) == 1
    sites.unsubscribe("north/1", "car", "topic:x")
    sites.pass_s(10)
    assert interest_at(sites, "south") == [("north", "topic:x")]
    sites.unsubscribe("north/2", "bus", "topic:x")
    sites.pass_s(4)
    assert interest_at(sites, "south") == [("north", "topic:x")]
    sites.pass_s(2)
    assert interest_at(sites, "south") == []


def test_a_subscription_that_returns_before_the_delay_is_not_withdrawn() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.subscribe("north/1", "car", "topic:x")
    sites.run_until_idle()
    sites.unsubscribe("north/1", "car", "topic:x")
    sites.pass_s(3)
    sites.subscribe("north/1", "car", "topic:x")
    sites.pass_s(10)
    entries = [one for one in sites.records("south", SUBSCRIPTION_INFO) if one.key != "@@hub"]
    assert len(entries) == 1


def test_the_next_process_appends_missing_entries_and_withdraws_superfluous_ones() -> None:
    sites = Sites("north", "south")
    first = sites.start_hub("first")
    sites.subscribe("north/1", "car", "topic:x")
    sites.run_until_idle()
    first.kill()
    sites.unsubscribe("north/1", "car", "topic:x")
    sites.subscribe("north/1", "car", "topic:y")
    sites.start_hub("second")
    sites.pass_s(6)
    assert interest_at(sites, "south") == [("north", "topic:y")]


def test_an_entry_removed_by_another_process_is_restored() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.subscribe("north/1", "car", "topic:x")
    sites.run_until_idle()
    (key,) = (key for key in sites.table("south") if key.startswith("@@"))
    sites.append("south", SUBSCRIPTION_INFO, key, None)
    sites.run_until_idle()
    assert interest_at(sites, "south") == []
    sites.pass_s(3)
    assert interest_at(sites, "south") == [("north", "topic:x")]


def test_edge_descriptions_are_copied_to_all_other_sites() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    info = EdgeInfo(ref("north/1"), Box(51.0, 7.0, 52.0, 8.0), address="mqtt://127.0.0.1:1883")
    sites.describe_edge("north/1", info)
    sites.run_until_idle()
    assert sites.table("south") == {"@@north\n@north/1": info}
    changed = EdgeInfo(ref("north/1"), Box(51.0, 7.0, 53.0, 8.0))
    sites.describe_edge("north/1", changed)
    sites.run_until_idle()
    assert sites.table("south") == {"@@north\n@north/1": changed}
    sites.describe_edge("north/1", None)
    sites.pass_s(6)
    assert sites.table("south") == {}


def test_each_owned_site_gets_a_heartbeat_every_second() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.pass_s(3)
    for site in ("north", "south"):
        heartbeats = [one for one in sites.records(site, SUBSCRIPTION_INFO) if one.key == "@@hub"]
        infos = [from_record(one.value or b"") for one in heartbeats]
        assert infos[-1] == HubInfo("hub", ("north", "south"), sites.now)
        assert len(infos) in (4, 5)
    assert sites.now > START


def test_false_records_are_only_counted() -> None:
    sites = Sites("north", "south")
    process = sites.start_hub()
    sites.append("north", SUBSCRIPTION_INFO, "south/1\ncar\nx", Interest(ref("south/1"), SUBSCRIPTION))
    sites.append("north", SUBSCRIPTION_INFO, "@south/1", EdgeInfo(ref("south/1")))
    sites.append("north", SUBSCRIPTION_INFO, "north/1\ncar\nx", b"no json")
    sites.append("north", SUBSCRIPTION_INFO, "@@hub", b"no json")
    sites.run_until_idle()
    assert sites.table("south") == {}
    assert {why.name: count for why, count in process.hub.counts.dropped.items()} == {"FALSE": 2, "UNREADABLE": 2}
    assert len([event for event, _, _ in process.log_events if event.startswith("record ")]) == 4
