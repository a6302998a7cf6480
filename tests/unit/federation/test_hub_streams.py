"""Streams of the central hub: a message is copied by its head as if it were decoded; passed over messages are sent as missed."""

import orjson
import pytest

from central_hub_in_memory import Sites, forwarded, ref
from milepost.federation.hub_actions import DropReason
from milepost.model.site_records import CROSS_HUB, ForwardedMessage, MissedMessages
from milepost.wire.records import to_record


@pytest.fixture
def sites() -> Sites:
    found = Sites("north", "south", "east")
    found.start_hub()
    found.subscribe("south/1", "car", "topic:fleet/#")
    found.run_until_idle()
    return found


def spaced(published: ForwardedMessage) -> bytes:
    """Return an equal record with other whitespace, so that its head is not recognised and it is decoded."""
    return orjson.dumps(orjson.loads(to_record(published)), option=orjson.OPT_INDENT_2)


def test_messages_on_a_cached_topic_follow_the_first_until_the_interest_changes(sites: Sites) -> None:
    for _ in range(3):
        sites.publish("north/1", "fleet/a")
        sites.run_until_idle()
    sites.subscribe("east/1", "bus", "topic:fleet/a")
    sites.run_until_idle()
    sites.publish("north/1", "fleet/a")
    sites.run_until_idle()
    assert [len(sites.received_topics(site)) for site in ("north", "south", "east")] == [4, 4, 1]
    sites.unsubscribe("south/1", "car", "topic:fleet/#")
    sites.pass_s(10)
    sites.publish("north/1", "fleet/a")
    sites.run_until_idle()
    assert [len(sites.received_topics(site)) for site in ("north", "south", "east")] == [5, 4, 2]


def test_messages_are_copied_in_order_whether_or_not_they_are_decoded(sites: Sites) -> None:
    published = [forwarded(ref("north/1"), sites.number(), f"fleet/{at % 2}", body=b"%d" % at) for at in range(8)]
    for at, one in enumerate(published):
        sites.append("north", CROSS_HUB, "", spaced(one) if at % 3 == 1 else one)
    sites.run_until_idle()
    assert sites.values("south") == published
    assert sites.values("east") == []


def test_messages_from_other_sites_are_not_copied_whatever_their_encoding(sites: Sites) -> None:
    sites.publish("east/1", "fleet/a")  # from here on the topic is cached
    sites.append("east", CROSS_HUB, "", forwarded(ref("north/1"), sites.number(), "fleet/a"))
    sites.append("east", CROSS_HUB, "", spaced(forwarded(ref("north/1"), sites.number(), "fleet/a")))
    sites.run_until_idle()
    assert sites.received_topics("south") == ["fleet/a"]


def test_a_message_is_not_copied_to_its_own_site(sites: Sites) -> None:
    sites.subscribe("north/2", "van", "topic:fleet/#")
    sites.run_until_idle()
    for _ in range(3):
        sites.publish("north/1", "fleet/a")
    sites.run_until_idle()
    assert [len(sites.records(site)) for site in ("north", "south", "east")] == [3, 3, 0]


def test_a_moving_endpoint_gets_messages_that_were_passed_over_without_decoding(sites: Sites) -> None:
    sites.subscribe("south/1", "car", "topic:x/#")
    sites.run_until_idle()
    first = sites.publish("north/1", "x/a")  # from here on the topic is cached
    sites.unsubscribe("south/1", "car", "topic:x/#")
    sites.pass_s(10)
    for body in (b"1", b"2"):
        sites.publish("north/1", "x/a", body=body)
    sites.publish("north/1", "y")
    sites.run_until_idle()
    sites.hand_over("east/1", "south/1", "bus", ["topic:x/a"], cursors={"north/1": first.number})
    sites.run_until_idle()
    missed_records = [
        value for value in sites.values("south") if isinstance(value, MissedMessages) and value.sender.site == "north"
    ]
    assert [one.message.body for record in missed_records for one in record.messages] == [b"1", b"2"]


def test_an_undecodable_plain_record_on_a_cached_topic_is_copied_unread(sites: Sites) -> None:
    process = sites.processes[0]
    published = [forwarded(ref("north/1"), sites.number(), "fleet/a") for _ in range(3)]
    values = [to_record(one).replace(b'"seen_at":"2', b'"seen_at":"9-2') for one in published]
    sites.append("north", CROSS_HUB, "", values[0])
    sites.append("north", CROSS_HUB, "", published[1])
    sites.append("north", CROSS_HUB, "", values[2])
    sites.run_until_idle()
    assert [record.value for record in sites.records("south")] == [to_record(published[1]), values[2]]
    assert process.hub.counts.dropped[DropReason.UNREADABLE] == 1


def test_a_moving_endpoint_gets_messages_that_an_earlier_process_passed_over_before_it_copied_a_later_one() -> None:
    sites = Sites("north", "south", "east")
    sites.start_hub().kill()
    passed, copied = sites.publish("east/1", "x/1"), sites.publish("east/1", "x/2")
    handover = sites.hand_over("north/1", "south/1", "car", ["topic:x/#"], cursors={"east/1": passed.number - 1})
    sites.append("south", CROSS_HUB, "south/1", handover)
    sites.append("south", CROSS_HUB, "", copied)
    sites.start_hub()
    sites.run_until_idle()
    missed_records = [one for one in sites.values("south") if isinstance(one, MissedMessages) and one.sender.site == "east"]
    assert [published for one in missed_records for published in one.messages] == [passed]
    assert [one.is_last for one in missed_records] == [True]
    assert sites.received_topics("south") == ["x/2"]
