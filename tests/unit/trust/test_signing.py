from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given

from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Reason, Refused
from milepost.model.session_datagrams import PublishDatagram
from milepost.trust.certificates import revoke
from milepost.trust.signing import Signer, Verifier
from milepost.wire.datagrams import decode, encode, signed_bytes
from strategies import messages
from unit.trust.sample_certificates import CA_KEY, DAY_NS, NOW, certificate, certificate_authority, edge_certificate, key_of


def signer(name: str = "edge-3", *, role: str = "edge") -> Signer:
    return Signer(key_of(f"{name} signs"), edge_certificate(name, role=role))


def reason_of(verdict: Refused | None) -> Reason | None:
    return None if verdict is None else verdict.reason


ALERT = Message(id=1, source="@edge/edge-3", topic="alerts/ice", seen_at=NOW, body=b"slow down")  # type: ignore[arg-type]


@given(messages())
def test_a_signed_message_verifies_after_encoding_and_decoding(message: Message) -> None:
    message = replace(message, source=ALERT.source)
    signed = signer().sign(message)
    arrived = decode(encode(PublishDatagram(signed)))
    assert isinstance(arrived, PublishDatagram)
    assert Verifier(certificate_authority()).check(arrived.message, NOW) is None
    assert replace(signed, signature=b"", certificate=b"") == replace(message, signature=b"", certificate=b"")


@pytest.mark.parametrize(
    "change", [{"id": 2}, {"source": "@edge/edge-4"}, {"body": b"speed up"}, {"valid_until": NOW}, {"reliable": True}]
)
def test_an_altered_signed_message_is_refused(change: dict[str, object]) -> None:
    changed = replace(signer().sign(ALERT), **change)  # type: ignore[arg-type]
    assert reason_of(Verifier(certificate_authority()).check(changed, NOW)) is Reason.SIGNATURE_INVALID


def test_an_edge_cannot_sign_for_another_source() -> None:
    signed = signer("edge-4").sign(ALERT)
    assert reason_of(Verifier(certificate_authority()).check(signed, NOW)) is Reason.SIGNATURE_INVALID


def test_a_signer_without_the_edge_role_is_refused() -> None:
    verifier = Verifier(certificate_authority())
    signed = signer().sign(ALERT)
    later = Instant(NOW + 2 * DAY_NS)
    verdicts = [
        verifier.check(ALERT, NOW),
        verifier.check(signer(role="vehicle").sign(ALERT), NOW),
        verifier.check(replace(signed, certificate=certificate(role="edge").data), NOW),
        verifier.check(replace(signed, certificate=edge_certificate("edge-4").data), NOW),
        verifier.check(replace(signed, certificate=b"none"), NOW),
        verifier.check(signed, later),
    ]
    assert [reason_of(verdict) for verdict in verdicts] == [
        Reason.SIGNATURE_INVALID,
        Reason.CERTIFICATE_ROLE,
        Reason.SIGNATURE_INVALID,
        Reason.SIGNATURE_INVALID,
        Reason.CERTIFICATE_INVALID,
        Reason.CERTIFICATE_EXPIRED,
    ]


def test_a_message_signed_by_a_revoked_edge_is_refused() -> None:
    judge = certificate_authority()
    judge.use(revoke(CA_KEY, None, [edge_certificate().serial], NOW))
    assert reason_of(Verifier(judge).check(signer().sign(ALERT), NOW)) is Reason.CERTIFICATE_REVOKED


def test_a_here_verifies_only_unaltered() -> None:
    verifier, one = Verifier(certificate_authority()), edge_certificate()
    data = b"\x07" + b"n" * 16 + one.data
    signature = signer().sign_discovery_reply(data)
    assert verifier.check_discovery_reply(data, one, signature, NOW) is None
    assert reason_of(verifier.check_discovery_reply(data + b"x", one, signature, NOW)) is Reason.SIGNATURE_INVALID
    assert reason_of(verifier.check_discovery_reply(data, certificate(), signature, NOW)) is Reason.CERTIFICATE_ROLE
    signed = signer().sign(ALERT)
    assert reason_of(verifier.check(replace(signed, signature=signature), NOW)) is Reason.SIGNATURE_INVALID


def test_a_signature_covers_its_purpose_and_its_content() -> None:
    public = Ed25519PublicKey.from_public_bytes(edge_certificate().signing_key)
    public.verify(signer().sign(ALERT).signature, b"milepost message" + signed_bytes(ALERT))
    public.verify(signer().sign_discovery_reply(b"data"), b"milepost here" + b"data")


def test_a_signer_with_the_certificate_of_another_key_fails_an_assertion() -> None:
    with pytest.raises(AssertionError):
        Signer(key_of("edge-4 signs"), edge_certificate("edge-3"))
