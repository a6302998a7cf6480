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
    RequestKind,
    message_from_json,
    reply_to_json,
    report_from_json,
    request_kind_at,
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


def test_a_report_in_json_needs_only_a_place() -> None:
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
def test_a_query_without_a_topic_does_not_match_system_topics(query: str) -> None:
    found = subscription_from_json(orjson.dumps({"query": query, "id": 7}), TRUCK, NOON)
    assert found.query == And((OnTopic("#"), parse_query(query)))


def test_a_message_in_json_needs_only_a_topic() -> None:
    assert message_from_json(b'{"topic": "a"}', TRUCK, NOON, MessageId(2**63)) == Message(MessageId(2**63), TRUCK, "a", NOON)
    whole = {"type": "message", "source": "truck-7", "id": "5", "topic": "a", "seen_at": "2030-01-01T12:00:01Z", "tags": ["ice"]}
    expected = Message(MessageId(5), TRUCK, "a", Instant(NOON + SECOND_NS), frozenset([Tag("ice")]))
    assert message_from_json(orjson.dumps(whole), TRUCK, NOON, MessageId(1)) == expected


def test_an_unsubscription_names_the_subscription() -> None:
    assert unsubscription_from_json(b'{"id": 7}') == SubscriptionId(7)


def by_service(service: RequestKind, payload: bytes) -> object:
    match service:
        case RequestKind.REPORT:
            return report_from_json(payload, TRUCK, NOON)
        case RequestKind.SUBSCRIBE:
            return subscription_from_json(payload, TRUCK, NOON)
        case RequestKind.UNSUBSCRIBE:
            return unsubscription_from_json(payload)
        case RequestKind.PUBLISH:
            return message_from_json(payload, TRUCK, NOON, MessageId(1))


@pytest.mark.parametrize("service", RequestKind)
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
def test_a_malformed_request_is_refused(service: RequestKind, payload: bytes, reason: Reason) -> None:
    assert fault_of(lambda: by_service(service, payload)).reason is reason


@pytest.mark.parametrize(
    ("service", "request_", "reason", "detail"),
    [
        (
            RequestKind.REPORT,
            {"place": PLACE_JSON, "endpoint": "bus-9"},
            Reason.FIELD_RANGE,
            "report.endpoint: 'bus-9' is not the",
        ),
        (RequestKind.REPORT, {"place": PLACE_JSON, "type": "message"}, Reason.FIELD_RANGE, "report.type is 'message'"),
        (
            RequestKind.SUBSCRIBE,
            {"query": "a", "id": 7, "owner": "bus-9"},
            Reason.FIELD_RANGE,
            "subscription.owner: 'bus-9' is not",
        ),
        (RequestKind.SUBSCRIBE, {"query": "a"}, Reason.FIELD_MISSING, "subscription.id is missing"),
        (RequestKind.SUBSCRIBE, {"query": "a", "id": 0}, Reason.FIELD_RANGE, "subscription.id is not >= 1"),
        (RequestKind.SUBSCRIBE, {"query": "a & !a", "id": 7}, Reason.QUERY_NEVER_TRUE, ""),
        (RequestKind.UNSUBSCRIBE, {"id": 2**32}, Reason.FIELD_RANGE, "unsubscription.id is not <= 4294967295"),
        (RequestKind.UNSUBSCRIBE, {"id": "7"}, Reason.FIELD_TYPE, "unsubscription.id is text"),
        (RequestKind.PUBLISH, {"topic": "a", "source": "bus-9"}, Reason.FIELD_RANGE, "message.source: 'bus-9' is not the sender"),
        (RequestKind.PUBLISH, {"topic": "a", "id": 5}, Reason.FIELD_TYPE, "message.id is not a text"),
    ],
)
def test_an_invalid_request_is_refused(service: RequestKind, request_: object, reason: Reason, detail: str) -> None:
    fault = fault_of(lambda: by_service(service, orjson.dumps(request_)))
    assert fault.reason is reason
    assert fault.detail.startswith(detail)


def test_kinds_of_requests_are_found_by_their_topic() -> None:
    assert [request_kind_at(f"$milepost/{name}") for name in ("report", "subscribe", "unsubscribe", "publish")] == list(
        RequestKind
    )
    fault = fault_of(lambda: request_kind_at("$milepost/reports"))
    assert fault.reason is Reason.TOPIC_RESERVED
    assert fault.detail.endswith("did you mean $milepost/report?")
    assert fault_of(lambda: request_kind_at("x")).detail.endswith(
        "known request topics: " + ", ".join(f"$milepost/{one.value}" for one in RequestKind)
    )


def test_a_reply_has_the_kind_of_request_and_the_outcome() -> None:
    assert reply_to_json(RequestKind.SUBSCRIBE, 7) == b'{"about":"subscribe","id":7,"ok":true}'
    assert reply_to_json(RequestKind.REPORT) == b'{"about":"report","ok":true}'
    assert reply_to_json(RequestKind.PUBLISH, 2**64 - 1) == b'{"about":"publish","id":"18446744073709551615","ok":true}'
    page = PAGE.read_bytes()
    assert reply_to_json(RequestKind.SUBSCRIBE, 7) in page
    assert reply_to_json(RequestKind.REPORT, None, Refused(Reason.FIELD_MISSING, "report.place is missing")) in page
    refused = orjson.loads(reply_to_json(RequestKind.SUBSCRIBE, 7, Refused(Reason.QUERY_SYNTAX, "a \ud800")))
    assert refused == {
        "about": "subscribe",
        "id": 7,
        "ok": False,
        "refused": {"number": 140, "name": "QUERY_SYNTAX", "detail": "a ?", "advice": Reason.QUERY_SYNTAX.advice},
    }
