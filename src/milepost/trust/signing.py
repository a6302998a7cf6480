"""Signatures by which endpoints verify messages of the system itself, also if an edge multicast them unencrypted.

    message   Ed25519 over "milepost message" and all of the message but signature and certificate
    HERE      Ed25519 over "milepost here" and all bytes of the datagram before the signature

Invariants:
- only an edge signs, and only its own messages: role `edge`, with a signing key in its certificate;
- a message carries the certificate of its signer, so that endpoints that never met that edge can verify it.
"""

from dataclasses import replace
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from milepost.model.endpoints import edge_source
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.trust.certificates import EDGE, Certificate, CertificateAuthority, read_certificate
from milepost.wire.datagrams import signed_bytes

_MESSAGE_PURPOSE: Final = b"milepost message"
_HERE_PURPOSE: Final = b"milepost here"


def signing_public_of(signing_key: bytes) -> bytes:
    """Return the public key of a signing key."""
    return Ed25519PrivateKey.from_private_bytes(signing_key).public_key().public_bytes_raw()


class Signer:
    """Signs messages of an edge."""

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
    """Verifies signatures of edges under one certificate authority."""

    __slots__ = ("_ca",)

    def __init__(self, ca: CertificateAuthority) -> None:
        self._ca = ca

    def check(self, message: Message, now: Instant) -> Refused | None:
        """Return why the signature is invalid, or None."""
        if not message.signature:
            return Refused(Reason.SIGNATURE_INVALID, "the message is not signed")
        try:
            certificate = read_certificate(message.certificate)
        except Malformed as fault:
            return fault.refused
        if message.source != edge_source(certificate.id):
            return Refused(Reason.SIGNATURE_INVALID, f"the signer {certificate.id!r} is not the source {message.source!r}")
        return self._check(certificate, _MESSAGE_PURPOSE + signed_bytes(message), message.signature, now)

    def check_discovery_reply(self, data: bytes, certificate: Certificate, signature: bytes, now: Instant) -> Refused | None:
        """Check a HERE that contains this certificate; `data` is all of the datagram before the signature."""
        return self._check(certificate, _HERE_PURPOSE + data, signature, now)

    def _check(self, certificate: Certificate, signed: bytes, signature: bytes, now: Instant) -> Refused | None:
        verdict = self._ca.check(certificate, now)
        if verdict is not None:
            return verdict
        if certificate.role != EDGE:
            return Refused(Reason.CERTIFICATE_ROLE, f"the signer {certificate.id!r} has the role {certificate.role}, not {EDGE}")
        if not certificate.signing_key:
            return Refused(Reason.SIGNATURE_INVALID, f"the certificate of {certificate.id!r} has no signing key")
        try:
            Ed25519PublicKey.from_public_bytes(certificate.signing_key).verify(signature, signed)
        except InvalidSignature:
            return Refused(Reason.SIGNATURE_INVALID, f"the signature is not one of {certificate.id!r}")
        return None
