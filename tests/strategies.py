"""Hypothesis strategies for values of the model: all that its constructors accept, unusual values more often than in practice."""

from math import cos, pi, radians, sin

from hypothesis import strategies as st

from milepost.model.addresses import Address, ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Area, Around, Box, Circle, Corridor, Polygon, Stretch, Union, Upstream
from milepost.model.endpoints import EndpointId, SourceId, edge_source, endpoint_id, service_source
from milepost.model.instants import BEGINNING, FOREVER, Instant
from milepost.model.messages import Message, MessageId, Scalar
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import And, HasTag, Not, OnTopic, Or, Query
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    Close,
    CloseCause,
    Datagram,
    Heartbeat,
    Init,
    MessageName,
    Notify,
    PublishDatagram,
    ReceivedDatagram,
    Refusal,
    ReportSent,
    SessionToken,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
    refusal_of,
)
from milepost.model.subscriptions import Notice, Subscription, SubscriptionId
from milepost.model.tags import Tag
from milepost.model.time_windows import TimeWindow

LAST = FOREVER - 1


def is_endpoint_id(text: str) -> bool:
    """Return whether a text is the id of an endpoint."""
    try:
        return bool(endpoint_id(text))
    except Malformed:
        return False


latitudes = st.floats(-90, 90) | st.sampled_from([0.0, -0.0, 90.0, -90.0])
longitudes = st.floats(-180, 180) | st.sampled_from([0.0, 180.0, -180.0])
places = st.builds(Place, latitudes, longitudes)
instants = (st.integers(0, LAST) | st.sampled_from([0, 1, 1_900_000_000_000_000_000, LAST])).map(Instant)

plain = st.characters(exclude_categories=["Cc", "Cs"])
endpoint_ids = (
    (st.text(plain, min_size=1, max_size=32) | st.sampled_from(["truck-7", "ü" * 64])).filter(is_endpoint_id).map(EndpointId)
)
system_sources = st.builds(lambda make, name: make(name), st.sampled_from([edge_source, service_source]), endpoint_ids)
sources: st.SearchStrategy[SourceId] = endpoint_ids | system_sources
levels = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="+#/"), max_size=12)
topics = st.lists(levels, min_size=1, max_size=6).map("/".join).filter(bool) | st.sampled_from(
    ["Collision", "$reserved/cross-hub"]
)
tags = st.text(st.sampled_from("aé7_-.:/@Ω語"), min_size=1, max_size=12).map(Tag)
tag_sets = st.frozensets(tags, max_size=6)
message_ids = (st.integers(1, 2**64 - 1) | st.sampled_from([1, 2**53, 2**64 - 1])).map(MessageId)
subscription_ids = (st.integers(0, 2**32 - 1) | st.just(0)).map(SubscriptionId)
tokens = (st.integers(1, 2**64 - 1) | st.just(2**64 - 1)).map(SessionToken)
maybe_tokens = st.none() | tokens

integers = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([2**53 - 1, 2**53, -(2**53), -(2**63), 2**63 - 1])
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 1e300])
scalars: st.SearchStrategy[Scalar] = st.text(max_size=20) | integers | numbers | st.booleans() | st.binary(max_size=20)
field_names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
fields = st.dictionaries(field_names, scalars, max_size=5)


def _ring(centre: Place, size_deg: float, reaches: list[float]) -> tuple[Place, ...]:
    """Return a star around the centre, with a corner at each of the distances *reaches*."""
    corners = []
    for number, reach in enumerate(reaches):
        angle = 2 * pi * number / len(reaches)
        north, east = size_deg * reach * sin(angle), size_deg * reach * cos(angle) / cos(radians(centre.latitude))
        corners.append(Place(centre.latitude + north, centre.longitude + east))
    return (*corners, corners[0])


@st.composite
def polygons(draw: st.DrawFn) -> Polygon:
    centre = Place(draw(st.floats(-60, 60)), draw(st.floats(-170, 170)))
    size_deg = draw(st.floats(0.001, 2))
    outer = _ring(centre, size_deg, draw(st.lists(st.floats(0.7, 1), min_size=6, max_size=12)))
    holes = [_ring(centre, size_deg / 4, [1.0] * 5)] if draw(st.booleans()) else []
    return Polygon(outer, tuple(holes))


@st.composite
def corridors(draw: st.DrawFn) -> Corridor:
    latitude, longitude = draw(st.floats(-60, 60)), draw(st.floats(-170, 170))
    steps = draw(st.lists(st.tuples(st.floats(0.001, 0.1), st.floats(-0.1, 0.1)), min_size=1, max_size=8))
    path = [Place(latitude, longitude)]
    for north, east in steps:
        path.append(Place(path[-1].latitude + north, path[-1].longitude + east))
    return Corridor(tuple(path), draw(st.floats(1, 5000)))


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    south, north = sorted(
        draw(st.lists(st.floats(-90, 90), min_size=2, max_size=2).filter(lambda two: abs(two[0] - two[1]) > 1e-3))
    )
    west, east = draw(st.lists(longitudes, min_size=2, max_size=2).filter(lambda two: (two[1] - two[0]) % 360 > 1e-3))
    return Box(south, west, north, east)


@st.composite
def stretches(draw: st.DrawFn) -> Stretch:
    latitude, longitude = draw(st.integers(-600_000_000, 600_000_000)), draw(st.integers(-1_700_000_000, 1_700_000_000))
    steps = draw(st.lists(st.tuples(st.integers(1, 20_000), st.integers(-20_000, 20_000)), min_size=1, max_size=6))
    path = [(latitude, longitude)]
    for north, east in steps:
        path.append((path[-1][0] + north, path[-1][1] + east))
    end_s, end_m, more_s, more_m = (draw(st.integers(0, 5_000)) / 10 for _ in range(4))
    places = tuple(Place(north / 1e7, east / 1e7) for north, east in path)
    left = (end_s + more_s, end_s, end_m + more_m, end_m)
    return Stretch(places, draw(st.integers(1, 500)) / 10, *(round(number, 1) for number in left))


upstreams = st.lists(stretches(), min_size=1, max_size=4).map(lambda some: Upstream.of(tuple(some)))
"""With no more digits than datagrams have."""

circles = st.builds(Circle, places, st.floats(0.01, 2e7))
shapes: st.SearchStrategy[Area] = circles | boxes() | polygons() | corridors() | upstreams
unions = st.lists(
    shapes | st.lists(shapes, min_size=1, max_size=2).map(lambda parts: Union(tuple(parts))), min_size=1, max_size=3
)
areas: st.SearchStrategy[Area] = shapes | unions.map(lambda parts: Union(tuple(parts)))
arounds = st.builds(Around, st.floats(0.01, 2e7))

incident_names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=128).filter(
    lambda name: name.isprintable() and " " not in name
)
addresses: st.SearchStrategy[Address] = (
    st.builds(ToContent, st.none() | areas)
    | st.builds(ToEndpoint, endpoint_ids)
    | st.builds(ToArea, areas, st.just("") | incident_names)
    | st.builds(ToNotified, st.lists(incident_names, min_size=1, max_size=3).map(tuple))
    | st.just(ToEveryone())
)

filters = st.lists(levels | st.just("+"), min_size=1, max_size=4).map("/".join).filter(lambda text: bool(text) and text[0] != "$")
atoms: st.SearchStrategy[Query] = tags.map(HasTag) | filters.map(OnTopic)


def _larger(parts: st.SearchStrategy[Query]) -> st.SearchStrategy[Query]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return parts.map(Not) | several.map(And) | several.map(Or)


queries: st.SearchStrategy[Query] = st.recursive(atoms, _larger, max_leaves=8)


@st.composite
def time_windows(draw: st.DrawFn) -> TimeWindow:
    start, end = sorted(draw(st.tuples(instants, instants)))
    return TimeWindow(draw(st.sampled_from([start, BEGINNING])), draw(st.sampled_from([end, FOREVER])))


signatures: st.SearchStrategy[dict[str, bytes]] = st.just({}) | st.fixed_dictionaries(
    {"signature": st.binary(min_size=64, max_size=64), "certificate": st.binary(min_size=1, max_size=30)}
)


@st.composite
def messages(draw: st.DrawFn) -> Message:
    seen_at, valid_until = sorted(draw(st.tuples(instants, instants)))
    return Message(
        id=draw(message_ids),
        source=draw(sources),
        topic=draw(topics),
        seen_at=seen_at,
        tags=draw(tag_sets),
        address=draw(addresses),
        place=draw(st.none() | places),
        valid_until=draw(st.sampled_from([valid_until, FOREVER])),
        priority=draw(st.sampled_from(Priority)),
        reliable=draw(st.booleans()),
        fields=draw(fields),
        body=draw(st.binary(max_size=100)),
        **draw(signatures),
    )


reports = st.builds(
    Report,
    endpoint_ids,
    places,
    instants,
    st.none() | st.floats(0, 360, exclude_max=True),
    st.none() | st.floats(0, 500),
)
shares = st.none() | st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="/+#"), min_size=1, max_size=12)
subscriptions = st.builds(
    Subscription,
    endpoint_ids,
    queries,
    st.none() | arounds | areas,
    time_windows(),
    subscription_ids,
    st.integers(0, 2),
    shares,
)
notices = st.builds(
    Notice,
    subscription_ids,
    message_ids,
    sources,
    topics,
    tag_sets,
    st.none() | places,
    instants,
    st.binary(max_size=40),
)

names = st.builds(MessageName, sources, message_ids) | st.builds(SubscriptionName, endpoint_ids, subscription_ids)
refused = st.builds(Refused, st.sampled_from(Reason), st.text(max_size=40))
future_reasons = st.builds(Refusal, st.integers(60_000, 65_535), st.sampled_from(["NOT_YET_KNOWN", "X"]), st.text(max_size=40))
refusals = st.builds(refusal_of, refused, st.none() | names, maybe_tokens) | future_reasons
cells = st.builds(
    MulticastGrid,
    st.sampled_from(["224.0.0.0", "239.192.0.7"]),
    st.integers(1, 300),
    st.integers(1, 65_535),
    st.floats(0.0001, 10),
)
intervals_ns = st.integers(1, 86_400_000_000_000)

session_messages: st.SearchStrategy[Datagram] = (
    st.builds(Init, reports, maybe_tokens, st.booleans())
    | st.builds(
        AcknowledgeDatagram,
        tokens,
        intervals_ns,
        endpoint_ids,
        st.booleans(),
        st.just(b"") | st.binary(min_size=16, max_size=16),
        st.none() | intervals_ns,
        st.none() | cells,
    )
    | st.builds(ReportSent, tokens, reports)
    | st.builds(Heartbeat, tokens)
    | st.builds(Close, tokens, st.sampled_from(CloseCause))
    | refusals
)
pubsub_messages: st.SearchStrategy[Datagram] = (
    st.builds(PublishDatagram, messages(), maybe_tokens, st.lists(subscription_ids, max_size=4).map(tuple))
    | st.builds(SubscribeDatagram, subscriptions, maybe_tokens)
    | st.builds(UnsubscribeDatagram, st.builds(SubscriptionName, endpoint_ids, subscription_ids), maybe_tokens)
    | st.builds(Notify, notices, maybe_tokens)
    | st.builds(ReceivedDatagram, names, maybe_tokens)
)
datagrams = session_messages | pubsub_messages
json_values = datagrams | messages() | reports | subscriptions | notices
