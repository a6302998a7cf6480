"""MqttSubscriptions over connections and sessions that come and go."""

import json

import pytest

from milepost.client.edge import subscription_request
from milepost.client.errors import RefusedByEdge
from milepost.client.events import Done, SubscriptionRefused
from milepost.client.subscriptions import SUBSCRIPTIONS_MAX
from milepost.client.values import SubscriptionRequest
from milepost.model import Around, Malformed
from milepost.model.queries import parse_query
from milepost.wire.mqtt import Acknowledge, Code, Kind, Properties, Publish, Suback, Subscribe, Unsuback, Unsubscribe
from unit.client.talk import Talk, granted, numbers_of


def test_a_subscription_is_asked_for_with_its_words_and_label_and_granted() -> None:
    talk = Talk()
    talk.begin()
    request = SubscriptionRequest("hazard/#", parse_query("collision & !cleared"), Around(2_000), qos=2)
    subscription_id = talk.session.subscription_id_for(request)
    ticket = talk.session.subscribe(subscription_id, request)
    (packet,) = talk.said()
    assert isinstance(packet, Subscribe)
    assert (packet.requests[0].filter, packet.requests[0].qos) == ("hazard/#", 2)
    assert packet.properties.subscription_ids == (subscription_id,)
    assert packet.properties.user == (("milepost-query", "collision & !cleared"), ("milepost-area", "around 2000.0"))
    assert talk.hear(granted(packet)) == [Done(ticket)]


def test_a_phrase_is_said_once_and_what_it_meant_is_said_afterwards() -> None:
    talk = Talk()
    talk.begin()
    request = subscription_request("a", query=None, area=None, time_window="last 10 minutes", qos=1, share=None)
    talk.session.subscribe(talk.session.subscription_id_for(request), request)
    (first,) = talk.said()
    talk.hear(granted(first))
    talk.again(present=False)
    (second,) = talk.said()
    assert isinstance(first, Subscribe)
    assert isinstance(second, Subscribe)
    assert first.properties.user == (("milepost-time-window", "last 10 minutes"),)
    ((name, interval),) = second.properties.user
    assert name == "milepost-time-window"
    assert "Z/2" in interval


def test_a_refusal_is_told_and_the_filter_is_free_again() -> None:
    talk = Talk()
    talk.begin()
    ticket = talk.session.subscribe(1, SubscriptionRequest("a"))
    talk.said()
    no = Properties(reason_string="220 NOT_ALLOWED: a. Ask.")
    (done,) = talk.hear(Suback(1, (Code.NOT_AUTHORIZED,), no))
    assert isinstance(done, Done)
    assert done.key == ticket
    assert done.refused is not None
    assert (done.refused.number, done.refused.name) == (220, "NOT_ALLOWED")
    talk.subscribe("a")


def test_the_session_that_is_there_is_not_asked_again_and_a_new_one_is() -> None:
    talk = Talk()
    talk.begin()
    talk.subscribe("a")
    talk.subscribe("b")
    talk.again(present=True)
    assert talk.said() == []
    talk.again(present=False)
    packets = talk.said()
    assert [packet.requests[0].filter for packet in packets if isinstance(packet, Subscribe)] == ["a", "b"]
    assert [event for packet in packets for event in talk.hear(granted(packet))] == []


def test_a_subscription_that_a_new_session_does_not_get_is_ended() -> None:
    talk = Talk()
    talk.begin()
    subscription_id = talk.subscribe("a")
    talk.again(present=False)
    talk.said()
    (event,) = talk.hear(Suback(2, (Code.QUOTA_EXCEEDED,)))
    assert isinstance(event, SubscriptionRefused)
    assert (event.subscription_id, event.refused.name) == (subscription_id, "QUOTA_EXCEEDED")
    assert talk.session.unsubscribe(subscription_id)[1] is not None


def test_what_was_asked_and_not_answered_is_asked_over_the_next_connection() -> None:
    talk = Talk()
    ticket = talk.session.subscribe(5, SubscriptionRequest("a"))
    assert talk.said() == []
    talk.begin()
    assert numbers_of(talk.said()) == [("SUBSCRIBE", 1, False)]
    talk.again(present=True)
    (packet,) = talk.said()
    assert talk.hear(granted(packet)) == [Done(ticket)]


def test_an_end_is_answered_and_waits_for_no_server_that_is_away() -> None:
    talk = Talk()
    talk.begin()
    first, second = talk.subscribe("a"), talk.subscribe("b")
    ticket, _ = talk.session.unsubscribe(first)
    (packet,) = talk.said()
    assert isinstance(packet, Unsubscribe)
    assert talk.hear(Unsuback(packet.number, (Code.SUCCESS,))) == [Done(ticket)]
    ticket, _ = talk.session.unsubscribe(second)
    talk.said()
    assert talk.lose() == [Done(ticket)]
    talk.begin(present=True)
    assert [packet.filters for packet in talk.said() if isinstance(packet, Unsubscribe)] == [("b",)]


def test_a_new_session_is_not_told_of_what_is_unwanted() -> None:
    talk = Talk()
    talk.begin()
    subscription_id = talk.subscribe("a")
    talk.lose()
    talk.session.unsubscribe(subscription_id)
    talk.begin(present=False)
    assert talk.said() == []


def test_a_second_subscription_to_a_filter_is_asked_of_the_service() -> None:
    talk = Talk()
    talk.begin()
    talk.subscribe("a/#", "ice")
    request = SubscriptionRequest("a/#", parse_query("fire"))
    subscription_id = talk.session.subscription_id_for(request)
    ticket = talk.session.subscribe(subscription_id, request)
    (packet,) = talk.said()
    assert isinstance(packet, Publish)
    assert packet.topic == "$milepost/subscribe"
    asked = json.loads(packet.payload)
    assert (asked["id"], asked["owner"]) == (subscription_id, "car-1")
    assert parse_query(asked["query"]) == parse_query("topic:a/# & fire")
    assert talk.hear(granted(packet)) == [Done(ticket)]

    ticket, _ = talk.session.unsubscribe(subscription_id)
    (packet,) = talk.said()
    assert isinstance(packet, Publish)
    assert (packet.topic, json.loads(packet.payload)) == ("$milepost/unsubscribe", {"id": subscription_id})
    assert talk.hear(granted(packet)) == [Done(ticket)]


def test_a_filter_that_is_free_again_is_subscribed_to_as_any_other() -> None:
    talk = Talk()
    talk.begin()
    first = talk.subscribe("a")
    talk.subscribe("a", "fire")
    talk.session.unsubscribe(first)
    (packet,) = talk.said()
    assert isinstance(packet, Unsubscribe)
    talk.hear(Unsuback(packet.number, (Code.SUCCESS,)))
    talk.session.subscribe(9, SubscriptionRequest("a"))
    assert [type(packet) for packet in talk.said()] == [Subscribe]


def test_a_server_without_the_service_is_named_as_the_cause() -> None:
    talk = Talk()
    talk.begin()
    talk.subscribe("a")
    talk.session.subscribe(9, SubscriptionRequest("a", parse_query("fire")))
    talk.said()
    (done,) = talk.hear(Acknowledge(Kind.PUBACK, 2, Code.NO_MATCHING_SUBSCRIBERS))
    assert isinstance(done, Done)
    assert done.refused is not None
    assert done.refused.name == "NO_MILEPOST_EDGE"


def test_one_asked_of_the_service_is_asked_again_in_a_new_session_only() -> None:
    talk = Talk()
    talk.begin()
    talk.subscribe("a")
    talk.subscribe("a", "fire")
    talk.again(present=True)
    assert talk.said() == []
    talk.again(present=False)
    talk.publish(1)
    packets = talk.said()
    assert [name for name, _, _ in numbers_of(packets)] == ["SUBSCRIBE", "PUBLISH", "PUBLISH"]
    assert [packet.topic for packet in packets if isinstance(packet, Publish)] == ["$milepost/subscribe", "a"]


def test_labels_come_from_what_is_asked_for_and_differ() -> None:
    asked = SubscriptionRequest("a", parse_query("ice"))
    first, second = Talk(), Talk()
    assert first.session.subscription_id_for(asked) == second.session.subscription_id_for(asked)
    assert first.session.subscription_id_for(asked) != first.session.subscription_id_for(SubscriptionRequest("a"))
    subscription_id = first.session.subscription_id_for(asked)
    first.session.subscribe(subscription_id, asked)
    assert first.session.subscription_id_for(asked) == subscription_id + 1


def test_there_is_a_limit() -> None:
    talk = Talk()
    for number in range(SUBSCRIPTIONS_MAX):
        talk.session.subscribe(number + 1, SubscriptionRequest(f"a/{number}"))
    with pytest.raises(RefusedByEdge, match="SUBSCRIPTIONS_FULL"):
        talk.session.subscription_id_for(SubscriptionRequest("b"))


@pytest.mark.parametrize("share", ["", "a/b", "#"])
def test_a_group_has_a_name_of_its_own(share: str) -> None:
    with pytest.raises(Malformed):
        SubscriptionRequest("a", share=share)


def test_a_shared_subscription_is_written_as_mqtt_has_it() -> None:
    talk = Talk()
    talk.begin()
    talk.session.subscribe(1, SubscriptionRequest("a/#", share="crew"))
    (packet,) = talk.said()
    assert isinstance(packet, Subscribe)
    assert packet.requests[0].filter == "$share/crew/a/#"
