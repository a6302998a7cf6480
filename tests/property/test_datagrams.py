"""Datagrams: values survive encoding and decoding, equal values give equal bytes; any bytes are handled (M3, M6, M10)."""

from dataclasses import replace

from hypothesis import event, given
from hypothesis import strategies as st

from milepost.model.messages import Message
from milepost.model.reasons import Malformed
from milepost.model.session_datagrams import Datagram, PublishDatagram
from milepost.wire.datagrams import decode, encode
from strategies import datagrams, messages


def field_types(value: Datagram) -> dict[str, type]:
    return {name: type(held) for name, held in value.message.fields.items()} if isinstance(value, PublishDatagram) else {}


def decode_and_encode_again(data: bytes) -> None:
    """Check that decoding raises `Malformed`, or gives a value that encodes and decodes to itself."""
    try:
        value = decode(data)
    except Malformed as fault:
        event(fault.reason.name)
        return
    event("accepted")
    assert decode(encode(value)) == value


@given(datagrams)
def test_every_value_survives_encoding_and_decoding(value: Datagram) -> None:
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)
    assert field_types(back) == field_types(value)  # True == 1 == 1.0, but they are not the same


@given(datagrams)
def test_decoding_and_encoding_gives_the_same_bytes(value: Datagram) -> None:
    data = encode(value)
    assert encode(decode(data)) == data


@given(messages(), st.data())
def test_equal_messages_give_equal_bytes_whatever_the_order_of_their_fields(message: Message, data: st.DataObject) -> None:
    shuffled = dict(data.draw(st.permutations(list(message.fields.items()))))
    assert encode(PublishDatagram(replace(message, fields=shuffled))) == encode(PublishDatagram(message))


@given(datagrams)
def test_a_memoryview_decodes_like_its_bytes(value: Datagram) -> None:
    data = encode(value)
    assert decode(memoryview(b"xx" + data)[2:]) == value


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_decode_to_a_valid_value(data: bytes) -> None:
    decode_and_encode_again(data)


@given(datagrams, st.data())
def test_a_flipped_bit_is_refused_or_decodes_to_a_valid_value(value: Datagram, data: st.DataObject) -> None:
    found = bytearray(encode(value))
    bit = data.draw(st.integers(0, 8 * len(found) - 1))
    found[bit // 8] ^= 1 << bit % 8
    decode_and_encode_again(bytes(found))


@given(datagrams, st.data())
def test_a_truncated_datagram_is_refused_or_decodes_to_a_valid_value(value: Datagram, data: st.DataObject) -> None:
    whole = encode(value)
    decode_and_encode_again(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(datagrams, datagrams, st.data())
def test_two_spliced_datagrams_are_refused_or_decode_to_a_valid_value(
    one: Datagram, other: Datagram, data: st.DataObject
) -> None:
    head, tail = encode(one), encode(other)
    cut, joint = data.draw(st.integers(0, len(head))), data.draw(st.integers(0, len(tail)))
    decode_and_encode_again(head[:cut] + tail[joint:])


@given(datagrams, st.integers(100, 1000), st.binary(max_size=50))
def test_fields_of_a_newer_version_are_ignored(value: Datagram, number: int, content: bytes) -> None:
    tag = number << 3 | 2
    unknown = bytes([tag & 0x7F | 0x80, tag >> 7, len(content)]) + content
    assert decode(encode(value) + unknown) == value
