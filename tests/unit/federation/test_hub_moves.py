"""Endpoints that move between sites: handovers, missed messages, and interest on their behalf."""

from central_hub_in_memory import START, Sites, forwarded, held, ref
from milepost.federation.central_hub import CentralHub
from milepost.federation.hub_actions import DropReason, HubReadBack
from milepost.federation.hub_streams import MISSED_BYTES, PARTS_MAX, SLACK_NS, completed_handover, missed_records, move_of
from milepost.model.addresses import ToArea, ToEndpoint, ToEveryone
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.site_records import (
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
    sites.start_hub()
    return sites


def missed_numbers(sites: Sites, site: str) -> dict[str, list[int]]:
    """Return the numbers of missed messages, by the site they come from."""
    found: dict[str, list[int]] = {}
    for value in sites.values(site):
        if isinstance(value, MissedMessages):
            found.setdefault(value.sender.site, []).extend(published.number for published in value.messages)
    return found


def test_a_record_for_an_edge_of_another_site_is_copied_unchanged() -> None:
    sites = three_sites()
    sites.hand_over("north/1", "south/1", "car", X)
    sites.run_until_idle()
    assert sites.records("south")[0].value == sites.records("north")[0].value
    assert sites.records("south")[0].key == "south/1"
    assert sites.values("east") == []


def test_a_record_within_a_site_or_for_an_unknown_site_is_not_copied() -> None:
    sites = three_sites()
    sites.hand_over("north/1", "north/2", "car", X)
    sites.hand_over("north/1", "nowhere/1", "car", X)
    sites.run_until_idle()
    assert sites.values("south") == sites.values("east") == []
    counts = sites.processes[0].hub.counts
    assert {why.name: count for why, count in counts.dropped.items()} == {"SITE_UNKNOWN": 1}


def test_messages_between_export_and_handover_and_only_those_are_sent_as_missed() -> None:
    sites = three_sites()
    before = sites.publish("north/2", "x")
    sites.run_until_idle()
    between = sites.publish("north/2", "x")
    sites.publish("north/2", "y")
    sites.run_until_idle()
    sites.hand_over("north/1", "south/1", "car", X, cursors={"north/2": before.number}, offset=1)
    sites.run_until_idle()
    assert missed_numbers(sites, "south") == {"north": [between.number], "east": []}
    assert sites.received_topics("south") == []


def test_messages_of_other_sites_in_the_meantime_are_sent_as_missed() -> None:
    sites = three_sites()
    sites.subscribe("north/1", "car", "topic:x")
    sites.run_until_idle()
    published = sites.publish("east/1", "x")
    sites.run_until_idle()
    sites.hand_over("north/1", "south/1", "car", X, cursors={"east/1": published.number - 1}, offset=0)
    sites.run_until_idle()
    assert missed_numbers(sites, "south") == {"north": [], "east": [published.number]}


def test_messages_copied_for_others_are_not_sent_as_missed() -> None:
    sites = three_sites()
    sites.subscribe("south/1", "bus", "topic:x")
    sites.run_until_idle()
    sites.publish("north/2", "x")
    sites.publish("north/2", "x", direct=("south",))
    sites.run_until_idle()
    sites.hand_over("north/1", "south/1", "car", X, cursors={"north/2": 1}, offset=0)
    sites.run_until_idle()
    assert missed_numbers(sites, "south") == {"north": [], "east": []}


def test_from_the_handover_on_messages_that_match_the_endpoints_subscriptions_are_copied() -> None:
    sites = three_sites()
    sites.hand_over("north/1", "south/1", "car", X)
    sites.run_until_idle()
    sites.publish("north/2", "x")
    sites.publish("east/1", "x")
    sites.run_until_idle()
    assert sites.received_topics("south") == ["x", "x"]
    sites.pass_s(61)
    sites.publish("north/2", "x")
    sites.run_until_idle()
    assert sites.received_topics("south") == ["x", "x"]


def test_from_its_claim_on_messages_for_an_endpoint_are_copied_to_its_new_site() -> None:
    sites = three_sites()
    sites.claim("north/1", "car", 5)
    sites.subscribe("north/1", "car", "topic:x")
    sites.claim("south/1", "car", 7)
    sites.run_until_idle()
    sites.pass_s(100)
    sites.publish("east/1", "x")
    sites.run_until_idle()
    assert sites.received_topics("north") == sites.received_topics("south") == ["x"]
    sites.unsubscribe("north/1", "car", "topic:x")
    sites.withdraw_claim("north/1", "car")
    sites.pass_s(6)
    sites.publish("east/1", "x")
    sites.run_until_idle()
    assert sites.received_topics("south") == ["x"]


def test_an_origin_unknown_to_the_previous_edge_counts_from_a_minute_before() -> None:
    sites = three_sites()
    old = forwarded(ref("north/2"), START - 61_000_000_000, "x")
    recent = forwarded(ref("north/3"), START - 59_000_000_000, "x")
    for published in (old, recent):
        sites.append("north", CROSS_HUB, "", published)
    sites.run_until_idle()
    sites.hand_over("north/1", "south/1", "car", X, offset=0)
    sites.run_until_idle()
    assert missed_numbers(sites, "south")["north"] == [recent.number]


def test_a_handover_without_a_session_causes_no_missed_messages() -> None:
    sites = three_sites()
    sites.publish("north/2", "x")
    sites.hand_over("north/1", "south/1", "car", (), has_session=False)
    sites.run_until_idle()
    assert [type(one) for one in sites.values("south")] == [Handover]


def test_the_next_process_sends_the_missed_messages_that_a_killed_one_did_not() -> None:
    sites = three_sites()
    published = sites.publish("north/2", "x")
    sites.run_until_idle()
    sites.processes[0].kill()
    handover = sites.hand_over("north/1", "south/1", "car", X, cursors={"north/2": published.number - 1}, offset=0)
    sites.append("south", CROSS_HUB, "south/1", handover)  # the copy was made, and nothing after it
    sites.start_hub()
    assert missed_numbers(sites, "south") == {"north": [published.number], "east": []}
    assert len([one for one in sites.values("south") if isinstance(one, Handover)]) == 1
    for _ in range(2):
        sites.processes[0].kill()
        sites.start_hub()
    assert missed_numbers(sites, "south") == {"north": [published.number], "east": []}


def test_a_repeated_handover_and_repeated_missed_messages_change_nothing() -> None:
    sites = three_sites()
    handover = sites.hand_over("north/1", "south/1", "car", X, offset=0)
    sites.run_until_idle()
    sites.append("south", CROSS_HUB, "south/1", handover)
    sites.run_until_idle()
    process = sites.processes[0]
    for site in process.hub.sites:
        process.hub.own(site, True, sites.now, first=process.hub.position(site))
    sites.run_until_idle()
    assert [type(one) for one in sites.values("south")] == [Handover, MissedMessages, MissedMessages, Handover]


def test_records_no_longer_cached_are_read_again_in_order() -> None:
    sites = three_sites()
    published = [sites.publish("north/2", "x") for _ in range(1_100)]
    sites.run_until_idle()
    sites.pass_s(1)
    sites.processes[0].kill()
    sites.start_hub()
    assert sites.processes[0].hub.position("north") == 1_100
    sites.hand_over("north/1", "south/1", "car", X, cursors={"north/2": published[99].number}, offset=100)
    sites.run_until_idle()
    sites.publish("north/2", "x")
    sites.run_until_idle()
    values = sites.values("south")
    missed = [one.number for value in values if isinstance(value, MissedMessages) for one in value.messages]
    assert missed == [one.number for one in published[100:]]
    assert [type(value) for value in values].index(ForwardedMessage) > [type(value) for value in values].index(MissedMessages)
    assert sites.received_topics("south") == ["x"]


def test_records_that_cannot_be_read_again_are_counted_and_the_move_continues() -> None:
    hub = CentralHub("hub", ("north", "south"))
    hub.own("north", True, START, first=100)
    handover = Handover(EndpointId("car"), Epoch(1), ref("north/1"), ref("south/1"), 1, offset=50, as_of=START)
    hub.on_records("south", CROSS_HUB, [LoggedRecord(7, "south/1", to_record(handover), START)], START)
    assert hub.take_reads() == [HubReadBack("north", 50, Instant(START - SLACK_NS), 100)]
    hub.route("north", [LoggedRecord(100, "", to_record(forwarded(ref("north/2"), 5, "x", to=ToEveryone())), START)], START)
    hub.take_appends()
    assert hub.is_waiting("north")
    assert hub.position("north") == 100
    hub.on_read("north", [], START, is_complete=False)
    assert [append.key for append in hub.take_appends()] == ["south/1", ""]
    assert hub.position("north") == 101
    assert hub.counts.dropped == {DropReason.TOO_OLD: 1}


def test_the_new_sites_interest_is_announced_before_the_previous_site_reads_taken() -> None:
    sites = three_sites()
    sites.confirm_handover("south/1", "north/1", "car", X)
    sites.run_until_idle()
    assert [type(one) for one in sites.values("north")] == [HandoverTaken]
    for site in ("north", "east"):
        (matching,) = sites.table(site).values()
        assert isinstance(matching, Interest)
        assert matching.edge == EdgeRef("south", "*")
    sites.publish("east/1", "x")
    sites.run_until_idle()
    assert sites.received_topics("south") == ["x"]


def test_the_interest_is_appended_before_the_confirmation_of_the_handover() -> None:
    hub = CentralHub("hub", ("north", "south"))
    for site in hub.sites:
        hub.own(site, True, START)
    hub.take_appends()
    taken = HandoverTaken(EndpointId("car"), Epoch(1), ref("south/1"), ref("north/1"), 1, held("car", X))
    hub.route("south", [LoggedRecord(0, "north/1", to_record(taken), START)], START)
    assert [append.topic for append in hub.take_appends()] == [SUBSCRIPTION_INFO, CROSS_HUB]


def test_a_move_matches_by_content_endpoint_and_area() -> None:
    handover = Handover(
        EndpointId("car"), Epoch(1), ref("a/1"), ref("b/1"), 1, subscriptions=held("car", ("topic:x", "tag")), place=HERE
    )
    move = move_of(handover, 7, START, ("a", "b", "c"))
    assert move.sites_missing == {"a", "c"}
    sender = ref("a/1")
    matching = [
        forwarded(sender, 1, "x"),
        forwarded(sender, 1, "y", tags=frozenset({"tag"})),  # type: ignore[arg-type]
        forwarded(sender, 1, "y", to=ToEndpoint(EndpointId("car"))),
        forwarded(sender, 1, "y", to=ToArea(Circle(HERE, 10.0))),
        forwarded(sender, 1, "y", to=ToEveryone()),
    ]
    others = [
        forwarded(sender, 1, "y"),
        forwarded(sender, 1, "x", to=ToEndpoint(EndpointId("bus"))),
        forwarded(sender, 1, "x", to=ToArea(Circle(Place(50.0, 7.0), 10.0))),
    ]
    assert all(move.may_receive(one.message) for one in matching)
    assert not any(move.may_receive(one.message) for one in others)


def test_many_missed_messages_come_in_parts_with_a_marked_last_one() -> None:
    handover = Handover(EndpointId("car"), Epoch(1), ref("a/1"), ref("b/1"), 1)
    move = move_of(handover, 7, Instant(START), ("a", "b"))
    published = [(forwarded(ref("a/1"), number, "x", body=bytes(100)), MISSED_BYTES // 3) for number in range(1, 8)]
    parts = [from_record(part) for part in missed_records(move, "a", published)]
    assert all(isinstance(part, MissedMessages) and part.sender == EdgeRef("a", HUB) for part in parts)
    assert [one.number for part in parts for one in part.messages] == list(range(1, 8))  # type: ignore[union-attr]
    assert [part.number for part in parts] == [7 * PARTS_MAX + at for at in (997, 998, 999)]  # type: ignore[union-attr]
    assert [completed_handover(part) for part in parts] == [None, None, 7]  # type: ignore[arg-type]
    assert [part.is_last for part in parts] == [False, False, True]  # type: ignore[union-attr]
    assert {part.handover for part in parts} == {handover.id}  # type: ignore[union-attr]
    (empty,) = missed_records(move, "a", [])
    assert completed_handover(from_record(empty)) == 7  # type: ignore[arg-type]
    assert isinstance(from_record(empty), MissedMessages)
