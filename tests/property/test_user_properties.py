"""Milepost's user properties: those sent to receivers decode to the same message, and any text is handled."""

from collections.abc import Callable

import orjson
from hypothesis import event, given
from hypothesis import strategies as st

from milepost.model.areas import Area, Around
from milepost.model.endpoints import EndpointId, maybe_endpoint
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import And, OnTopic, Query, holds, normal_form
from milepost.model.reasons import Malformed
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.time_windows import TimeWindow
from milepost.model.topics import filter_matches
from milepost.wire.area_text import area_to_text, place_to_text
from milepost.wire.json_form import to_json
from milepost.wire.requests import message_from_json, report_from_json, subscription_from_json, unsubscription_from_json
from milepost.wire.times import time_window_to_text
from milepost.wire.user_properties import (
    MESSAGE_NAMES,
    SUBSCRIPTION_NAMES,
    message_to_properties,
    parse_message_properties,
    report_from_properties,
    subscription_from_properties,
    without_system_topics,
)
from strategies import (
    areas,
    arounds,
    filters,
    instants,
    messages,
    places,
    queries,
    reports,
    shares,
    subscriptions,
    time_windows,
    topics,
)

NOW = Instant(1_893_499_200 * SECOND_NS)
TRUCK = EndpointId("truck-7")

names = st.sampled_from([*MESSAGE_NAMES, *SUBSCRIPTION_NAMES, "colour", "milepost-x"])
values = st.text(max_size=30) | st.sampled_from(
    [
        "ice",
        "1,2",
        "1,2,3,4",
        "everyone",
        "endpoint:x",
        "area:circle 1,2 3",
        "circle 1,2 3",
        "around 5",
        "now",
        "last hour",
        "safety",
    ]
)
pairs = st.lists(st.tuples(names, values), max_size=4).map(tuple)


@given(messages())
def test_the_properties_sent_to_a_receiver_decode_to_the_same_message(message: Message) -> None:
    properties = parse_message_properties(message_to_properties(message), sender=message.source, now=NOW)
    assert properties is not None
    priority = Priority.CONVENIENCE if properties.priority is None else properties.priority
    assert (properties.tags, properties.place, priority) == (message.tags, message.place, message.priority)
    assert properties.address == message.address
    assert properties.seen_at == message.seen_at
    assert (FOREVER if properties.valid_until is None else properties.valid_until) == message.valid_until
    assert properties.report is None
    assert properties.id == message.id


@given(reports)
def test_a_report_survives_encoding_and_decoding(report: Report) -> None:
    motion = [] if report.heading_deg is None else [report.heading_deg]
    motion += [] if report.speed_mps is None or not motion else [report.speed_mps]
    text = ",".join([place_to_text(report.place), *map(repr, motion)])
    expected = Report(report.endpoint, report.place, report.seen_at, *motion)
    assert report_from_properties((("milepost-report", text),), sender=report.endpoint, now=report.seen_at) == expected


@given(filters, queries, st.none() | areas | arounds, time_windows(), shares)
def test_a_subscription_survives_encoding_and_decoding(
    topic_filter: str, query: Query, area: Area | Around | None, time_window: TimeWindow, share: str | None
) -> None:
    pairs = [("milepost-query", str(query)), ("milepost-time-window", time_window_to_text(time_window))]
    if area is not None:
        pairs.append(("milepost-area", f"around {area.radius_m!r}" if isinstance(area, Around) else area_to_text(area)))
    text = topic_filter if share is None else f"$share/{share}/{topic_filter}"
    found = subscription_from_properties(text, tuple(pairs), owner=TRUCK, qos=2, number=SubscriptionId(3), now=NOW)
    assert found == Subscription(TRUCK, And((OnTopic(topic_filter), query)), area, time_window, SubscriptionId(3), 2, share)


@given(places, instants)
def test_a_place_survives_encoding_and_decoding(place: Place, now: Instant) -> None:
    properties = parse_message_properties((("milepost-place", place_to_text(place)),), sender=TRUCK, now=now)
    assert properties is not None
    assert properties.place == place


@given(messages(), reports, subscriptions)
def test_the_whole_json_form_is_a_request(message: Message, report: Report, subscription: Subscription) -> None:
    sender = maybe_endpoint(message.source)
    if sender is not None:
        assert message_from_json(to_json(message), sender, NOW, MessageId(1)) == message
    assert report_from_json(to_json(report), report.endpoint, NOW) == report
    try:
        found = subscription_from_json(to_json(subscription), subscription.owner, NOW)
    except Malformed as fault:
        event(fault.reason.name)
        return
    event("subscribed")
    assert found.id == subscription.id != 0
    assert (found.area, found.time_window, found.share) == (subscription.area, subscription.time_window, subscription.share)


@given(queries, topics, st.frozensets(st.sampled_from(["a", "é"])))
def test_a_query_restricted_to_ordinary_topics_is_otherwise_unchanged(query: Query, topic: str, tags: frozenset[str]) -> None:
    try:
        found = without_system_topics(query)
    except Malformed:
        return
    if not topic.startswith("$"):
        assert holds(found, topic, tags) is holds(query, topic, tags)
    elif holds(found, topic, tags):
        filters = [atom.filter for clause in normal_form(query) for atom in clause.required if isinstance(atom, OnTopic)]
        assert any(filter_matches(one, topic) for one in filters)


@given(pairs, st.sampled_from(["a", "$share/g/#"]) | st.text(max_size=8))
def test_any_properties_are_parsed_or_refused(user: tuple[tuple[str, str], ...], topic_filter: str) -> None:
    readers: list[Callable[[], object]] = [
        lambda: parse_message_properties(user, sender=TRUCK, now=NOW),
        lambda: subscription_from_properties(topic_filter, user, owner=TRUCK, qos=1, number=SubscriptionId(1), now=NOW),
        lambda: report_from_properties(user, sender=TRUCK, now=NOW),
    ]
    for read in readers:
        try:
            read()
            event("understood")
        except Malformed as fault:
            event(fault.reason.name)


@given(st.binary(max_size=40) | st.recursive(st.none() | st.integers() | st.text(max_size=5), st.lists).map(repr).map(str.encode))
def test_any_bytes_are_a_request_or_refused(payload: bytes) -> None:
    _ask_all(payload)


@given(messages(), reports, subscriptions, st.data())
def test_a_request_with_an_odd_value_is_decoded_or_refused(
    message: Message, report: Report, subscription: Subscription, data: st.DataObject
) -> None:
    for value in (message, report, subscription):
        members = orjson.loads(to_json(value))
        name = data.draw(st.sampled_from(sorted(members)))
        members[name] = data.draw(st.sampled_from([None, True, -1, 2**40, 1.5, "", "x", [], {}, ["x"], {"type": "Point"}]))
        _ask_all(orjson.dumps(members))


def _ask_all(payload: bytes) -> None:
    readers: list[Callable[[], object]] = [
        lambda: report_from_json(payload, TRUCK, NOW),
        lambda: subscription_from_json(payload, TRUCK, NOW),
        lambda: unsubscription_from_json(payload),
        lambda: message_from_json(payload, TRUCK, NOW, MessageId(1)),
    ]
    for read in readers:
        try:
            read()
        except Malformed as fault:
            event(fault.reason.name)
