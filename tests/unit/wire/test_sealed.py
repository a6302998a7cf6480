"""Sealed datagrams: the outer layouts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.instants import Instant
from milepost.model.reasons import Malformed
from milepost.wire import sealed

NONCE = bytes(range(16))
numbers = st.integers(0, 2**64 - 1)


@given(numbers, numbers)
def test_token_and_counter_survive_encoding_and_decoding(token: int, counter: int) -> None:
    data = sealed.data_head(token, counter) + b"sealed"
    assert data[0] == sealed.SealedType.DATA
    assert (sealed.token_of(data), sealed.counter_of(data)) == (token, counter)
    assert sealed.nonce_of(counter) == bytes(4) + data[9:17]


def test_the_token_is_little_endian_as_in_protobuf_and_the_counter_as_in_the_nonce() -> None:
    assert sealed.data_head(0x1122334455667788, 5).hex() == "04" + "8877665544332211" + "0000000000000005"
    assert sealed.reset_datagram(1, bytes(16)).hex() == "05" + "0100000000000000" + "00" * 16


@given(st.integers(0, 2**63), st.binary(min_size=1, max_size=1_000), st.binary(max_size=50))
def test_hello_survives_encoding_and_decoding(sent_at: int, certificate: bytes, datagram: bytes) -> None:
    hello = sealed.Hello(Instant(sent_at), certificate, datagram)
    assert sealed.hello_from_bytes(sealed.hello_to_bytes(hello)) == hello


@pytest.mark.parametrize("data", [b"", bytes(9), bytes(10), bytes(8) + b"\x00\x05abcd", bytes(8) + b"\x03\xe9" + bytes(1_001)])
def test_a_hello_with_a_truncated_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        sealed.hello_from_bytes(data)


def test_a_discovery_request_is_as_long_as_the_longest_reply() -> None:
    data = sealed.discovery_request_to_bytes(sealed.DiscoveryRequest(NONCE, 40.5, -111.25))
    assert len(data) == sealed.ASK_BYTES
    assert sealed.discovery_request_from_bytes(data) == (NONCE, 40.5, -111.25)
    with pytest.raises(Malformed):
        sealed.discovery_request_from_bytes(data[:-1])


def test_a_discovery_reply_has_the_signed_bytes() -> None:
    unsigned = sealed.unsigned_discovery_reply(NONCE, 4242, b"certificate")
    here = sealed.discovery_reply_from_bytes(unsigned + bytes(64))
    assert here == sealed.DiscoveryReply(NONCE, 4242, b"certificate", bytes(64), unsigned)
    assert sealed.discovery_reply_from_bytes(sealed.unsigned_discovery_reply(NONCE, 1, b"")).signature == b""
    for malformed in (unsigned, unsigned + bytes(63), unsigned + bytes(65), unsigned[:20]):
        with pytest.raises(Malformed):
            sealed.discovery_reply_from_bytes(malformed)
