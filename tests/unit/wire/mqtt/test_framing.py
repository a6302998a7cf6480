"""Framing: the end of a packet, and refusals before its body has arrived."""

import pytest

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import check_first, encode_length, frame_at

LENGTHS = [
    (0, "00"),
    (127, "7F"),
    (128, "8001"),
    (16_383, "FF7F"),
    (16_384, "808001"),
    (2_097_151, "FFFF7F"),
    (2_097_152, "80808001"),
    (268_435_455, "FFFFFF7F"),
]

LEGAL = {
    *(0x10, 0x20, 0x40, 0x50, 0x62, 0x70, 0x82, 0x90, 0xA2, 0xB0, 0xC0, 0xD0, 0xE0, 0xF0),
    *(0x30, 0x31, 0x32, 0x33, 0x34, 0x35, 0x3A, 0x3B, 0x3C, 0x3D),
}


def refused(data: bytes, size_max: int = 1000) -> Reason:
    with pytest.raises(Malformed) as found:
        frame_at(data, 0, size_max)
    return found.value.reason


@pytest.mark.parametrize(("size", "text"), LENGTHS)
def test_a_length_is_encoded_in_the_fewest_bytes(size: int, text: str) -> None:
    assert encode_length(size) == bytes.fromhex(text)


@pytest.mark.parametrize("size", [-1, 268_435_456])
def test_a_length_beyond_four_bytes_is_refused(size: int) -> None:
    with pytest.raises(Malformed) as found:
        encode_length(size)
    assert found.value.reason is Reason.FIELD_RANGE


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384])
def test_a_packet_is_found_anywhere_in_the_bytes(size: int) -> None:
    data = b"\xff\xff" + b"\x30" + encode_length(size) + bytes(size) + b"\xff"
    body_start = 3 + len(encode_length(size))
    assert frame_at(data, 2, 20_000) == (body_start, body_start + size)
    assert frame_at(data[:-2] if size else data[:3], 2, 20_000) is None


def test_no_bytes_are_an_incomplete_packet() -> None:
    assert frame_at(b"", 0, 10) is None
    assert frame_at(b"\xc0\x00", 2, 10) is None
    assert frame_at(b"\xc0", 0, 10) is None


@pytest.mark.parametrize(
    "text", ["30 8000", "30 808000", "30 80808000", "30 FF00", "30 80808080", "30 FFFFFFFF", "30 8080808001"]
)
def test_a_length_that_is_too_long_is_refused(text: str) -> None:
    assert refused(bytes.fromhex(text)) is Reason.PACKET_MALFORMED


def test_a_packet_that_is_too_large_is_refused_by_its_header_alone() -> None:
    assert frame_at(b"\x30\x08", 0, 10) is None
    assert refused(b"\x30\x09", 10) is Reason.PACKET_TOO_LARGE
    assert refused(b"\x30\xff\xff\xff\x7f", 1 << 20) is Reason.PACKET_TOO_LARGE
    assert frame_at(b"\x30\x80\x01", 0, 131) is None
    assert refused(b"\x30\x80\x01", 130) is Reason.PACKET_TOO_LARGE


@pytest.mark.parametrize("first", range(256))
def test_legal_first_bytes_are_those_of_the_specification(first: int) -> None:
    if first in LEGAL:
        check_first(first)
        assert frame_at(bytes([first]), 0, 10) is None
        return
    assert refused(bytes([first])) is Reason.PACKET_MALFORMED
    with pytest.raises(Malformed):
        check_first(first)


@pytest.mark.parametrize(
    ("first", "detail"),
    [(0x00, "type 0"), (0x36, "QoS 3"), (0x3F, "QoS 3"), (0x38, "DUP and QoS 0"), (0x60, "PUBREL with the flags 0000")],
)
def test_the_refusal_of_a_first_byte_names_the_fault(first: int, detail: str) -> None:
    with pytest.raises(Malformed, match=detail):
        check_first(first)
