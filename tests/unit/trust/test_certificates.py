import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.instants import FOREVER, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.trust.certificates import SERIAL_MAX, issue, read_certificate
from milepost.wire._generated import datagram_pb2 as pb
from unit.trust.sample_certificates import AUTHORITY_PUBLIC, CA_KEY, certificate, edge_certificate

GOOD = {"id": "a", "role": "vehicle", "key": b"k" * 32, "not_before": 1, "not_after": 2, "serial": 3}
instants = st.integers(0, FOREVER - 1)


def encoded(body: bytes, signature: bytes = b"s" * 64) -> bytes:
    data: bytes = pb.Certificate(body=body, signature=signature).SerializeToString()
    return data


def body(**changes: object) -> bytes:
    fields = {name: value for name, value in (GOOD | changes).items() if value is not None}
    data: bytes = pb.CertificateBody(**fields).SerializeToString()  # type: ignore[arg-type]
    return data


@given(
    st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=32),
    st.from_regex(r"[a-z0-9-]{1,32}", fullmatch=True),
    st.binary(min_size=32, max_size=32),
    st.tuples(instants, instants).map(sorted),
    st.integers(1, SERIAL_MAX),
    st.sampled_from([b"", b"z" * 32]),
)
def test_an_issued_certificate_reads_back_the_same(
    name: str, role: str, key: bytes, times: list[int], serial: int, signing: bytes
) -> None:
    start, end = (Instant(time) for time in times)
    issued = issue(CA_KEY, id=name, role=role, key=key, not_before=start, not_after=end, serial=serial, signing_key=signing)
    assert read_certificate(issued.data) == issued
    assert (issued.id, issued.role, issued.key, issued.signing_key) == (name, role, key, signing)
    assert (issued.not_before, issued.not_after, issued.serial) == (start, end, serial)


def test_the_signature_covers_the_purpose_and_the_body() -> None:
    whole = pb.Certificate.FromString(certificate().data)
    Ed25519PublicKey.from_public_bytes(AUTHORITY_PUBLIC).verify(whole.signature, b"milepost certificate" + whole.body)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"id": None}, "CertificateBody.id is missing"),
        ({"role": None}, "role is missing"),
        ({"key": None}, "key is missing"),
        ({"not_before": None}, "not_before is missing"),
        ({"not_after": None}, "not_after is missing"),
        ({"serial": None}, "serial is missing"),
        ({"id": ""}, "it is empty"),
        ({"id": "a\n"}, "at 1"),
        ({"id": "é" * 65}, "130 bytes"),
        ({"role": ""}, "the role is ''"),
        ({"role": "Edge"}, "the role is 'Edge'"),
        ({"role": "a" * 33}, "the role is"),
        ({"role": "edge\n"}, "the role is"),
        ({"key": b"k" * 31}, "31 and 0 bytes"),
        ({"signing_key": b"k" * 33}, "32 and 33 bytes"),
        ({"not_after": 2**63 - 1}, "not_after is"),
        ({"not_before": 2**64 - 1}, "not_before is"),
        ({"not_before": 3}, "not_after is before not_before"),
        ({"serial": 0}, "the serial number is 0"),
    ],
)
def test_an_invalid_certificate_body_is_refused(changes: dict[str, object], complaint: str) -> None:
    assert read_certificate(encoded(body())).role == "vehicle"
    with pytest.raises(Malformed) as caught:
        read_certificate(encoded(body(**changes)))
    assert caught.value.reason is Reason.CERTIFICATE_INVALID
    assert complaint in caught.value.detail


@pytest.mark.parametrize(
    "changes",
    [{"id": "\ud800"}, {"role": "\ud800"}, {"serial": 0}, {"serial": 2**64}, {"not_before": -1}, {"key": b""}, {"not_after": 0}],
)
def test_invalid_fields_are_not_signed(changes: dict[str, object]) -> None:
    with pytest.raises(Malformed):
        issue(CA_KEY, **(GOOD | changes))  # type: ignore[arg-type]


def test_a_certificate_has_one_canonical_encoding() -> None:
    data = certificate().data
    whole = pb.Certificate.FromString(data)
    backwards = (
        pb.Certificate(signature=whole.signature).SerializeToString() + pb.Certificate(body=whole.body).SerializeToString()
    )
    for other in (data + b"\x18\x01", data + data, backwards):
        assert pb.Certificate.FromString(other).body == whole.body
        with pytest.raises(Malformed, match="canonical"):
            read_certificate(other)


@pytest.mark.parametrize("size", [0, 63, 65])
def test_a_signature_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(Malformed, match=f"the signature has {size} bytes"):
        read_certificate(encoded(body(), b"s" * size))


def test_more_than_1000_bytes_are_no_certificate() -> None:
    with pytest.raises(Malformed, match="it has 1001 bytes"):
        read_certificate(bytes(1001))


@given(st.binary(max_size=1100), st.booleans())
def test_arbitrary_bytes_are_no_certificate(data: bytes, is_body: bool) -> None:
    with pytest.raises(Malformed) as caught:
        read_certificate(encoded(data) if is_body else data)
    assert caught.value.reason is Reason.CERTIFICATE_INVALID


def test_a_certificate_with_the_longest_names_fits() -> None:
    assert len(edge_certificate("x" * 128, role="r" * 32).data) <= 400
