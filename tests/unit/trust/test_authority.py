import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.trust import certificates as room
from milepost.trust.certificates import (
    REVOKED_MAX,
    Authority,
    Certificate,
    Revocations,
    read_certificate,
    read_revocations,
    revoke,
)
from milepost.wire._generated import datagram_pb2 as pb
from unit.trust.trusted import AUTHORITY_KEY, AUTHORITY_PUBLIC, DAY_NS, NOW, authority, certificate, drawn


class Counting:
    """A public key that counts how often it is asked."""

    def __init__(self, judge: Authority) -> None:
        self.asked = 0
        self._real = judge._public
        judge._public = self  # type: ignore[assignment]

    def verify(self, signature: bytes, data: bytes) -> None:
        self.asked += 1
        self._real.verify(signature, data)


def reason_of(verdict: Refused | None) -> Reason | None:
    return None if verdict is None else verdict.reason


def test_a_certificate_holds_from_its_first_to_its_last_instant() -> None:
    judge, one = authority(), certificate()
    verdicts = [
        reason_of(judge.check(one, Instant(at)))
        for at in (one.not_before - 1, one.not_before, NOW, one.not_after, one.not_after + 1)
    ]
    assert verdicts == [Reason.CERTIFICATE_EXPIRED, None, None, None, Reason.CERTIFICATE_EXPIRED]


def test_a_certificate_of_another_authority_is_refused_each_time() -> None:
    judge, forged = authority(), certificate(key=drawn("another authority"))
    assert [reason_of(judge.check(forged, NOW)) for _ in range(2)] == [Reason.CERTIFICATE_INVALID] * 2


@given(st.data())
def test_a_certificate_with_any_bit_changed_is_refused(draw: st.DataObject) -> None:
    data = bytearray(certificate().data)
    at = draw.draw(st.integers(0, len(data) * 8 - 1))
    data[at // 8] ^= 1 << at % 8
    judge = authority()
    assert judge.check(certificate(), NOW) is None
    try:
        verdict = judge.check(read_certificate(bytes(data)), NOW)
    except Malformed:
        return
    assert reason_of(verdict) is Reason.CERTIFICATE_INVALID


def test_a_signature_is_verified_once_validity_and_revocation_each_time() -> None:
    judge, one = authority(), certificate(serial=5)
    key = Counting(judge)
    assert [judge.check(one, NOW) for _ in range(3)] == [None] * 3
    assert key.asked == 1
    assert reason_of(judge.check(one, Instant(NOW + 2 * DAY_NS))) is Reason.CERTIFICATE_EXPIRED
    judge.use(revoke(AUTHORITY_KEY, None, [5], NOW))
    assert reason_of(judge.check(one, NOW)) is Reason.CERTIFICATE_REVOKED
    assert key.asked == 1


def test_what_is_remembered_is_bounded_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "REMEMBERED_MAX", 2)
    judge = authority()
    key = Counting(judge)
    first, second, third = (certificate(name) for name in "abc")
    for one in (first, second, third, third, second, first):
        assert judge.check(one, NOW) is None
    assert key.asked == 4


def test_a_newer_list_is_used_an_older_one_is_refused_and_changes_nothing() -> None:
    judge = authority()
    old = revoke(AUTHORITY_KEY, None, [1], NOW)
    new = revoke(AUTHORITY_KEY, old, [2], NOW)
    judge.use(old)
    judge.use(new)
    judge.use(new)
    assert judge.revoked == {1, 2}
    with pytest.raises(Malformed, match="older"):
        judge.use(old)
    assert [judge.is_revoked(serial) for serial in (1, 2, 3)] == [True, True, False]


def test_a_list_grows_and_is_newer_than_the_one_before_whatever_the_clock_says() -> None:
    first = revoke(AUTHORITY_KEY, None, [7, 7, 3], NOW)
    second = revoke(AUTHORITY_KEY, first, [5], Instant(NOW - DAY_NS))
    third = revoke(AUTHORITY_KEY, second, [], Instant(NOW + DAY_NS))
    assert [sorted(one.serials) for one in (first, second, third)] == [[3, 7], [3, 5, 7], [3, 5, 7]]
    assert (first.issued_at, second.issued_at, third.issued_at) == (NOW, NOW + 1, NOW + DAY_NS)


@given(st.sets(st.integers(0, 2**64 - 1), max_size=20))
def test_a_list_is_read_again_as_it_was_signed(serials: set[int]) -> None:
    signed = revoke(AUTHORITY_KEY, None, serials, NOW)
    assert read_revocations(signed.data, AUTHORITY_PUBLIC) == signed == Revocations(NOW, frozenset(serials), signed.data)


@given(st.data())
def test_a_list_with_any_bit_changed_is_refused(draw: st.DataObject) -> None:
    data = bytearray(revoke(AUTHORITY_KEY, None, [1, 2], NOW).data)
    at = draw.draw(st.integers(0, len(data) * 8 - 1))
    data[at // 8] ^= 1 << at % 8
    with pytest.raises(Malformed):
        read_revocations(bytes(data), AUTHORITY_PUBLIC)


@given(st.binary(max_size=100))
def test_any_bytes_are_no_list(data: bytes) -> None:
    with pytest.raises(Malformed):
        read_revocations(data, AUTHORITY_PUBLIC)


def test_a_list_of_another_authority_is_refused() -> None:
    with pytest.raises(Malformed) as caught:
        read_revocations(revoke(drawn("another authority"), None, [], NOW).data, AUTHORITY_PUBLIC)
    assert caught.value.reason is Reason.SIGNATURE_INVALID


def test_a_certificate_is_no_list_though_the_same_key_signed_it() -> None:
    one: Certificate = certificate()
    with pytest.raises(Malformed) as caught:
        read_revocations(one.data, AUTHORITY_PUBLIC)
    assert caught.value.reason is Reason.SIGNATURE_INVALID
    assert pb.Revocations.FromString(one.data).body


def test_a_list_has_a_greatest_length() -> None:
    with pytest.raises(Malformed, match="are allowed"):
        revoke(AUTHORITY_KEY, None, range(REVOKED_MAX + 1), NOW)
