from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given

from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Reason, Refused
from milepost.model.sessions import Publish
from milepost.trust.certificates import revoke
from milepost.trust.signing import Signer, Verifier
from milepost.wire.datagrams import decode, encode, signed_bytes
from strategies import messages
from unit.trust.trusted import AUTHORITY_KEY, DAY_NS, NOW, authority, certificate, drawn, edge_certificate


def signer(name: str = "edge-3", *, role: str = "edge") -> Signer:
    return Signer(drawn(f"{name} signs"), edge_certificate(name, role=role))


def reason_of(verdict: Refused | None) -> Reason | None:
    return None if verdict is None else verdict.reason


ALERT = Message(id=1, source="edge-3", topic="alerts/ice", seen_at=NOW, body=b"slow down")  # type: ignore[arg-type]


@given(messages())
def test_what_an_edge_signed_passes_also_after_the_wire(message: Message) -> None:
    message = replace(message, source=ALERT.source)
    signed = signer().sign(message)
    arrived = decode(encode(Publish(signed)))
    assert isinstance(arrived, Publish)
    assert Verifier(authority()).check(arrived.message, NOW) is None
    assert replace(signed, signature=b"", certificate=b"") == replace(message, signature=b"", certificate=b"")


@pytest.mark.parametrize(
    "change", [{"id": 2}, {"source": "edge-4"}, {"body": b"speed up"}, {"valid_until": NOW}, {"reliable": True}]
)
def test_a_signed_message_that_was_changed_is_refused(change: dict[str, object]) -> None:
    changed = replace(signer().sign(ALERT), **change)  # type: ignore[arg-type]
    assert reason_of(Verifier(authority()).check(changed, NOW)) is Reason.SIGNATURE_INVALID


def test_an_edge_signs_for_nobody_else() -> None:
    signed = signer("edge-4").sign(ALERT)
    assert reason_of(Verifier(authority()).check(signed, NOW)) is Reason.SIGNATURE_INVALID


def test_who_may_not_sign_is_refused() -> None:
    verifier = Verifier(authority())
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


def test_what_a_revoked_edge_signed_is_refused() -> None:
    judge = authority()
    judge.use(revoke(AUTHORITY_KEY, None, [edge_certificate().serial], NOW))
    assert reason_of(Verifier(judge).check(signer().sign(ALERT), NOW)) is Reason.CERTIFICATE_REVOKED


def test_a_here_passes_as_it_was_signed_and_in_no_other_way() -> None:
    verifier, one = Verifier(authority()), edge_certificate()
    data = b"\x07" + b"n" * 16 + one.data
    signature = signer().sign_here(data)
    assert verifier.check_here(data, one, signature, NOW) is None
    assert reason_of(verifier.check_here(data + b"x", one, signature, NOW)) is Reason.SIGNATURE_INVALID
    assert reason_of(verifier.check_here(data, certificate(), signature, NOW)) is Reason.CERTIFICATE_ROLE
    signed = signer().sign(ALERT)
    assert reason_of(verifier.check(replace(signed, signature=signature), NOW)) is Reason.SIGNATURE_INVALID


def test_a_signature_is_over_its_purpose_and_what_it_is_about() -> None:
    public = Ed25519PublicKey.from_public_bytes(edge_certificate().signing_key)
    public.verify(signer().sign(ALERT).signature, b"milepost message" + signed_bytes(ALERT))
    public.verify(signer().sign_here(b"data"), b"milepost here" + b"data")


def test_a_signer_with_the_certificate_of_another_key_is_our_own_fault() -> None:
    with pytest.raises(AssertionError):
        Signer(drawn("edge-4 signs"), edge_certificate("edge-3"))
