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


def test_macs_are_hmacs_cut_to_16_bytes_over_all_that_comes_before() -> None:
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
    assert Macs(EDGE_KEY).is_first_right(init) is is_in_second
    assert not Macs(EDGE_KEY).is_second_right(init, COOKIE)


def test_macs_are_right_for_their_edge_and_cookie_only() -> None:
    init = INIT + Macs(EDGE_KEY).stamp(INIT, COOKIE)
    assert Macs(EDGE_KEY).is_first_right(init)
    assert Macs(EDGE_KEY).is_second_right(init, COOKIE)
    assert not Macs(OTHER_KEY).is_first_right(init)
    assert not Macs(EDGE_KEY).is_second_right(init, b"d" * 16)
    assert not Macs(EDGE_KEY).is_second_right(INIT + Macs(EDGE_KEY).stamp(INIT), COOKIE)


@given(st.binary(max_size=40))
def test_whatever_is_too_short_for_macs_has_no_right_ones(data: bytes) -> None:
    assert not Macs(EDGE_KEY).is_first_right(data)
    assert not Macs(EDGE_KEY).is_second_right(data, COOKIE)


def test_a_cookie_is_for_one_address_and_one_secret() -> None:
    assert len({cookie_of(secret, address) for secret in (b"1" * 32, b"2" * 32) for address in (b"here", b"there")}) == 4
    assert cookie_of(b"1" * 32, b"here") == hmac.new(b"1" * 32, b"here", "sha256").digest()[:16]


def test_a_sealed_cookie_is_opened_by_who_sent_the_init_to_that_edge() -> None:
    sealed = seal_cookie(EDGE_KEY, SALT, COOKIE, MAC1)
    assert len(sealed) == 32
    assert open_cookie(EDGE_KEY, SALT, sealed, MAC1) == COOKIE
    for wrong in ((OTHER_KEY, SALT, sealed, MAC1), (EDGE_KEY, MAC1, sealed, MAC1), (EDGE_KEY, SALT, sealed, SALT)):
        with pytest.raises(Malformed) as caught:
            open_cookie(*wrong)
        assert caught.value.reason is Reason.SEAL_BROKEN


@given(st.binary(max_size=40))
def test_any_bytes_are_no_cookie(sealed: bytes) -> None:
    with pytest.raises(Malformed):
        open_cookie(EDGE_KEY, SALT, sealed, MAC1)


@given(st.binary(min_size=1, max_size=64), st.binary(max_size=64), st.binary(max_size=40))
def test_keys_are_derived_as_the_library_derives_them(secret: bytes, salt: bytes, purpose: bytes) -> None:
    assert macs._derived(secret, salt, purpose) == HKDF(SHA256(), 32, salt, purpose).derive(secret)


def test_a_reset_is_the_same_after_a_restart_and_another_for_each_token_and_edge() -> None:
    assert reset_of(reset_key(EDGE_KEY), 7) == reset_of(reset_key(EDGE_KEY), 7)
    assert len({reset_of(reset_key(key), token) for key in (EDGE_KEY, OTHER_KEY) for token in (7, 8, 7 << 56)}) == 6
    key = HKDF(SHA256(), 32, b"", b"milepost reset").derive(EDGE_KEY)
    assert reset_of(reset_key(EDGE_KEY), 1) == hmac.new(key, b"\x01" + bytes(7), "sha256").digest()[:16]
