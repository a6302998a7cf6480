"""MQTT packets: every value survives encoding and decoding with the same bytes, and any bytes are handled."""

from hypothesis import event, given
from hypothesis import strategies as st

from milepost.model.reasons import Malformed
from milepost.wire.mqtt import (
    Packet,
    PacketType,
    Properties,
    Publish,
    Version,
    decode,
    encode,
    forwarded,
    frame_at,
    parse_forwarded,
    publish_head,
)
from milepost.wire.mqtt.fields import LEGAL_FIRST, PACKET_BYTES_MAX
from milepost.wire.mqtt.properties import properties_block
from strategies_mqtt import forwarded_properties, packets_with_version, publishes, versions

firsts = st.sampled_from(sorted(LEGAL_FIRST)) | st.integers(0, 255)
SaidIn = tuple[Packet, Version]


def framed(data: bytes) -> tuple[int, bytes]:
    """The first byte and the body of the one packet that the bytes are."""
    found = frame_at(data, 0, PACKET_BYTES_MAX)
    assert found is not None
    assert found[1] == len(data)
    return data[0], data[found[0] : found[1]]


def decode_and_encode_again(first: int, body: bytes, version: Version) -> None:
    """Check that decoding raises `Malformed`, or gives a value that encodes and decodes to itself."""
    try:
        packet = decode(first, body, version)
    except Malformed as fault:
        event(fault.reason.name)
        return
    event(f"accepted {PacketType(first >> 4).name}")
    said_again = encode(packet, version)
    assert decode(*framed(said_again), version) == packet
    assert len(framed(said_again)[1]) <= len(body)  # nothing is written in a longer form than it came


def slow_frame(data: bytes, size_max: int) -> tuple[int, int] | str | None:
    """Return the result of `frame_at` at 0, computed step by step as in the specification."""
    if data and data[0] not in LEGAL_FIRST:
        return "refused"
    for count in range(1, 5):
        digits = data[1 : 1 + count]
        if len(digits) < count:
            return None
        if digits[-1] >= 128:
            continue
        size = sum((digit % 128) * 128**power for power, digit in enumerate(digits))
        end = 1 + count + size
        if (count > 1 and digits[-1] == 0) or end > size_max:
            return "refused"
        return (1 + count, end) if len(data) >= end else None
    return "refused"


@given(packets_with_version)
def test_every_packet_survives_encoding_and_decoding_with_the_same_bytes(one: SaidIn) -> None:
    packet, version = one
    data = encode(packet, version)
    back = decode(*framed(data), version)
    assert back == packet
    assert repr(back) == repr(packet)  # True == 1, but they are not the same
    assert encode(back, version) == data


@given(st.lists(packets_with_version, min_size=1, max_size=3))
def test_packets_in_a_row_are_found_one_by_one(several: list[SaidIn]) -> None:
    data = b"".join(encode(packet, version) for packet, version in several)
    at = 0
    for packet, version in several:
        found = frame_at(data, at, PACKET_BYTES_MAX)
        assert found is not None
        assert decode(data[at], data[found[0] : found[1]], version) == packet
        at = found[1]
    assert frame_at(data, at, PACKET_BYTES_MAX) is None


@given(packets_with_version)
def test_an_incomplete_packet_is_waited_for_at_every_position(one: SaidIn) -> None:
    data = encode(*one)
    assert all(frame_at(data[:size], 0, PACKET_BYTES_MAX) is None for size in range(len(data)))


@given(packets_with_version)
def test_a_body_truncated_anywhere_is_refused_or_decodes_to_a_valid_value(one: SaidIn) -> None:
    packet, version = one
    first, body = framed(encode(packet, version))
    for size in range(len(body)):
        decode_and_encode_again(first, body[:size], version)


@given(firsts, st.binary(max_size=60), versions)
def test_random_bytes_are_refused_or_decode_to_a_valid_value(first: int, body: bytes, version: Version) -> None:
    decode_and_encode_again(first, body, version)


@given(packets_with_version, st.data())
def test_a_flipped_bit_is_refused_or_decodes_to_a_valid_value(one: SaidIn, data: st.DataObject) -> None:
    packet, version = one
    first, body = framed(encode(packet, version))
    found = bytearray([first]) + body
    bit = data.draw(st.integers(0, 8 * len(found) - 1))
    found[bit // 8] ^= 1 << bit % 8
    decode_and_encode_again(found[0], bytes(found[1:]), version)


@given(packets_with_version, packets_with_version, versions, st.data())
def test_two_spliced_packets_are_refused_or_decode_to_a_valid_value(
    one: SaidIn, other: SaidIn, version: Version, data: st.DataObject
) -> None:
    first, head = framed(encode(*one))
    _, tail = framed(encode(*other))
    cut, joint = data.draw(st.integers(0, len(head))), data.draw(st.integers(0, len(tail)))
    decode_and_encode_again(first, head[:cut] + tail[joint:], version)


@given(packets_with_version, st.data())
def test_an_inserted_byte_is_refused_or_decodes_to_a_valid_value(one: SaidIn, data: st.DataObject) -> None:
    packet, version = one
    first, body = framed(encode(packet, version))
    at, byte = data.draw(st.integers(0, len(body))), data.draw(st.sampled_from([0, 1, 0x26, 0x80, 0xFF]))
    decode_and_encode_again(first, body[:at] + bytes([byte]) + body[at:], version)


lengths = st.lists(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF]), max_size=6).map(bytes)


@given(
    st.builds(lambda first, size, rest: bytes([first]) + size + rest, firsts, lengths, st.binary(max_size=300)),
    st.integers(2, 400),
)
def test_a_packet_is_delimited_as_in_the_specification(data: bytes, size_max: int) -> None:
    shift = b"\x30\x80\x80"
    try:
        found: tuple[int, int] | str | None = frame_at(shift + data, len(shift), size_max)
    except Malformed:
        found = "refused"
    if isinstance(found, tuple):
        found = found[0] - len(shift), found[1] - len(shift)
    assert found == slow_frame(data, size_max)


@given(versions.flatmap(lambda version: st.tuples(publishes(version), st.just(version))))
def test_the_head_and_the_payload_make_the_packet(one: tuple[Publish, Version]) -> None:
    packet, version = one
    flags = packet.dup * 8 + packet.qos * 2 + packet.retain
    block = properties_block(packet.properties, PacketType.PUBLISH)
    head = publish_head(packet.topic.encode(), flags, version, block, len(packet.payload), packet.packet_id)
    assert head + packet.payload == encode(packet, version)


@given(forwarded_properties)
def test_forwarded_properties_survive_encoding_and_are_embedded_unaltered(found: Properties) -> None:
    data = forwarded(found)
    assert parse_forwarded(data) == found
    assert data == properties_block(found, PacketType.PUBLISH)


@given(publishes(Version.V5))
def test_only_properties_that_must_be_forwarded_unaltered_are_forwarded(packet: Publish) -> None:
    found = parse_forwarded(forwarded(packet.properties))
    own = packet.properties
    assert found == Properties(
        payload_format=own.payload_format,
        content_type=own.content_type,
        response_topic=own.response_topic,
        correlation_data=own.correlation_data,
        user=own.user,
    )


@given(st.binary(max_size=40))
def test_random_forwarded_bytes_are_refused_or_decode_to_valid_properties(data: bytes) -> None:
    try:
        found = parse_forwarded(data)
    except Malformed:
        return
    assert parse_forwarded(forwarded(found)) == found
