"""Streams of the central hub: a message is copied by its head as if it were decoded; passed over messages go as extras."""

import orjson
import pytest

from central_hub_in_memory import Sites, ref, say
from milepost.federation.hub_actions import DropReason
from milepost.model.sites import CROSS_HUB, ForwardedMessage, MissedMessages
from milepost.wire.records import to_record


@pytest.fixture
def sites() -> Sites:
    found = Sites("north", "south", "east")
    found.start_centre()
    found.wants("south/1", "car", "topic:fleet/#")
    found.settle()
    return found


def spaced(said: ForwardedMessage) -> bytes:
    """A record that means the same and is written otherwise, so that it is read whole."""
    return orjson.dumps(orjson.loads(to_record(said)), option=orjson.OPT_INDENT_2)


def test_messages_of_a_known_topic_go_where_the_first_one_went_until_that_changes(sites: Sites) -> None:
    for _ in range(3):
        sites.said("north/1", "fleet/a")
        sites.settle()
    sites.wants("east/1", "bus", "topic:fleet/a")
    sites.settle()
    sites.said("north/1", "fleet/a")
    sites.settle()
    assert [len(sites.heard(site)) for site in ("north", "south", "east")] == [4, 4, 1]
    sites.wants_no_more("south/1", "car", "topic:fleet/#")
    sites.pass_s(10)
    sites.said("north/1", "fleet/a")
    sites.settle()
    assert [len(sites.heard(site)) for site in ("north", "south", "east")] == [5, 4, 2]


def test_messages_are_copied_in_order_whether_or_not_they_are_read_whole(sites: Sites) -> None:
    said = [say(ref("north/1"), sites.number(), f"fleet/{at % 2}", body=b"%d" % at) for at in range(8)]
    for at, one in enumerate(said):
        sites.append("north", CROSS_HUB, "", spaced(one) if at % 3 == 1 else one)
    sites.settle()
    assert sites.values("south") == said
    assert sites.values("east") == []


def test_what_came_from_elsewhere_is_not_copied_on_however_it_is_written(sites: Sites) -> None:
    sites.said("east/1", "fleet/a")  # from here on the topic is known
    sites.append("east", CROSS_HUB, "", say(ref("north/1"), sites.number(), "fleet/a"))
    sites.append("east", CROSS_HUB, "", spaced(say(ref("north/1"), sites.number(), "fleet/a")))
    sites.settle()
    assert sites.heard("south") == ["fleet/a"]


def test_a_message_is_not_copied_to_the_site_where_it_was_said(sites: Sites) -> None:
    sites.wants("north/2", "van", "topic:fleet/#")
    sites.settle()
    for _ in range(3):
        sites.said("north/1", "fleet/a")
    sites.settle()
    assert [len(sites.records(site)) for site in ("north", "south", "east")] == [3, 3, 0]


def test_an_endpoint_that_moves_gets_what_was_not_copied_even_if_nobody_had_read_it_whole(sites: Sites) -> None:
    sites.wants("south/1", "car", "topic:x/#")
    sites.settle()
    first = sites.said("north/1", "x/a")  # from here on the topic is known
    sites.wants_no_more("south/1", "car", "topic:x/#")
    sites.pass_s(10)
    for body in (b"1", b"2"):
        sites.said("north/1", "x/a", body=body)
    sites.said("north/1", "y")
    sites.settle()
    sites.hands_over("east/1", "south/1", "bus", ["topic:x/a"], cursors={"north/1": first.number})
    sites.settle()
    extras = [value for value in sites.values("south") if isinstance(value, MissedMessages) and value.sender.site == "north"]
    assert [one.message.body for extra in extras for one in extra.messages] == [b"1", b"2"]


def test_a_plain_record_that_nobody_can_read_is_left_to_whom_it_is_for_once_its_topic_is_known(sites: Sites) -> None:
    process = sites.processes[0]
    said = [say(ref("north/1"), sites.number(), "fleet/a") for _ in range(3)]
    values = [to_record(one).replace(b'"seen_at":"2', b'"seen_at":"9-2') for one in said]
    sites.append("north", CROSS_HUB, "", values[0])
    sites.append("north", CROSS_HUB, "", said[1])
    sites.append("north", CROSS_HUB, "", values[2])
    sites.settle()
    assert [record.value for record in sites.records("south")] == [to_record(said[1]), values[2]]
    assert process.centre.counts.dropped[DropReason.UNREADABLE] == 1


def test_a_moving_endpoint_gets_messages_that_an_earlier_process_passed_over_before_it_copied_a_later_one() -> None:
    sites = Sites("north", "south", "east")
    sites.start_centre().kill()
    passed, copied = sites.said("east/1", "x/1"), sites.said("east/1", "x/2")
    handover = sites.hands_over("north/1", "south/1", "car", ["topic:x/#"], cursors={"east/1": passed.number - 1})
    sites.append("south", CROSS_HUB, "south/1", handover)
    sites.append("south", CROSS_HUB, "", copied)
    sites.start_centre()
    sites.settle()
    extras = [one for one in sites.values("south") if isinstance(one, MissedMessages) and one.sender.site == "east"]
    assert [said for one in extras for said in one.messages] == [passed]
    assert [one.is_last for one in extras] == [True]
    assert sites.heard("south") == ["x/2"]
