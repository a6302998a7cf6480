import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.trust import certificates
from milepost.trust.certificates import (
    REVOKED_MAX,
    Certificate,
    CertificateAuthority,
    Revocations,
    read_certificate,
    read_revocations,
    revoke,
)
from milepost.wire._generated import datagram_pb2 as pb
from unit.trust.sample_certificates import AUTHORITY_PUBLIC, CA_KEY, DAY_NS, NOW, certificate, certificate_authority, key_of


class Counting:
    """A public key that counts its verifications."""

    def __init__(self, judge: CertificateAuthority) -> None:
        self.asked = 0
        self._real = judge._public
        judge._public = self  # type: ignore[assignment]

    def verify(self, signature: bytes, data: bytes) -> None:
        self.asked += 1
        self._real.verify(signature, data)


def reason_of(verdict: Refused | None) -> Reason | None:
    return None if verdict is None else verdict.reason


def test_a_certificate_is_valid_from_its_first_to_its_last_instant() -> None:
    judge, one = certificate_authority(), certificate()
    verdicts = [
        reason_of(judge.check(one, Instant(at)))
        for at in (one.not_before - 1, one.not_before, NOW, one.not_after, one.not_after + 1)
    ]
    assert verdicts == [Reason.CERTIFICATE_EXPIRED, None, None, None, Reason.CERTIFICATE_EXPIRED]


def test_a_certificate_of_another_certificate_authority_is_refused_each_time() -> None:
    judge, forged = certificate_authority(), certificate(key=key_of("another authority"))
    assert [reason_of(judge.check(forged, NOW)) for _ in range(2)] == [Reason.CERTIFICATE_INVALID] * 2


@given(st.data())
def test_a_certificate_with_any_bit_changed_is_refused(draw: st.DataObject) -> None:
    data = bytearray(certificate().data)
    at = draw.draw(st.integers(0, len(data) * 8 - 1))
    data[at // 8] ^= 1 << at % 8
    judge = certificate_authority()
    assert judge.check(certificate(), NOW) is None
    try:
        verdict = judge.check(read_certificate(bytes(data)), NOW)
    except Malformed:
        return
    assert reason_of(verdict) is Reason.CERTIFICATE_INVALID


def test_a_signature_is_verified_once_validity_and_revocation_each_time() -> None:
    judge, one = certificate_authority(), certificate(serial=5)
    key = Counting(judge)
    assert [judge.check(one, NOW) for _ in range(3)] == [None] * 3
    assert key.asked == 1
    assert reason_of(judge.check(one, Instant(NOW + 2 * DAY_NS))) is Reason.CERTIFICATE_EXPIRED
    judge.use(revoke(CA_KEY, None, [5], NOW))
    assert reason_of(judge.check(one, NOW)) is Reason.CERTIFICATE_REVOKED
    assert key.asked == 1


def test_the_signature_cache_is_bounded_and_evicts_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "CACHED_MAX", 2)
    judge = certificate_authority()
    key = Counting(judge)
    first, second, third = (certificate(name) for name in "abc")
    for one in (first, second, third, third, second, first):
        assert judge.check(one, NOW) is None
    assert key.asked == 4


def test_a_newer_revocation_list_is_used_and_an_older_one_refused() -> None:
    judge = certificate_authority()
    old = revoke(CA_KEY, None, [1], NOW)
    new = revoke(CA_KEY, old, [2], NOW)
    judge.use(old)
    judge.use(new)
    judge.use(new)
    assert judge.revoked == {1, 2}
    with pytest.raises(Malformed, match="older"):
        judge.use(old)
    assert [judge.is_revoked(serial) for serial in (1, 2, 3)] == [True, True, False]


def test_a_revocation_list_grows_and_is_newer_than_its_predecessor_even_if_the_clock_was_set_back() -> None:
    first = revoke(CA_KEY, None, [7, 7, 3], NOW)
    second = revoke(CA_KEY, first, [5], Instant(NOW - DAY_NS))
    third = revoke(CA_KEY, second, [], Instant(NOW + DAY_NS))
    assert [sorted(one.serials) for one in (first, second, third)] == [[3, 7], [3, 5, 7], [3, 5, 7]]
    assert (first.issued_at, second.issued_at, third.issued_at) == (NOW, NOW + 1, NOW + DAY_NS)


@given(st.sets(st.integers(0, 2**64 - 1), max_size=20))
def test_a_revocation_list_reads_back_as_signed(serials: set[int]) -> None:
    signed = revoke(CA_KEY, None, serials, NOW)
    assert read_revocations(signed.data, AUTHORITY_PUBLIC) == signed == Revocations(NOW, frozenset(serials), signed.data)


@given(st.data())
def test_a_revocation_list_with_any_bit_changed_is_refused(draw: st.DataObject) -> None:
    data = bytearray(revoke(CA_KEY, None, [1, 2], NOW).data)
    at = draw.draw(st.integers(0, len(data) * 8 - 1))
    data[at // 8] ^= 1 << at % 8
    with pytest.raises(Malformed):
        read_revocations(bytes(data), AUTHORITY_PUBLIC)


@given(st.binary(max_size=100))
def test_arbitrary_bytes_are_no_revocation_list(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_revocations(data, AUTHORITY_PUBLIC)


def test_a_revocation_list_of_another_certificate_authority_is_refused() -> None:
    with pytest.raises(Malformed) as caught:
        read_revocations(revoke(key_of("another authority"), None, [], NOW).data, AUTHORITY_PUBLIC)
    assert caught.value.reason is Reason.SIGNATURE_INVALID


def test_a_certificate_does_not_pass_as_a_revocation_list() -> None:
    one: Certificate = certificate()
    with pytest.raises(Malformed) as caught:
        read_revocations(one.data, AUTHORITY_PUBLIC)
    assert caught.value.reason is Reason.SIGNATURE_INVALID
    assert pb.Revocations.FromString(one.data).body


def test_the_length_of_a_revocation_list_is_limited() -> None:
    with pytest.raises(Malformed, match="are allowed"):
        revoke(CA_KEY, None, range(REVOKED_MAX + 1), NOW)
