import hmac
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.reasons import Malformed, Reason
from milepost.trust import cookies as macs
from milepost.trust.cookies import NO_MAC, Macs, cookie_of, open_cookie, reset_key, reset_of, seal_cookie

EDGE_KEY, OTHER_KEY = b"e" * 32, b"o" * 32
COOKIE, SALT, MAC1 = b"c" * 16, b"s" * 16, b"m" * 16
INIT = b"\x01" + bytes(120)


def test_macs_are_hmacs_truncated_to_16_bytes_over_all_preceding_bytes() -> None:
    first = hmac.new(sha256(b"milepost mac1" + EDGE_KEY).digest(), INIT, "sha256").digest()[:16]
    second = hmac.new(COOKIE, INIT + first, "sha256").digest()[:16]
    assert Macs(EDGE_KEY).stamp(INIT) == first + NO_MAC
    assert Macs(EDGE_KEY).stamp(INIT, COOKIE) == first + second


@given(st.integers(0, 8 * (len(INIT) + 32) - 1))
def test_a_stamped_init_with_any_bit_changed_fails_one_mac(at: int) -> None:
    stamped = bytearray(INIT + Macs(EDGE_KEY).stamp(INIT, COOKIE))
    stamped[at // 8] ^= 1 << at % 8
    init = bytes(stamped)
    is_in_second = at >= 8 * (len(INIT) + 16)
    assert Macs(EDGE_KEY).is_mac1_valid(init) is is_in_second
    assert not Macs(EDGE_KEY).is_mac2_valid(init, COOKIE)


def test_macs_are_valid_only_for_their_edge_and_cookie() -> None:
    init = INIT + Macs(EDGE_KEY).stamp(INIT, COOKIE)
    assert Macs(EDGE_KEY).is_mac1_valid(init)
    assert Macs(EDGE_KEY).is_mac2_valid(init, COOKIE)
    assert not Macs(OTHER_KEY).is_mac1_valid(init)
    assert not Macs(EDGE_KEY).is_mac2_valid(init, b"d" * 16)
    assert not Macs(EDGE_KEY).is_mac2_valid(INIT + Macs(EDGE_KEY).stamp(INIT), COOKIE)


@given(st.binary(max_size=40))
def test_a_datagram_too_short_for_macs_is_invalid(data: bytes) -> None:
    assert not Macs(EDGE_KEY).is_mac1_valid(data)
    assert not Macs(EDGE_KEY).is_mac2_valid(data, COOKIE)


def test_a_cookie_depends_on_address_and_secret() -> None:
    assert len({cookie_of(secret, address) for secret in (b"1" * 32, b"2" * 32) for address in (b"here", b"there")}) == 4
    assert cookie_of(b"1" * 32, b"here") == hmac.new(b"1" * 32, b"here", "sha256").digest()[:16]


def test_only_the_sender_of_the_init_can_open_the_sealed_cookie() -> None:
    sealed = seal_cookie(EDGE_KEY, SALT, COOKIE, MAC1)
    assert len(sealed) == 32
    assert open_cookie(EDGE_KEY, SALT, sealed, MAC1) == COOKIE
    for wrong in ((OTHER_KEY, SALT, sealed, MAC1), (EDGE_KEY, MAC1, sealed, MAC1), (EDGE_KEY, SALT, sealed, SALT)):
        with pytest.raises(Malformed) as caught:
            open_cookie(*wrong)
        assert caught.value.reason is Reason.DECRYPTION_FAILED


@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_no_cookie(sealed: bytes) -> None:
    with pytest.raises(Malformed):
        open_cookie(EDGE_KEY, SALT, sealed, MAC1)


@given(st.binary(min_size=1, max_size=64), st.binary(max_size=64), st.binary(max_size=40))
def test_keys_are_derived_as_the_library_derives_them(secret: bytes, salt: bytes, purpose: bytes) -> None:
    assert macs._derive(secret, salt, purpose) == HKDF(SHA256(), 32, salt, purpose).derive(secret)


def test_a_reset_is_stable_across_restarts_and_unique_per_token_and_edge() -> None:
    assert reset_of(reset_key(EDGE_KEY), 7) == reset_of(reset_key(EDGE_KEY), 7)
    assert len({reset_of(reset_key(key), token) for key in (EDGE_KEY, OTHER_KEY) for token in (7, 8, 7 << 56)}) == 6
    key = HKDF(SHA256(), 32, b"", b"milepost reset").derive(EDGE_KEY)
    assert reset_of(reset_key(EDGE_KEY), 1) == hmac.new(key, b"\x01" + bytes(7), "sha256").digest()[:16]
