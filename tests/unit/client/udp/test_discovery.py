"""Valid answers to a discovery request, and the order of SRV records (M20)."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.client.udp.discovery import SrvRecord, discovery_request_datagram, read_discovery_reply, srv_order
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.trust.certificates import CertificateAuthority
from milepost.trust.noise import public_of
from milepost.trust.signing import signing_public_of
from milepost.wire.sealed import ASK_BYTES, discovery_request_from_bytes, unsigned_discovery_reply
from unit.client.udp.scripted_edge import CA, CAR_CERTIFICATE, CAR_KEY, EDGE_CERTIFICATE, EDGE_KEY, LATER, NOW, SIGNER

NONCE = bytes(range(16))
UNSIGNED = unsigned_discovery_reply(NONCE, 4242, EDGE_CERTIFICATE.data)
RIGHT = UNSIGNED + SIGNER.sign_discovery_reply(UNSIGNED)


def test_ask_carries_the_place_and_is_as_long_as_any_answer() -> None:
    data = discovery_request_datagram(NONCE, Place(48.1, 11.6))
    asked = discovery_request_from_bytes(data)
    assert (len(data), asked.nonce, asked.latitude, asked.longitude) == (ASK_BYTES, NONCE, 48.1, 11.6)


def test_a_valid_answer_contains_the_key_of_the_edge() -> None:
    here, key = read_discovery_reply(RIGHT, NONCE, CA, NOW)
    assert (here.port, key) == (4242, public_of(EDGE_KEY))


def test_without_encryption_any_answer_with_the_right_nonce_is_valid() -> None:
    here, key = read_discovery_reply(unsigned_discovery_reply(NONCE, 7, b""), NONCE, None, NOW)
    assert (here.port, key) == (7, b"")
    with pytest.raises(Malformed):
        read_discovery_reply(unsigned_discovery_reply(NONCE, 7, b""), bytes(16), None, NOW)


def _as_a_car() -> bytes:
    data = unsigned_discovery_reply(NONCE, 4242, CAR_CERTIFICATE.data)
    return data + SIGNER.sign_discovery_reply(data)


def _unsigned() -> bytes:
    return unsigned_discovery_reply(NONCE, 4242, b"")


@pytest.mark.parametrize(
    ("data", "nonce", "now", "reason"),
    [
        (RIGHT, bytes(16), NOW, Reason.REPLAYED),
        (RIGHT[:-1] + b"\0", NONCE, NOW, Reason.SIGNATURE_INVALID),
        (RIGHT[:-1], NONCE, NOW, Reason.MALFORMED),
        (RIGHT, NONCE, Instant(LATER + 1), Reason.CERTIFICATE_EXPIRED),
        (RIGHT, NONCE, Instant(NOW - SECOND_NS), Reason.CERTIFICATE_EXPIRED),
        (_as_a_car(), NONCE, NOW, Reason.CERTIFICATE_ROLE),
        (_unsigned(), NONCE, NOW, Reason.CERTIFICATE_INVALID),
        (b"", NONCE, NOW, Reason.MALFORMED),
        (b"\x04" + RIGHT[1:], NONCE, NOW, Reason.MALFORMED),
    ],
)
def test_an_invalid_answer_is_refused(data: bytes, nonce: bytes, now: Instant, reason: Reason) -> None:
    with pytest.raises(Malformed) as fault:
        read_discovery_reply(data, nonce, CA, now)
    assert fault.value.reason is reason


def test_an_edge_of_another_certificate_authority_is_refused() -> None:
    with pytest.raises(Malformed) as fault:
        read_discovery_reply(RIGHT, NONCE, CertificateAuthority(signing_public_of(CAR_KEY)), NOW)
    assert fault.value.reason is Reason.CERTIFICATE_INVALID


records = st.lists(
    st.builds(SrvRecord, st.integers(0, 3), st.integers(0, 100), st.just("h"), st.integers(1, 65_535)), max_size=10
)


@given(found=records, seed=st.integers(0, 2**32))
def test_srv_records_are_tried_once_each_in_order_of_priority(found: list[SrvRecord], seed: int) -> None:
    random = Random(seed)
    ordered = srv_order(found, [random.random() for _ in found])
    assert Counter(ordered) == Counter(found)
    assert [record.priority for record in ordered] == sorted(record.priority for record in found)


def test_srv_records_of_equal_priority_are_chosen_by_weight() -> None:
    heavy, light, none = SrvRecord(1, 90, "heavy", 1), SrvRecord(1, 10, "light", 1), SrvRecord(1, 0, "none", 1)
    random = Random(1)
    first = Counter(srv_order([light, none, heavy], [random.random() for _ in range(3)])[0].host for _ in range(2_000))
    assert 1_700 < first["heavy"] < 1_900
    assert 100 < first["light"] < 300
