"""A certificate authority, keys and certificates for tests, deterministic."""

from hashlib import sha256
from typing import Final

from milepost.model.instants import SECOND_NS, Instant
from milepost.trust.certificates import EDGE, Certificate, CertificateAuthority, issue
from milepost.trust.noise import public_of
from milepost.trust.signing import signing_public_of

NOW: Final = Instant(1_900_000_000 * SECOND_NS)
DAY_NS: Final = 86_400 * SECOND_NS


def key_of(name: str) -> bytes:
    """Return the key of a name."""
    return sha256(name.encode()).digest()


CA_KEY: Final = key_of("authority")
AUTHORITY_PUBLIC: Final = signing_public_of(CA_KEY)


def certificate_authority() -> CertificateAuthority:
    """Return the certificate authority as its clients see it, with nothing revoked."""
    return CertificateAuthority(AUTHORITY_PUBLIC)


def certificate(
    name: str = "truck-17", *, role: str = "vehicle", serial: int = 1, key: bytes = CA_KEY, signing_key: bytes = b""
) -> Certificate:
    """Return a certificate valid for a day before and after `NOW`."""
    return issue(
        key,
        id=name,
        role=role,
        key=public_of(key_of(name)),
        not_before=Instant(NOW - DAY_NS),
        not_after=Instant(NOW + DAY_NS),
        serial=serial,
        signing_key=signing_key,
    )


def edge_certificate(name: str = "edge-3", *, role: str = EDGE) -> Certificate:
    """Return a certificate with a signing key."""
    return certificate(name, role=role, serial=2, signing_key=signing_public_of(key_of(f"{name} signs")))
