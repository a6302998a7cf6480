"""The centre at its logs: what it waits for before it acts, and what it commits."""

from central_hub_in_memory import Sites
from milepost.eventlog.memory import StepKind
from milepost.model.sites import CROSS_HUB, SUBSCRIPTION_INFO
from milepost.runtime.central_hub import HubMetrics
from milepost.runtime.hub_logs import GROUP
from milepost.runtime.metrics import exposition


def step(sites: Sites, *, but: str) -> None:
    """Let everything happen but what readers of a topic take."""
    for _ in range(200):
        for process in sites.processes:
            process.turn()
            process.link.tick(sites.now)
        for store in sites.stores.values():
            for one in store.ready():
                if one.kind is not StepKind.CLEAN and not (one.kind is StepKind.TAKE and one.name == but):
                    one.run()


def test_nothing_is_routed_before_all_wishes_are_known() -> None:
    sites = Sites("north", "south")
    sites.wants("south/1", "car", "topic:x")
    sites.said("north/1", "x")
    sites.settle()
    sites.processes.append(sites.new_process("centre"))
    step(sites, but=SUBSCRIPTION_INFO)
    assert not sites.processes[0].link.is_ready
    assert HubMetrics(sites.processes[0].link).check() == "reading the logs of the sites"
    assert sites.processes[0].centre.owned == set()
    sites.settle()
    assert sites.processes[0].link.is_ready
    assert sites.heard("south") == ["x"]


def committed(sites: Sites) -> int | None:
    return sites.processes[0].logs["north"].committed(GROUP).get(CROSS_HUB)


def test_an_offset_is_committed_when_what_came_of_it_is_safe_and_not_before() -> None:
    sites = Sites("north", "south")
    sites.wants("south/1", "car", "topic:x")
    sites.start_centre()
    before = committed(sites)
    sites.said("north/1", "x")
    for _ in range(20):
        sites.processes[0].turn()
        sites.processes[0].link.tick(sites.now)
        for one in sites.stores["north"].ready():
            one.run()  # the log of south does nothing
    assert sites.processes[0].centre.position("north") == 1
    assert committed(sites) == before
    sites.settle()
    assert committed(sites) == 1


def test_figures_tell_what_is_owned_copied_and_behind() -> None:
    sites = Sites("north", "south")
    sites.wants("south/1", "car", "topic:x")
    process = sites.start_centre()
    sites.claims("north/1", "car", 5)
    sites.said("north/1", "x")
    sites.settle()
    metrics = HubMetrics(process.link)
    lines = exposition(metrics.families()).decode().splitlines()
    for line in (
        'milepost_centre_owned{site="north"} 1.0',
        'milepost_centre_lag_records{site="north"} 0.0',
        'milepost_centre_copied_total{from="north",to="south"} 1',
        "milepost_centre_endpoints 1",
    ):
        assert line in lines
    assert metrics.check() is None


def test_a_process_that_stops_routes_nothing_more() -> None:
    sites = Sites("north", "south")
    process = sites.start_centre()
    process.link.is_stopping = True
    sites.said("north/1", "x")
    sites.settle()
    assert process.centre.position("north") == 0
    process.link.is_stopping = False
    sites.settle()
    assert process.centre.position("north") == 1


def test_a_site_is_not_acted_for_before_what_others_brought_elsewhere_is_known() -> None:
    sites = Sites("north", "south")
    sites.wants("south/1", "car", "topic:x")
    sites.start_centre("first")
    sites.said("north/1", "x")
    sites.settle()
    sites.processes[0].kill()
    sites.processes.append(sites.new_process("second"))
    step(sites, but=CROSS_HUB)
    assert sites.processes[0].link.is_ready
    assert sites.processes[0].centre.owned == set()
    sites.settle()
    assert sites.processes[0].centre.owned == {"north", "south"}


def test_what_was_read_of_a_site_that_went_to_somebody_else_is_left_to_them() -> None:
    sites = Sites("north", "south")
    sites.wants("south/1", "car", "topic:x")
    first = sites.start_centre("first")
    first.link.is_stopping = True  # so that what is read waits
    sites.said("north/1", "x")
    sites.settle()
    sites.start_centre("second")
    first.link.is_stopping = False
    sites.settle()
    assert sites.heard("south") == ["x"]
    assert len(sites.records("south")) == 1
