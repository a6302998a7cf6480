"""Requests in JSON below `$milepost/` are carried out and answered, for clients of either version."""

import json
from dataclasses import replace

import pytest

from edge_in_memory import SMALL, Client, EdgeInMemory
from milepost.broker.admission import AdmissionRules
from milepost.model.reasons import Reason
from milepost.vetting import AccessAction, AccessList, AccessRule
from milepost.wire.mqtt import Acknowledge, Code, PacketType, Properties, Publish, Version

HERE = {"latitude": 40.0, "longitude": -111.0}


def ask(client: Client, service: str, request: object) -> dict[str, object] | None:
    """Send a request and return the reply on `$milepost/reply`; the acknowledgement must agree with it."""
    if (
        "$milepost/reply"
        not in client.edge.session(str(client.connection.identity and client.connection.identity.client_id)).subscriptions
    ):
        client.subscribe("$milepost/reply")
    client.publish(f"$milepost/{service}", json.dumps(request).encode(), 1)
    packets = client.take()
    replies = [json.loads(one.payload) for one in packets if isinstance(one, Publish)]
    codes = [one.code for one in packets if isinstance(one, Acknowledge)]
    assert [code < Code.UNSPECIFIED_ERROR for code in codes] == [reply["ok"] for reply in replies] or not replies
    return replies[0] if replies else None


@pytest.mark.parametrize("version", list(Version))
def test_a_subscription_by_query_and_area_is_served_until_it_is_ended(version: Version) -> None:
    edge = EdgeInMemory()
    receiver, sender = edge.connect("t", version), edge.connect("s")
    area = {"type": "Point", "coordinates": [-111.0, 40.0], "radius_m": 1000}
    reply = ask(receiver, "subscribe", {"id": 5, "query": "ice & !cleared", "area": area})
    assert reply == {"about": "subscribe", "id": 5, "ok": True}, reply
    tags = (("milepost-tag", "ice"),)
    sender.publish("road", b"far", properties=Properties(user=(*tags, ("milepost-place", "50,50"))))
    sender.publish("road", b"near", properties=Properties(user=(*tags, ("milepost-place", "40.001,-111"))))
    (message,) = receiver.messages()
    assert message.payload == b"near"
    assert message.properties.subscription_ids == ((5,) if version is Version.V5 else ())
    reply = ask(receiver, "unsubscribe", {"id": 5})
    assert reply is not None
    assert reply["ok"]
    sender.publish("road", b"near", properties=Properties(user=(*tags, ("milepost-place", "40.001,-111"))))
    assert receiver.bodies() == []


def test_a_subscription_whose_id_exceeds_mqtt_s_range_is_served_without_it() -> None:
    edge = EdgeInMemory()
    receiver, sender = edge.connect("t"), edge.connect("s")
    ask(receiver, "subscribe", {"id": 2**32 - 1, "query": "ice"})
    sender.publish("t", b"x", properties=Properties(user=(("milepost-tag", "ice"),)))
    (message,) = receiver.messages()
    assert (message.payload, message.properties.subscription_ids) == (b"x", ())


def test_a_report_gets_no_reply_and_decides_which_endpoints_are_in_an_area() -> None:
    edge = EdgeInMemory()
    here, sender = edge.connect("here"), edge.connect("s")
    assert ask(here, "report", {"place": HERE}) is None
    area = {"type": "Point", "coordinates": [-111.0, 40.0], "radius_m": 1000}
    reply = ask(sender, "publish", {"topic": "t", "address": {"to": "area", "area": area}, "body": "aGk="})
    assert reply is not None
    assert reply["ok"], reply
    (message,) = here.messages()
    assert message.topic == "t"
    assert edge.broker.counts.reports == 1


def test_a_request_at_qos_2_is_executed_once_however_often_it_is_sent() -> None:
    edge = EdgeInMemory()
    client = edge.connect("a")
    client.subscribe("$milepost/reply", subscription_id=3)
    number = client.publish("$milepost/subscribe", b'{"id":1,"query":"ice"}', 2)
    assert [type(one).__name__ for one in client.take()] == ["Acknowledge", "Publish"]
    again = client.request(Publish("$milepost/subscribe", b'{"id":1,"query":"ice"}', 2, False, True, number))
    assert again == [Acknowledge(PacketType.PUBREC, number or 0)]
    assert client.acknowledge(PacketType.PUBREL, number) == [Acknowledge(PacketType.PUBCOMP, number or 0)]


@pytest.mark.parametrize(
    ("service", "request_text", "reason"),
    [
        ("subscribe", b"{", Reason.MALFORMED),
        ("subscribe", b'{"id":1,"query":"("}', Reason.QUERY_SYNTAX),
        ("unsubscribe", b'{"id":9}', Reason.FIELD_RANGE),
        ("publish", b'{"topic":"$milepost/report"}', Reason.TOPIC_RESERVED),
        ("nothing", b"{}", Reason.TOPIC_RESERVED),
    ],
)
def test_an_invalid_request_is_refused_and_counted_once(service: str, request_text: bytes, reason: Reason) -> None:
    edge = EdgeInMemory()
    client = edge.connect("a")
    client.publish(f"$milepost/{service}", request_text, 1)
    acknowledged = [one for one in client.take() if isinstance(one, Acknowledge)]
    assert [one.code >= Code.UNSPECIFIED_ERROR for one in acknowledged] == [True]
    assert edge.broker.counts.refused == {reason: 1}


def test_a_reply_reaches_only_the_requesting_client() -> None:
    edge = EdgeInMemory()
    nosy, client = edge.connect("nosy"), edge.connect("a")
    nosy.subscribe("#", "$milepost/reply")
    ask(client, "subscribe", {"id": 1, "query": "ice"})
    assert nosy.bodies() == []


def test_a_message_that_the_broker_refuses_is_counted_once() -> None:
    edge = EdgeInMemory(limits=replace(SMALL, retained_max=1))
    client = edge.connect("a")
    client.publish("x", b"1", retain=True)
    client.publish("$milepost/publish", b'{"topic":"y","body":"aGk="}', 1, retain=True)
    assert edge.broker.counts.refused == {Reason.RETAINED_FULL: 1}


def test_t6_a_message_is_unpublished_by_its_id_for_all_its_receivers() -> None:
    edge = EdgeInMemory()
    here, sender = edge.connect("here"), edge.connect("s")
    ask(here, "report", {"place": HERE})
    area = {"type": "Point", "coordinates": [-111.0, 40.0], "radius_m": 1000}
    said = {"id": "7", "topic": "Alert", "address": {"to": "area", "area": area}, "body": "aWNl"}
    assert ask(sender, "publish", said) == {"about": "publish", "id": "7", "ok": True}
    ask(sender, "publish", {"topic": "Unpublish", "fields": {"id": "7"}, "body": "b3Zlcg=="})
    assert here.bodies() == [b"ice", b"over"]


def test_fields_of_the_payload_are_part_of_the_message() -> None:
    edge = EdgeInMemory()
    receiver = edge.connect("t", expiry_s=100)
    receiver.subscribe("road", qos=1)
    ask(edge.connect("s"), "publish", {"topic": "road", "fields": {"depth_cm": 12.5}})
    (delivery,) = edge.session("t").in_flight.values()
    assert dict(delivery.publication.fields) == {"depth_cm": 12.5}


def test_a_distance_rule_uses_the_last_report_for_properties_and_json() -> None:
    edge = EdgeInMemory(rules=AdmissionRules(AccessList([AccessRule(True, AccessAction.PUBLISH, "Collision", within_m=500.0)])))
    car = edge.connect("car")

    def said(place: str) -> list[Code]:
        """Return the codes for a collision at *place*, published with properties and as JSON."""
        latitude, longitude = map(float, place.split(","))
        body = json.dumps({"topic": "Collision", "place": {"latitude": latitude, "longitude": longitude}}).encode()
        car.publish("Collision", b"", 1, properties=Properties(user=(("milepost-place", place),)))
        car.publish("$milepost/publish", body, 1)
        return [packet.code for packet in car.take() if isinstance(packet, Acknowledge)]

    assert said("40,-111") == [Code.NOT_AUTHORIZED] * 2  # its position is unknown
    ask(car, "report", {"place": HERE})
    car.take()
    assert said("40,-111") == [Code.NOT_AUTHORIZED] * 2  # a first position gives no rights
    car.publish("Collision", b"", 1)  # also where the edge fills it in
    assert [packet.code for packet in car.take() if isinstance(packet, Acknowledge)] == [Code.NOT_AUTHORIZED]
    edge.pass_time(5.0)
    ask(car, "report", {"place": HERE})
    car.take()
    assert all(code < Code.UNSPECIFIED_ERROR for code in said("40.004,-111"))
    assert said("40.006,-111") == [Code.NOT_AUTHORIZED] * 2
    assert edge.broker.counts.refused == {Reason.PLACE_NOT_SEEN: 4, Reason.POSITION_TOO_NEW: 3}
    car.publish("Collision", b"", 1)  # at its own position
    assert [packet.code < Code.UNSPECIFIED_ERROR for packet in car.take() if isinstance(packet, Acknowledge)] == [True]
