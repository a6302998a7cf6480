"""Milepost's services over MQTT: requests in JSON and the replies to them."""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from milepost.model.areas import Around
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.queries import And, OnTopic, parse_query
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.tags import Tag
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.wire.requests import (
    Service,
    message_from_json,
    reply_to_json,
    report_from_json,
    service_at,
    subscription_from_json,
    unsubscription_from_json,
)

NOON = Instant(1_893_499_200 * SECOND_NS)
TRUCK = EndpointId("truck-7")
PLACE = Place(40.7608, -111.891)
PLACE_JSON = {"latitude": 40.7608, "longitude": -111.891}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "mqtt.md"


def fault_of(make: Callable[[], object]) -> Malformed:
    with pytest.raises(Malformed) as caught:
        make()
    return caught.value


def test_a_report_in_json_needs_a_place_alone() -> None:
    assert report_from_json(orjson.dumps({"place": PLACE_JSON}), TRUCK, NOON) == Report(TRUCK, PLACE, NOON)
    whole = {"type": "report", "endpoint": "truck-7", "place": PLACE_JSON, "seen_at": "2030-01-01T11:00:00Z", "speed_mps": 3}
    expected = Report(TRUCK, PLACE, Instant(NOON - 3600 * SECOND_NS), None, 3.0)
    assert report_from_json(orjson.dumps(whole), TRUCK, NOON) == expected


def test_a_subscription_in_json_needs_query_and_id() -> None:
    found = subscription_from_json(b'{"query": "topic:road/# & ice", "id": 7, "time_window": "since now"}', TRUCK, NOON)
    assert found == Subscription(TRUCK, parse_query("topic:road/# & ice"), time_window=TimeWindow(NOON), id=SubscriptionId(7))
    whole = {
        "type": "subscription", "owner": "truck-7", "query": "topic:a", "id": 1, "qos": 2, "share": "g",
        "area": {"type": "Around", "radius_m": 5},
    }  # fmt: skip
    expected = Subscription(TRUCK, OnTopic("a"), Around(5.0), ALWAYS, SubscriptionId(1), 2, "g")
    assert subscription_from_json(orjson.dumps(whole), TRUCK, NOON) == expected


@pytest.mark.parametrize("query", ["ice", "!ice", "topic:a | ice"])
def test_a_formula_without_topic_asks_for_no_topic_of_the_system(query: str) -> None:
    found = subscription_from_json(orjson.dumps({"query": query, "id": 7}), TRUCK, NOON)
    assert found.query == And((OnTopic("#"), parse_query(query)))


def test_a_message_in_json_needs_a_topic_alone() -> None:
    assert message_from_json(b'{"topic": "a"}', TRUCK, NOON, MessageId(2**63)) == Message(MessageId(2**63), TRUCK, "a", NOON)
    whole = {"type": "message", "source": "truck-7", "id": "5", "topic": "a", "seen_at": "2030-01-01T12:00:01Z", "tags": ["ice"]}
    expected = Message(MessageId(5), TRUCK, "a", Instant(NOON + SECOND_NS), frozenset([Tag("ice")]))
    assert message_from_json(orjson.dumps(whole), TRUCK, NOON, MessageId(1)) == expected


def test_an_unsubscription_names_the_subscription() -> None:
    assert unsubscription_from_json(b'{"id": 7}') == SubscriptionId(7)


def by_service(service: Service, payload: bytes) -> object:
    match service:
        case Service.REPORT:
            return report_from_json(payload, TRUCK, NOON)
        case Service.SUBSCRIBE:
            return subscription_from_json(payload, TRUCK, NOON)
        case Service.UNSUBSCRIBE:
            return unsubscription_from_json(payload)
        case Service.PUBLISH:
            return message_from_json(payload, TRUCK, NOON, MessageId(1))


@pytest.mark.parametrize("service", Service)
@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", Reason.MALFORMED),
        (b"{", Reason.MALFORMED),
        (b"[]", Reason.FIELD_TYPE),
        (b"7", Reason.FIELD_TYPE),
        (b"{}", Reason.FIELD_MISSING),
        (b'{"nonsense": 1}', Reason.FIELD_UNKNOWN),
        (b" " * 4_000_001, Reason.MESSAGE_TOO_LARGE),
    ],
)
def test_a_request_that_is_none_is_refused(service: Service, payload: bytes, reason: Reason) -> None:
    assert fault_of(lambda: by_service(service, payload)).reason is reason


@pytest.mark.parametrize(
    ("service", "request_", "reason", "detail"),
    [
        (Service.REPORT, {"place": PLACE_JSON, "endpoint": "bus-9"}, Reason.FIELD_RANGE, "report.endpoint: 'bus-9' is not the"),
        (Service.REPORT, {"place": PLACE_JSON, "type": "message"}, Reason.FIELD_RANGE, "report.type is 'message'"),
        (Service.SUBSCRIBE, {"query": "a", "id": 7, "owner": "bus-9"}, Reason.FIELD_RANGE, "subscription.owner: 'bus-9' is not"),
        (Service.SUBSCRIBE, {"query": "a"}, Reason.FIELD_MISSING, "subscription.id is missing"),
        (Service.SUBSCRIBE, {"query": "a", "id": 0}, Reason.FIELD_RANGE, "subscription.id is not >= 1"),
        (Service.SUBSCRIBE, {"query": "a & !a", "id": 7}, Reason.QUERY_NEVER_TRUE, ""),
        (Service.UNSUBSCRIBE, {"id": 2**32}, Reason.FIELD_RANGE, "unsubscription.id is not <= 4294967295"),
        (Service.UNSUBSCRIBE, {"id": "7"}, Reason.FIELD_TYPE, "unsubscription.id is text"),
        (Service.PUBLISH, {"topic": "a", "source": "bus-9"}, Reason.FIELD_RANGE, "message.source: 'bus-9' is not the sender"),
        (Service.PUBLISH, {"topic": "a", "id": 5}, Reason.FIELD_TYPE, "message.id is not a text"),
    ],
)
def test_a_request_that_may_not_be_is_refused(service: Service, request_: object, reason: Reason, detail: str) -> None:
    fault = fault_of(lambda: by_service(service, orjson.dumps(request_)))
    assert fault.reason is reason
    assert fault.detail.startswith(detail)


def test_services_are_found_by_their_topic() -> None:
    assert [service_at(f"$milepost/{name}") for name in ("report", "subscribe", "unsubscribe", "publish")] == list(Service)
    fault = fault_of(lambda: service_at("$milepost/reports"))
    assert fault.reason is Reason.TOPIC_RESERVED
    assert fault.detail.endswith("did you mean $milepost/report?")
    assert fault_of(lambda: service_at("x")).detail.endswith(
        "known are " + ", ".join(f"$milepost/{one.value}" for one in Service)
    )


def test_a_reply_says_what_it_is_about_and_how_it_went() -> None:
    assert reply_to_json(Service.SUBSCRIBE, 7) == b'{"about":"subscribe","id":7,"ok":true}'
    assert reply_to_json(Service.REPORT) == b'{"about":"report","ok":true}'
    assert reply_to_json(Service.PUBLISH, 2**64 - 1) == b'{"about":"publish","id":"18446744073709551615","ok":true}'
    page = PAGE.read_bytes()
    assert reply_to_json(Service.SUBSCRIBE, 7) in page
    assert reply_to_json(Service.REPORT, None, Refused(Reason.FIELD_MISSING, "report.place is missing")) in page
    refused = orjson.loads(reply_to_json(Service.SUBSCRIBE, 7, Refused(Reason.QUERY_SYNTAX, "a \ud800")))
    assert refused == {
        "about": "subscribe",
        "id": 7,
        "ok": False,
        "refused": {"number": 140, "name": "QUERY_SYNTAX", "detail": "a ?", "advice": Reason.QUERY_SYNTAX.advice},
    }
