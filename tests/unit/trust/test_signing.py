from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given

from milepost.broker.state_codec import publication_from_bytes, publication_to_bytes
from milepost.federation.forwarding import publication_of
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import SourceId, edge_source, endpoint_id, service_source
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId, MessageSigner
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason, Refused
from milepost.model.session_datagrams import PublishDatagram
from milepost.model.site_records import EdgeRef, ForwardedMessage
from milepost.trust.certificates import revoke
from milepost.trust.signing import VALIDITY_NS_MAX, Signer, Verifier
from milepost.wire.datagrams import decode, encode, envelope_of, message_from_envelope, signed_bytes
from milepost.wire.records import from_record, to_record
from strategies import messages
from unit.trust.sample_certificates import CA_KEY, DAY_NS, NOW, certificate, certificate_authority, edge_certificate, key_of


def signer(name: str = "edge-3", *, role: str = "edge") -> Signer:
    return Signer(key_of(f"{name} signs"), edge_certificate(name, role=role))


def reason_of(verdict: MessageSigner | Refused | None) -> Reason | None:
    return verdict.reason if isinstance(verdict, Refused) else None


ALERT = Message(
    id=MessageId(1),
    source=edge_source("edge-3"),
    topic="alerts/ice",
    seen_at=NOW,
    valid_until=Instant(NOW + 60 * SECOND_NS),
    address=ToArea(Circle(Place(48.1, 11.6), 500.0), "ice-1"),
    body=b"slow down",
)


@given(messages())
def test_a_signed_message_verifies_after_encoding_and_decoding(message: Message) -> None:
    message = replace(message, source=ALERT.source, seen_at=NOW, valid_until=ALERT.valid_until)
    signed = signer().sign(message)
    arrived = decode(encode(PublishDatagram(signed)))
    assert isinstance(arrived, PublishDatagram)
    assert Verifier(certificate_authority()).check(arrived.message, NOW) == ("edge", "edge-3")
    assert replace(signed, signature=b"", certificate=b"") == replace(message, signature=b"", certificate=b"")


@pytest.mark.parametrize(
    "change",
    [
        {"id": 2},
        {"source": edge_source("edge-4")},
        {"source": "edge-3"},
        {"topic": "alerts/fog"},
        {"seen_at": NOW - 1},
        {"tags": frozenset({"ice"})},
        {"address": ToArea(Circle(Place(48.1, 11.6), 50_000.0), "ice-1")},
        {"address": ToArea(Circle(Place(48.1, 11.6), 500.0), "ice-2")},
        {"address": ToNotified(("ice-1",))},
        {"place": Place(0, 0)},
        {"priority": Priority.EMERGENCY},
        {"fields": {"phase": "cleared"}},
        {"body": b"speed up"},
        {"valid_until": NOW + 3600 * SECOND_NS},
        {"reliable": True},
    ],
)
def test_an_altered_signed_message_is_refused(change: dict[str, object]) -> None:
    changed = replace(signer().sign(ALERT), **change)  # type: ignore[arg-type]
    assert reason_of(Verifier(certificate_authority()).check(changed, NOW)) is Reason.SIGNATURE_INVALID


@pytest.mark.parametrize(
    ("role", "source"),
    [("edge", edge_source("m")), ("service", service_source("m")), ("operator", endpoint_id("m"))],
)
def test_a_role_signs_for_its_own_kind_of_source_only(role: str, source: SourceId) -> None:
    verifier = Verifier(certificate_authority())
    own = signer("m", role=role)
    assert verifier.check(own.sign(replace(ALERT, source=source)), NOW) == (role, "m")
    others: set[SourceId] = {edge_source("m"), service_source("m"), endpoint_id("m"), edge_source("other"), endpoint_id("other")}
    others -= {source}
    verdicts = {reason_of(verifier.check(own.sign(replace(ALERT, source=one)), NOW)) for one in others}
    assert verdicts == {Reason.SIGNATURE_INVALID}


@pytest.mark.parametrize(
    ("valid_until", "reason"),
    [
        (Instant(NOW + VALIDITY_NS_MAX), None),
        (Instant(NOW + VALIDITY_NS_MAX + 1), Reason.SIGNATURE_INVALID),
        (FOREVER, Reason.SIGNATURE_INVALID),
        (NOW, Reason.EXPIRED),
    ],
)
def test_a_signature_is_valid_as_long_as_its_message_and_for_a_day_at_most(valid_until: Instant, reason: Reason | None) -> None:
    signed = signer().sign(replace(ALERT, valid_until=valid_until))
    assert reason_of(Verifier(certificate_authority()).check(signed, Instant(NOW + 1))) is reason


@given(messages())
def test_a_signed_message_verifies_after_its_journey_as_envelope_record_and_stored_state(message: Message) -> None:
    signed = signer().sign(replace(message, source=ALERT.source, seen_at=NOW, valid_until=ALERT.valid_until))
    assert message_from_envelope(envelope_of(signed), signed.topic, signed.body) == signed
    record = from_record(to_record(ForwardedMessage(EdgeRef("north", "edge-3"), 1, signed, qos=int(signed.reliable))))
    assert isinstance(record, ForwardedMessage)
    stored = publication_from_bytes(publication_to_bytes(publication_of(record)))
    assert stored.message_as(reliable=not signed.reliable) == signed


def test_a_signer_without_a_signing_role_is_refused() -> None:
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
        Reason.EXPIRED,
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
