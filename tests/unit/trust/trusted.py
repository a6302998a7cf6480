"""An authority, keys and certificates for tests: the same each time."""

from hashlib import sha256
from typing import Final

from milepost.model.instants import SECOND_NS, Instant
from milepost.trust.certificates import EDGE, Authority, Certificate, issue
from milepost.trust.noise import public_of
from milepost.trust.signing import signing_public_of

NOW: Final = Instant(1_900_000_000 * SECOND_NS)
DAY_NS: Final = 86_400 * SECOND_NS


def drawn(name: str) -> bytes:
    """A key for tests, by a name."""
    return sha256(name.encode()).digest()


AUTHORITY_KEY: Final = drawn("authority")
AUTHORITY_PUBLIC: Final = signing_public_of(AUTHORITY_KEY)


def authority() -> Authority:
    """The authority as others know it, with nothing revoked."""
    return Authority(AUTHORITY_PUBLIC)


def certificate(
    name: str = "truck-17", *, role: str = "vehicle", serial: int = 1, key: bytes = AUTHORITY_KEY, signing_key: bytes = b""
) -> Certificate:
    """A certificate that is valid for a day before and after `NOW`."""
    return issue(
        key,
        id=name,
        role=role,
        key=public_of(drawn(name)),
        not_before=Instant(NOW - DAY_NS),
        not_after=Instant(NOW + DAY_NS),
        serial=serial,
        signing_key=signing_key,
    )


def edge_certificate(name: str = "edge-3", *, role: str = EDGE) -> Certificate:
    """A certificate with a signing key."""
    return certificate(name, role=role, serial=2, signing_key=signing_public_of(drawn(f"{name} signs")))
