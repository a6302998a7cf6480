"""Endpoints that move between sites: letters, what is said after them, and who asks on their behalf."""

from central_hub_in_memory import START, Sites, held, ref, say
from milepost.federation.central_hub import CentralHub
from milepost.federation.hub_actions import DropReason, HubReadBack
from milepost.federation.hub_streams import EXTRA_BYTES, PARTS_MAX, SLACK_NS, extras_of, last_of, move_of
from milepost.model.addresses import ToArea, ToEndpoint, ToEveryone
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.sites import (
    CROSS_HUB,
    HUB,
    SUBSCRIPTION_INFO,
    EdgeRef,
    Epoch,
    ForwardedMessage,
    Handover,
    HandoverTaken,
    Interest,
    LoggedRecord,
    MissedMessages,
)
from milepost.wire.records import from_record, to_record

X = ("topic:x",)
HERE = Place(51.0, 7.0)


def three_sites() -> Sites:
    sites = Sites("north", "south", "east")
    sites.start_centre()
    return sites


def extras(sites: Sites, site: str) -> dict[str, list[int]]:
    """By the site that was read: the numbers of what came extra."""
    found: dict[str, list[int]] = {}
    for value in sites.values(site):
        if isinstance(value, MissedMessages):
            found.setdefault(value.sender.site, []).extend(said.number for said in value.messages)
    return found


def test_a_letter_to_another_site_stands_there_as_it_was_written() -> None:
    sites = three_sites()
    sites.hands_over("north/1", "south/1", "car", X)
    sites.settle()
    assert sites.records("south")[0].value == sites.records("north")[0].value
    assert sites.records("south")[0].key == "south/1"
    assert sites.values("east") == []


def test_a_letter_within_a_site_or_to_an_unknown_one_goes_nowhere() -> None:
    sites = three_sites()
    sites.hands_over("north/1", "north/2", "car", X)
    sites.hands_over("north/1", "nowhere/1", "car", X)
    sites.settle()
    assert sites.values("south") == sites.values("east") == []
    counts = sites.processes[0].centre.counts
    assert {why.name: count for why, count in counts.dropped.items()} == {"SITE_UNKNOWN": 1}


def test_what_was_said_between_the_cut_and_the_handover_comes_extra_and_only_that() -> None:
    sites = three_sites()
    before = sites.said("north/2", "x")
    sites.settle()
    between = sites.said("north/2", "x")
    sites.said("north/2", "y")
    sites.settle()
    sites.hands_over("north/1", "south/1", "car", X, cursors={"north/2": before.number}, offset=1)
    sites.settle()
    assert extras(sites, "south") == {"north": [between.number], "east": []}
    assert sites.heard("south") == []


def test_what_other_sites_said_meanwhile_comes_extra_too() -> None:
    sites = three_sites()
    sites.wants("north/1", "car", "topic:x")
    sites.settle()
    said = sites.said("east/1", "x")
    sites.settle()
    sites.hands_over("north/1", "south/1", "car", X, cursors={"east/1": said.number - 1}, offset=0)
    sites.settle()
    assert extras(sites, "south") == {"north": [], "east": [said.number]}


def test_what_was_copied_because_others_want_it_does_not_come_extra() -> None:
    sites = three_sites()
    sites.wants("south/1", "bus", "topic:x")
    sites.settle()
    sites.said("north/2", "x")
    sites.said("north/2", "x", direct=("south",))
    sites.settle()
    sites.hands_over("north/1", "south/1", "car", X, cursors={"north/2": 1}, offset=0)
    sites.settle()
    assert extras(sites, "south") == {"north": [], "east": []}


def test_from_the_handover_on_what_the_endpoint_asks_for_is_copied() -> None:
    sites = three_sites()
    sites.hands_over("north/1", "south/1", "car", X)
    sites.settle()
    sites.said("north/2", "x")
    sites.said("east/1", "x")
    sites.settle()
    assert sites.heard("south") == ["x", "x"]
    sites.pass_s(61)
    sites.said("north/2", "x")
    sites.settle()
    assert sites.heard("south") == ["x", "x"]


def test_from_its_claim_on_what_is_wanted_for_an_endpoint_elsewhere_is_copied_to_where_it_is() -> None:
    sites = three_sites()
    sites.claims("north/1", "car", 5)
    sites.wants("north/1", "car", "topic:x")
    sites.claims("south/1", "car", 7)
    sites.settle()
    sites.pass_s(100)
    sites.said("east/1", "x")
    sites.settle()
    assert sites.heard("north") == sites.heard("south") == ["x"]
    sites.wants_no_more("north/1", "car", "topic:x")
    sites.goes("north/1", "car")
    sites.pass_s(6)
    sites.said("east/1", "x")
    sites.settle()
    assert sites.heard("south") == ["x"]


def test_a_sender_that_the_former_edge_never_heard_counts_from_a_minute_before() -> None:
    sites = three_sites()
    old = say(ref("north/2"), START - 61_000_000_000, "x")
    young = say(ref("north/3"), START - 59_000_000_000, "x")
    for said in (old, young):
        sites.append("north", CROSS_HUB, "", said)
    sites.settle()
    sites.hands_over("north/1", "south/1", "car", X, offset=0)
    sites.settle()
    assert extras(sites, "south")["north"] == [young.number]


def test_nothing_to_hand_over_brings_no_extra() -> None:
    sites = three_sites()
    sites.said("north/2", "x")
    sites.hands_over("north/1", "south/1", "car", (), is_held=False)
    sites.settle()
    assert [type(one) for one in sites.values("south")] == [Handover]


def test_the_next_process_sends_the_extra_that_a_killed_one_did_not() -> None:
    sites = three_sites()
    said = sites.said("north/2", "x")
    sites.settle()
    sites.processes[0].kill()
    handover = sites.hands_over("north/1", "south/1", "car", X, cursors={"north/2": said.number - 1}, offset=0)
    sites.append("south", CROSS_HUB, "south/1", handover)  # so far it came
    sites.start_centre()
    assert extras(sites, "south") == {"north": [said.number], "east": []}
    assert len([one for one in sites.values("south") if isinstance(one, Handover)]) == 1
    for _ in range(2):
        sites.processes[0].kill()
        sites.start_centre()
    assert extras(sites, "south") == {"north": [said.number], "east": []}


def test_a_handover_that_is_brought_twice_and_an_extra_that_is_there_change_nothing() -> None:
    sites = three_sites()
    handover = sites.hands_over("north/1", "south/1", "car", X, offset=0)
    sites.settle()
    sites.append("south", CROSS_HUB, "south/1", handover)
    sites.settle()
    process = sites.processes[0]
    for site in process.centre.sites:
        process.centre.own(site, True, sites.now, first=process.centre.position(site))
    sites.settle()
    assert [type(one) for one in sites.values("south")] == [Handover, MissedMessages, MissedMessages, Handover]


def test_what_is_no_longer_at_hand_is_read_again_and_the_order_is_kept() -> None:
    sites = three_sites()
    said = [sites.said("north/2", "x") for _ in range(1_100)]
    sites.settle()
    sites.pass_s(1)
    sites.processes[0].kill()
    sites.start_centre()
    assert sites.processes[0].centre.position("north") == 1_100
    sites.hands_over("north/1", "south/1", "car", X, cursors={"north/2": said[99].number}, offset=100)
    sites.settle()
    sites.said("north/2", "x")
    sites.settle()
    values = sites.values("south")
    came = [one.number for value in values if isinstance(value, MissedMessages) for one in value.messages]
    assert came == [one.number for one in said[100:]]
    assert [type(value) for value in values].index(ForwardedMessage) > [type(value) for value in values].index(MissedMessages)
    assert sites.heard("south") == ["x"]


def test_what_cannot_be_read_again_is_counted_and_the_rest_goes_on() -> None:
    centre = CentralHub("centre", ("north", "south"))
    centre.own("north", True, START, first=100)
    handover = Handover(EndpointId("car"), Epoch(1), ref("north/1"), ref("south/1"), 1, offset=50, as_of=START)
    centre.on_records("south", CROSS_HUB, [LoggedRecord(7, "south/1", to_record(handover), START)], START)
    assert centre.take_reads() == [HubReadBack("north", 50, Instant(START - SLACK_NS), 100)]
    centre.route("north", [LoggedRecord(100, "", to_record(say(ref("north/2"), 5, "x", to=ToEveryone())), START)], START)
    centre.take_appends()
    assert centre.is_waiting("north")
    assert centre.position("north") == 100
    centre.on_read("north", [], START, is_whole=False)
    assert [append.key for append in centre.take_appends()] == ["south/1", ""]
    assert centre.position("north") == 101
    assert centre.counts.dropped == {DropReason.TOO_OLD: 1}


def test_before_the_former_site_hears_of_taken_all_know_who_asks_now() -> None:
    sites = three_sites()
    sites.takes("south/1", "north/1", "car", X)
    sites.settle()
    assert [type(one) for one in sites.values("north")] == [HandoverTaken]
    for site in ("north", "east"):
        (wanted,) = sites.table(site).values()
        assert isinstance(wanted, Interest)
        assert wanted.edge == EdgeRef("south", "*")
    sites.said("east/1", "x")
    sites.settle()
    assert sites.heard("south") == ["x"]


def test_the_word_that_somebody_asks_is_appended_before_taken() -> None:
    centre = CentralHub("centre", ("north", "south"))
    for site in centre.sites:
        centre.own(site, True, START)
    centre.take_appends()
    taken = HandoverTaken(EndpointId("car"), Epoch(1), ref("south/1"), ref("north/1"), 1, held("car", X))
    centre.route("south", [LoggedRecord(0, "north/1", to_record(taken), START)], START)
    assert [append.topic for append in centre.take_appends()] == [SUBSCRIPTION_INFO, CROSS_HUB]


def test_a_move_asks_for_its_endpoints_content_name_and_place() -> None:
    handover = Handover(
        EndpointId("car"), Epoch(1), ref("a/1"), ref("b/1"), 1, subscriptions=held("car", ("topic:x", "tag")), place=HERE
    )
    move = move_of(handover, 7, START, ("a", "b", "c"))
    assert move.left == {"a", "c"}
    sender = ref("a/1")
    wanted = [
        say(sender, 1, "x"),
        say(sender, 1, "y", tags=frozenset({"tag"})),  # type: ignore[arg-type]
        say(sender, 1, "y", to=ToEndpoint(EndpointId("car"))),
        say(sender, 1, "y", to=ToArea(Circle(HERE, 10.0))),
        say(sender, 1, "y", to=ToEveryone()),
    ]
    unwanted = [
        say(sender, 1, "y"),
        say(sender, 1, "x", to=ToEndpoint(EndpointId("bus"))),
        say(sender, 1, "x", to=ToArea(Circle(Place(50.0, 7.0), 10.0))),
    ]
    assert all(move.wants(one.message) for one in wanted)
    assert not any(move.wants(one.message) for one in unwanted)


def test_many_extras_come_in_parts_of_which_the_last_is_known() -> None:
    handover = Handover(EndpointId("car"), Epoch(1), ref("a/1"), ref("b/1"), 1)
    move = move_of(handover, 7, Instant(START), ("a", "b"))
    said = [(say(ref("a/1"), number, "x", body=bytes(100)), EXTRA_BYTES // 3) for number in range(1, 8)]
    parts = [from_record(part) for part in extras_of(move, "a", said)]
    assert all(isinstance(part, MissedMessages) and part.sender == EdgeRef("a", HUB) for part in parts)
    assert [one.number for part in parts for one in part.messages] == list(range(1, 8))  # type: ignore[union-attr]
    assert [part.number for part in parts] == [7 * PARTS_MAX + at for at in (997, 998, 999)]  # type: ignore[union-attr]
    assert [last_of(part) for part in parts] == [None, None, 7]  # type: ignore[arg-type]
    assert [part.is_last for part in parts] == [False, False, True]  # type: ignore[union-attr]
    (empty,) = extras_of(move, "a", [])
    assert last_of(from_record(empty)) == 7  # type: ignore[arg-type]
    assert isinstance(from_record(empty), MissedMessages)
