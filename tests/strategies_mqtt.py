"""Hypothesis strategies for MQTT packets of both versions: all valid packets, unusual ones more often than in practice.

What composite strategies draw from is cached: making a strategy takes longer than drawing from it.
"""

from functools import cache

from hypothesis import strategies as st

from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Auth,
    Code,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PacketType,
    Ping,
    Pong,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from milepost.wire.mqtt.fields import ACKNOWLEDGES
from milepost.wire.mqtt.properties import FORWARDED, TABLE, WILL
from milepost.wire.mqtt.reason_codes import LEGAL_CODES

characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
texts = st.text(characters, max_size=12) | st.sampled_from(["", "\ufeffmark", "\x01\x7f", "ü" * 40, "語/🚗"])
names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=20)
filters = st.sampled_from(["a/+/b", "#", "$share/g/a/#", "/", "a//b"]) | texts
binaries = st.binary(max_size=12) | st.just(b"\0" * 200)
numbers = st.integers(1, 0xFFFF) | st.sampled_from([1, 0xFF, 0x100, 0xFFFF])
two_bytes = st.integers(0, 0xFFFF)
four_bytes = st.integers(0, 0xFFFF_FFFF) | st.just(0xFFFF_FFFF)
bits = st.integers(0, 1)
qualities = st.integers(0, 2)
variables = st.sampled_from([1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 268_435_455]) | st.integers(1, 268_435_455)
pairs = st.tuples(texts, texts)
versions = st.sampled_from(list(Version))

_PROPERTY_VALUES: dict[str, st.SearchStrategy[object]] = {
    "payload_format": bits,
    "message_expiry_s": four_bytes,
    "content_type": texts,
    "response_topic": names,
    "correlation_data": binaries,
    "session_expiry_s": four_bytes,
    "assigned_client_id": texts,
    "server_keep_alive_s": two_bytes,
    "authentication_method": texts,
    "authentication_data": binaries,
    "request_problem_information": st.booleans(),
    "will_delay_s": four_bytes,
    "request_response_information": st.booleans(),
    "response_information": texts,
    "server_reference": texts,
    "reason_string": texts,
    "receive_maximum": numbers,
    "topic_alias_maximum": two_bytes,
    "topic_alias": numbers,
    "maximum_qos": bits,
    "retain_available": st.booleans(),
    "maximum_packet_size": st.integers(1, 0xFFFF_FFFF),
    "wildcard_available": st.booleans(),
    "subscription_ids_available": st.booleans(),
    "shared_available": st.booleans(),
    "user": st.lists(pairs, max_size=3).map(tuple),
}


@cache
def property_values(name: str, carrier: int) -> st.SearchStrategy[object]:
    """Return a strategy for the values of a property in a packet."""
    if name == "subscription_ids":
        return st.lists(variables, max_size=3 if carrier == PacketType.PUBLISH else 1).map(tuple)
    return _PROPERTY_VALUES[name]


@cache
def names_of_some(carrier: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from([one.name for one in TABLE if carrier in one.carriers]), max_size=5)


@st.composite
def some_properties(draw: st.DrawFn, carrier: int, *needed: str) -> Properties:
    """A few of the properties that a packet may carry, among them the needed ones."""
    chosen = {*needed, *draw(names_of_some(carrier))}
    return Properties(**{name: draw(property_values(name, carrier)) for name in sorted(chosen)})  # type: ignore[arg-type]


@cache
def properties(carrier: int, *needed: str) -> st.SearchStrategy[Properties]:
    """Any properties that a packet may carry; the needed ones are always there."""
    some = some_properties(carrier, *needed)
    return some if needed else st.just(NO_PROPERTIES) | some


@cache
def properties_in(version: Version, carrier: int) -> st.SearchStrategy[Properties]:
    return st.just(NO_PROPERTIES) if version == Version.V3 else properties(carrier)


@cache
def codes(kind: PacketType) -> st.SearchStrategy[Code]:
    return st.sampled_from(list(LEGAL_CODES[kind].values()))


forwarded_properties = properties(FORWARDED)


@st.composite
def connects(draw: st.DrawFn, version: Version) -> Connect:
    username = draw(st.none() | texts)
    may_have_password = version == Version.V5 or username is not None
    clean_start = draw(st.booleans())
    found = draw(properties_in(version, PacketType.CONNECT))
    if found.authentication_method is None and found.authentication_data is not None:
        found = draw(properties(PacketType.CONNECT, "authentication_method"))
    return Connect(
        draw(texts if clean_start or version == Version.V5 else names),
        version,
        clean_start,
        draw(two_bytes),
        draw(st.none() | st.builds(Will, names, binaries, qualities, st.booleans(), properties_in(version, WILL))),
        username,
        draw(st.none() | binaries) if may_have_password else None,
        found,
    )


@st.composite
def connacks(draw: st.DrawFn, version: Version) -> Connack:
    answered_in_v3 = [Code.SUCCESS, *map(Code, range(0x84, 0x87)), Code.NOT_AUTHORIZED, Code.SERVER_UNAVAILABLE]
    code = draw(codes(PacketType.CONNACK) if version == Version.V5 else st.sampled_from(answered_in_v3))
    return Connack(code == Code.SUCCESS and draw(st.booleans()), code, draw(properties_in(version, PacketType.CONNACK)))


@st.composite
def publishes(draw: st.DrawFn, version: Version) -> Publish:
    qos = draw(qualities)
    found = draw(properties_in(version, PacketType.PUBLISH))
    topic = draw(names if found.topic_alias is None else names | st.just(""))
    payload = draw(binaries)
    return Publish(
        topic, payload, qos, draw(st.booleans()), qos > 0 and draw(st.booleans()), draw(numbers) if qos else None, found
    )


@st.composite
def acknowledges(draw: st.DrawFn, version: Version) -> Acknowledge:
    kind = draw(st.sampled_from(ACKNOWLEDGES))
    code = draw(codes(kind)) if version == Version.V5 else Code.SUCCESS
    return Acknowledge(kind, draw(numbers), code, draw(properties_in(version, kind)))


@st.composite
def requests(draw: st.DrawFn, version: Version) -> FilterRequest:
    topic_filter, qos = draw(filters), draw(qualities)
    if version == Version.V3:
        return FilterRequest(topic_filter, qos)
    no_local = draw(st.booleans()) and not topic_filter.startswith("$share/")
    return FilterRequest(topic_filter, qos, no_local, draw(st.booleans()), draw(qualities))


def subscription_packets(version: Version) -> st.SearchStrategy[Packet]:
    """SUBSCRIBE, UNSUBSCRIBE and their answers."""
    filter_requests = st.lists(requests(version), min_size=1, max_size=4).map(tuple)
    unwanted = st.lists(filters, min_size=1, max_size=4).map(tuple)
    granted_v3 = st.sampled_from([Code.SUCCESS, Code.GRANTED_QOS_1, Code.GRANTED_QOS_2, Code.UNSPECIFIED_ERROR])
    granted = st.lists(codes(PacketType.SUBACK) if version == Version.V5 else granted_v3, min_size=1, max_size=4).map(tuple)
    ended = st.lists(codes(PacketType.UNSUBACK), min_size=1, max_size=4).map(tuple) if version == Version.V5 else st.just(())
    return st.one_of(
        st.builds(Subscribe, numbers, filter_requests, properties_in(version, PacketType.SUBSCRIBE)),
        st.builds(Suback, numbers, granted, properties_in(version, PacketType.SUBACK)),
        st.builds(Unsubscribe, numbers, unwanted, properties_in(version, PacketType.UNSUBSCRIBE)),
        st.builds(Unsuback, numbers, ended, properties_in(version, PacketType.UNSUBACK)),
    )


def last_packets(version: Version) -> st.SearchStrategy[Packet]:
    """DISCONNECT and, where there is one, AUTH."""
    if version == Version.V3:
        return st.just(Disconnect())
    with_method = st.builds(Auth, codes(PacketType.AUTH), properties(PacketType.AUTH, "authentication_method"))
    return st.builds(Disconnect, codes(PacketType.DISCONNECT), properties(PacketType.DISCONNECT)) | st.just(Auth()) | with_method


def packets(version: Version) -> st.SearchStrategy[Packet]:
    """Any packet of one version."""
    return st.one_of(
        connects(version),
        connacks(version),
        publishes(version),
        acknowledges(version),
        subscription_packets(version),
        st.just(Ping()),
        st.just(Pong()),
        last_packets(version),
    )


packets_with_version: st.SearchStrategy[tuple[Packet, Version]] = st.one_of(
    [st.tuples(packets(one), st.just(one)) for one in Version]
)
"""A packet and the version it is encoded in."""
