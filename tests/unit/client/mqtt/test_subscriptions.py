"""`MqttSubscriptions` over several connections and sessions."""

import json

import pytest

from milepost.client.client import subscription_request
from milepost.client.errors import RefusedByEdge
from milepost.client.events import Done, SubscriptionRefused
from milepost.client.messages import SubscriptionRequest
from milepost.client.subscriptions import SUBSCRIPTIONS_MAX
from milepost.model import Around, Malformed
from milepost.model.queries import parse_query
from milepost.wire.mqtt import Acknowledge, Code, PacketType, Properties, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from unit.client.scripted_server import ClientHarness, granted, summary_of


def test_subscribe_carries_properties_and_identifier_and_is_granted() -> None:
    client = ClientHarness()
    client.begin()
    request = SubscriptionRequest("hazard/#", parse_query("collision & !cleared"), Around(2_000), qos=2)
    subscription_id = client.session.subscription_id_for(request)
    ticket = client.session.subscribe(subscription_id, request)
    (packet,) = client.sent()
    assert isinstance(packet, Subscribe)
    assert (packet.requests[0].filter, packet.requests[0].qos) == ("hazard/#", 2)
    assert packet.properties.subscription_ids == (subscription_id,)
    assert packet.properties.user == (("milepost-query", "collision & !cleared"), ("milepost-area", "around 2000.0"))
    assert client.receive(granted(packet)) == [Done(ticket)]


def test_a_relative_time_window_is_sent_as_text_once_and_resolved_afterwards() -> None:
    client = ClientHarness()
    client.begin()
    request = subscription_request("a", query=None, area=None, time_window="last 10 minutes", qos=1, share=None)
    client.session.subscribe(client.session.subscription_id_for(request), request)
    (first,) = client.sent()
    client.receive(granted(first))
    client.reconnect(present=False)
    (second,) = client.sent()
    assert isinstance(first, Subscribe)
    assert isinstance(second, Subscribe)
    assert first.properties.user == (("milepost-time-window", "last 10 minutes"),)
    ((name, interval),) = second.properties.user
    assert name == "milepost-time-window"
    assert "Z/2" in interval


def test_a_refused_subscription_reports_the_reason_and_frees_its_filter() -> None:
    client = ClientHarness()
    client.begin()
    ticket = client.session.subscribe(1, SubscriptionRequest("a"))
    client.sent()
    no = Properties(reason_string="220 NOT_ALLOWED: a. Ask.")
    (done,) = client.receive(Suback(1, (Code.NOT_AUTHORIZED,), no))
    assert isinstance(done, Done)
    assert done.key == ticket
    assert done.refused is not None
    assert (done.refused.number, done.refused.name) == (220, "NOT_ALLOWED")
    client.subscribe("a")


def test_subscriptions_are_resent_in_a_new_session_only() -> None:
    client = ClientHarness()
    client.begin()
    client.subscribe("a")
    client.subscribe("b")
    client.reconnect(present=True)
    assert client.sent() == []
    client.reconnect(present=False)
    packets = client.sent()
    assert [packet.requests[0].filter for packet in packets if isinstance(packet, Subscribe)] == ["a", "b"]
    assert [event for packet in packets for event in client.receive(granted(packet))] == []


def test_a_subscription_refused_in_a_new_session_ends() -> None:
    client = ClientHarness()
    client.begin()
    subscription_id = client.subscribe("a")
    client.reconnect(present=False)
    client.sent()
    (event,) = client.receive(Suback(2, (Code.QUOTA_EXCEEDED,)))
    assert isinstance(event, SubscriptionRefused)
    assert (event.subscription_id, event.refused.name) == (subscription_id, "QUOTA_EXCEEDED")
    assert client.session.unsubscribe(subscription_id)[1] is not None


def test_an_unanswered_subscribe_is_resent_over_the_next_connection() -> None:
    client = ClientHarness()
    ticket = client.session.subscribe(5, SubscriptionRequest("a"))
    assert client.sent() == []
    client.begin()
    assert summary_of(client.sent()) == [("SUBSCRIBE", 1, False)]
    client.reconnect(present=True)
    (packet,) = client.sent()
    assert client.receive(granted(packet)) == [Done(ticket)]


def test_unsubscribing_waits_for_its_answer_but_not_while_disconnected() -> None:
    client = ClientHarness()
    client.begin()
    first, second = client.subscribe("a"), client.subscribe("b")
    ticket, _ = client.session.unsubscribe(first)
    (packet,) = client.sent()
    assert isinstance(packet, Unsubscribe)
    assert client.receive(Unsuback(packet.packet_id, (Code.SUCCESS,))) == [Done(ticket)]
    ticket, _ = client.session.unsubscribe(second)
    client.sent()
    assert client.lose() == [Done(ticket)]
    client.begin(present=True)
    assert [packet.filters for packet in client.sent() if isinstance(packet, Unsubscribe)] == [("b",)]


def test_a_pending_unsubscribe_is_not_sent_in_a_new_session() -> None:
    client = ClientHarness()
    client.begin()
    subscription_id = client.subscribe("a")
    client.lose()
    client.session.unsubscribe(subscription_id)
    client.begin(present=False)
    assert client.sent() == []


def test_a_second_subscription_to_a_filter_uses_the_service() -> None:
    client = ClientHarness()
    client.begin()
    client.subscribe("a/#", "ice")
    request = SubscriptionRequest("a/#", parse_query("fire"))
    subscription_id = client.session.subscription_id_for(request)
    ticket = client.session.subscribe(subscription_id, request)
    (packet,) = client.sent()
    assert isinstance(packet, Publish)
    assert packet.topic == "$milepost/subscribe"
    body = json.loads(packet.payload)
    assert (body["id"], body["owner"]) == (subscription_id, "car-1")
    assert parse_query(body["query"]) == parse_query("topic:a/# & fire")
    assert client.receive(granted(packet)) == [Done(ticket)]

    ticket, _ = client.session.unsubscribe(subscription_id)
    (packet,) = client.sent()
    assert isinstance(packet, Publish)
    assert (packet.topic, json.loads(packet.payload)) == ("$milepost/unsubscribe", {"id": subscription_id})
    assert client.receive(granted(packet)) == [Done(ticket)]


def test_a_freed_filter_is_subscribed_to_with_subscribe_again() -> None:
    client = ClientHarness()
    client.begin()
    first = client.subscribe("a")
    client.subscribe("a", "fire")
    client.session.unsubscribe(first)
    (packet,) = client.sent()
    assert isinstance(packet, Unsubscribe)
    client.receive(Unsuback(packet.packet_id, (Code.SUCCESS,)))
    client.session.subscribe(9, SubscriptionRequest("a"))
    assert [type(packet) for packet in client.sent()] == [Subscribe]


def test_a_missing_service_is_reported_as_no_milepost_edge() -> None:
    client = ClientHarness()
    client.begin()
    client.subscribe("a")
    client.session.subscribe(9, SubscriptionRequest("a", parse_query("fire")))
    client.sent()
    (done,) = client.receive(Acknowledge(PacketType.PUBACK, 2, Code.NO_MATCHING_SUBSCRIBERS))
    assert isinstance(done, Done)
    assert done.refused is not None
    assert done.refused.name == "NO_MILEPOST_EDGE"


def test_a_subscription_by_service_is_resent_in_a_new_session_only() -> None:
    client = ClientHarness()
    client.begin()
    client.subscribe("a")
    client.subscribe("a", "fire")
    client.reconnect(present=True)
    assert client.sent() == []
    client.reconnect(present=False)
    client.publish(1)
    packets = client.sent()
    assert [name for name, _, _ in summary_of(packets)] == ["SUBSCRIBE", "PUBLISH", "PUBLISH"]
    assert [packet.topic for packet in packets if isinstance(packet, Publish)] == ["$milepost/subscribe", "a"]


def test_subscription_ids_are_derived_from_the_content_and_are_distinct() -> None:
    request = SubscriptionRequest("a", parse_query("ice"))
    first, second = ClientHarness(), ClientHarness()
    assert first.session.subscription_id_for(request) == second.session.subscription_id_for(request)
    assert first.session.subscription_id_for(request) != first.session.subscription_id_for(SubscriptionRequest("a"))
    subscription_id = first.session.subscription_id_for(request)
    first.session.subscribe(subscription_id, request)
    assert first.session.subscription_id_for(request) == subscription_id + 1


def test_the_number_of_subscriptions_is_limited() -> None:
    client = ClientHarness()
    for number in range(SUBSCRIPTIONS_MAX):
        client.session.subscribe(number + 1, SubscriptionRequest(f"a/{number}"))
    with pytest.raises(RefusedByEdge, match="SUBSCRIPTIONS_FULL"):
        client.session.subscription_id_for(SubscriptionRequest("b"))


@pytest.mark.parametrize("share", ["", "a/b", "#"])
def test_an_invalid_share_name_is_refused(share: str) -> None:
    with pytest.raises(Malformed):
        SubscriptionRequest("a", share=share)


def test_a_shared_subscription_uses_the_mqtt_filter_prefix() -> None:
    client = ClientHarness()
    client.begin()
    client.session.subscribe(1, SubscriptionRequest("a/#", share="crew"))
    (packet,) = client.sent()
    assert isinstance(packet, Subscribe)
    assert packet.requests[0].filter == "$share/crew/a/#"
