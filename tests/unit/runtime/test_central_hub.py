"""The central hub and its logs: what it reads before it serves a site, and what it commits."""

from central_hub_in_memory import Sites
from milepost.eventlog.memory import StepKind
from milepost.model.site_records import CROSS_HUB, SUBSCRIPTION_INFO
from milepost.runtime.central_hub import HubMetrics
from milepost.runtime.hub_logs import GROUP
from milepost.runtime.metrics import exposition


def step(sites: Sites, *, but: str) -> None:
    """Run until idle, except for the readers of one topic."""
    for _ in range(200):
        for process in sites.processes:
            process.run_calls()
            process.link.tick(sites.now)
        for store in sites.stores.values():
            for one in store.ready():
                if one.kind is not StepKind.CLEAN and not (one.kind is StepKind.READ and one.name == but):
                    one.run()


def test_nothing_is_routed_before_the_subscriptions_of_all_sites_are_read() -> None:
    sites = Sites("north", "south")
    sites.subscribe("south/1", "car", "topic:x")
    sites.publish("north/1", "x")
    sites.run_until_idle()
    sites.processes.append(sites.new_process("hub"))
    step(sites, but=SUBSCRIPTION_INFO)
    assert not sites.processes[0].link.is_ready
    assert HubMetrics(sites.processes[0].link).check() == "reading the logs of the sites"
    assert sites.processes[0].hub.owned == set()
    sites.run_until_idle()
    assert sites.processes[0].link.is_ready
    assert sites.received_topics("south") == ["x"]


def committed(sites: Sites) -> int | None:
    return sites.processes[0].logs["north"].committed(GROUP).get(CROSS_HUB)


def test_an_offset_is_committed_once_its_appends_are_confirmed() -> None:
    sites = Sites("north", "south")
    sites.subscribe("south/1", "car", "topic:x")
    sites.start_hub()
    before = committed(sites)
    sites.publish("north/1", "x")
    for _ in range(20):
        sites.processes[0].run_calls()
        sites.processes[0].link.tick(sites.now)
        for one in sites.stores["north"].ready():
            one.run()  # the log of south does nothing
    assert sites.processes[0].hub.position("north") == 1
    assert committed(sites) == before
    sites.run_until_idle()
    assert committed(sites) == 1


def test_metrics_have_owned_sites_forwarded_records_and_lag() -> None:
    sites = Sites("north", "south")
    sites.subscribe("south/1", "car", "topic:x")
    process = sites.start_hub()
    sites.claim("north/1", "car", 5)
    sites.publish("north/1", "x")
    sites.run_until_idle()
    metrics = HubMetrics(process.link)
    lines = exposition(metrics.families()).decode().splitlines()
    for line in (
        'milepost_hub_owned{site="north"} 1.0',
        'milepost_hub_lag_records{site="north"} 0.0',
        'milepost_hub_forwarded_total{from="north",to="south"} 1',
        "milepost_hub_endpoints 1",
    ):
        assert line in lines
    assert metrics.check() is None


def test_a_stopping_process_routes_nothing_more() -> None:
    sites = Sites("north", "south")
    process = sites.start_hub()
    process.link.is_stopping = True
    sites.publish("north/1", "x")
    sites.run_until_idle()
    assert process.hub.position("north") == 0
    process.link.is_stopping = False
    sites.run_until_idle()
    assert process.hub.position("north") == 1


def test_a_site_is_served_only_after_records_forwarded_by_other_processes_are_read() -> None:
    sites = Sites("north", "south")
    sites.subscribe("south/1", "car", "topic:x")
    sites.start_hub("first")
    sites.publish("north/1", "x")
    sites.run_until_idle()
    sites.processes[0].kill()
    sites.processes.append(sites.new_process("second"))
    step(sites, but=CROSS_HUB)
    assert sites.processes[0].link.is_ready
    assert sites.processes[0].hub.owned == set()
    sites.run_until_idle()
    assert sites.processes[0].hub.owned == {"north", "south"}


def test_records_of_a_site_that_was_reassigned_are_left_to_its_new_owner() -> None:
    sites = Sites("north", "south")
    sites.subscribe("south/1", "car", "topic:x")
    first = sites.start_hub("first")
    first.link.is_stopping = True  # so that what is read waits
    sites.publish("north/1", "x")
    sites.run_until_idle()
    sites.start_hub("second")
    first.link.is_stopping = False
    sites.run_until_idle()
    assert sites.received_topics("south") == ["x"]
    assert len(sites.records("south")) == 1
