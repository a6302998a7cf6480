"""Signatures by which endpoints verify messages of edges, services and operators, also if an edge multicast them unencrypted.

    message   Ed25519 over "milepost message" and all of the message but signature and certificate
    HERE      Ed25519 over "milepost here" and all bytes of the datagram before the signature

    role of the signer   source of its messages
    edge                 @edge/ID
    service              @service/ID
    operator             ID, an endpoint

Invariants:
- the certificate determines the source: a signer signs only its own messages, and no other role signs at all;
- a message carries the certificate of its signer, so that endpoints that never met the signer can verify it;
- a signature is valid as long as its message: at most `VALIDITY_NS_MAX`, which bounds replay. A message that is valid for ever
  has no valid signature.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from milepost.model.endpoints import SourceId, edge_source, endpoint_id, service_source
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageSigner
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.trust.certificates import (
    EDGE,
    OPERATOR,
    SERVICE,
    Certificate,
    CertificateAuthority,
    read_certificate,
)
from milepost.wire.datagrams import signed_bytes

VALIDITY_NS_MAX: Final = 86_400 * SECOND_NS
"""Maximum validity of a signed message."""

_SOURCES: Final[dict[str, Callable[[str], SourceId]]] = {EDGE: edge_source, SERVICE: service_source, OPERATOR: endpoint_id}
"""The source of a signer's messages, by its role."""

_MESSAGE_PURPOSE: Final = b"milepost message"
_HERE_PURPOSE: Final = b"milepost here"


def signing_public_of(signing_key: bytes) -> bytes:
    """Return the public key of a signing key."""
    return Ed25519PrivateKey.from_private_bytes(signing_key).public_key().public_bytes_raw()


def maybe_source_of(certificate: Certificate) -> SourceId | None:
    """Return the source of the messages that the owner of a certificate may sign; None: its role signs none."""
    make = _SOURCES.get(certificate.role)
    return None if make is None else make(certificate.id)


class Signer:
    """Signs the messages of the owner of one certificate."""

    __slots__ = ("_certificate", "_private")

    def __init__(self, signing_key: bytes, certificate: Certificate) -> None:
        assert signing_public_of(signing_key) == certificate.signing_key, "the certificate is for another signing key"
        self._private = Ed25519PrivateKey.from_private_bytes(signing_key)
        self._certificate = certificate

    def sign(self, message: Message) -> Message:
        """Return the message with signature and certificate."""
        signature, certificate = self.signed(message)
        return replace(message, signature=signature, certificate=certificate)

    def signed(self, message: Message) -> tuple[bytes, bytes]:
        """Return signature and certificate alone."""
        return self._private.sign(_MESSAGE_PURPOSE + signed_bytes(message)), self._certificate.data

    def sign_discovery_reply(self, data: bytes) -> bytes:
        """Return the signature of a HERE; `data` is all of the datagram before the signature."""
        return self._private.sign(_HERE_PURPOSE + data)


class Verifier:
    """Verifies signatures under one certificate authority."""

    __slots__ = ("_ca",)

    def __init__(self, ca: CertificateAuthority) -> None:
        self._ca = ca

    def check(self, message: Message, now: Instant) -> MessageSigner | Refused:
        """Return who signed a message, or why its signature is invalid."""
        if not message.signature:
            return Refused(Reason.SIGNATURE_INVALID, "the message is not signed")
        try:
            certificate = read_certificate(message.certificate)
        except Malformed as fault:
            return fault.refused
        source = maybe_source_of(certificate)
        if source is None:
            return _role_refused(certificate)
        if message.source != source:
            return Refused(Reason.SIGNATURE_INVALID, f"the signer signs for {source!r}, and the source is {message.source!r}")
        refused = _refuse_validity(message, now) or self._check(
            certificate, _MESSAGE_PURPOSE + signed_bytes(message), message.signature, now
        )
        return refused or MessageSigner(certificate.role, certificate.id)

    def check_discovery_reply(self, data: bytes, certificate: Certificate, signature: bytes, now: Instant) -> Refused | None:
        """Check a HERE that contains this certificate; `data` is all of the datagram before the signature."""
        if certificate.role != EDGE:
            return Refused(Reason.CERTIFICATE_ROLE, f"{certificate.id!r} has the role {certificate.role}, not {EDGE}")
        return self._check(certificate, _HERE_PURPOSE + data, signature, now)

    def _check(self, certificate: Certificate, signed: bytes, signature: bytes, now: Instant) -> Refused | None:
        verdict = self._ca.check(certificate, now)
        if verdict is not None:
            return verdict
        if not certificate.signing_key:
            return Refused(Reason.SIGNATURE_INVALID, f"the certificate of {certificate.id!r} has no signing key")
        try:
            Ed25519PublicKey.from_public_bytes(certificate.signing_key).verify(signature, signed)
        except InvalidSignature:
            return Refused(Reason.SIGNATURE_INVALID, f"the signature is not one of {certificate.id!r}")
        return None


def _role_refused(certificate: Certificate) -> Refused:
    roles = ", ".join(_SOURCES)
    return Refused(Reason.CERTIFICATE_ROLE, f"the signer {certificate.id!r} has the role {certificate.role}, not one of {roles}")


def _refuse_validity(message: Message, now: Instant) -> Refused | None:
    """Refuse a signed message that could be replayed for longer than `VALIDITY_NS_MAX`, or whose validity is over."""
    if message.valid_until - message.seen_at > VALIDITY_NS_MAX:
        hours = VALIDITY_NS_MAX // (3_600 * SECOND_NS)
        return Refused(Reason.SIGNATURE_INVALID, f"a signed message must be valid for at most {hours} hours")
    if message.is_expired(now):
        return Refused(Reason.EXPIRED, "the validity of the signed message is over")
    return None
