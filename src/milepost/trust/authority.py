"""The authority as those who trust it know it: its public key, and its latest list of revocations.

What must hold:
- a certificate passes if the authority signed it, its time has come and is not over, and it is not revoked, in this order;
- only a right signature is remembered; validity and revocation are asked each time;
- lists go forward: once a newer list is in use, an older one is refused, however well signed.
"""

from collections import OrderedDict
from hashlib import sha256
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from milepost.model.instants import BEGINNING, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.trust.certificates import CERTIFICATE_PURPOSE, Certificate, body_and_signature
from milepost.trust.revocations import Revocations

REMEMBERED_MAX: Final = 100_000
"""The most certificates whose signature need not be verified again; the oldest is forgotten first."""


class Authority:
    """Judges certificates by one authority's public key."""

    __slots__ = ("_issued_at", "_public", "_remembered", "revoked")

    def __init__(self, public_key: bytes) -> None:
        self._public = Ed25519PublicKey.from_public_bytes(public_key)
        self._remembered: OrderedDict[bytes, None] = OrderedDict()
        self._issued_at = BEGINNING
        self.revoked: frozenset[int] = frozenset()
        """The serial numbers of the list in use."""

    def check(self, certificate: Certificate, now: Instant) -> Refused | None:
        """The verdict on a certificate; None = it holds."""
        if not self._is_signed(certificate.data):
            return Refused(Reason.CERTIFICATE_INVALID, f"this authority did not sign the certificate of {certificate.id!r}")
        if now < certificate.not_before:
            return Refused(Reason.CERTIFICATE_EXPIRED, f"the certificate of {certificate.id!r} is not valid yet")
        if now > certificate.not_after:
            return Refused(Reason.CERTIFICATE_EXPIRED, f"the certificate of {certificate.id!r} is no longer valid")
        if self.is_revoked(certificate.serial):
            return Refused(Reason.CERTIFICATE_REVOKED, f"the certificate {certificate.serial:016x} of {certificate.id!r}")
        return None

    def use(self, revocations: Revocations) -> None:
        """Go by this list from now on; `Malformed` if it is older than the one in use, which then stays."""
        if revocations.issued_at < self._issued_at:
            raise Malformed(Reason.TIME_RANGE, "the list of revocations is older than the one in use")
        self._issued_at = revocations.issued_at
        self.revoked = revocations.serials

    def is_revoked(self, serial: int) -> bool:
        """Whether the list in use has this serial number."""
        return serial in self.revoked

    def _is_signed(self, data: bytes) -> bool:
        digest = sha256(data).digest()
        if digest in self._remembered:
            return True
        body, signature = body_and_signature(data)
        try:
            self._public.verify(signature, CERTIFICATE_PURPOSE + body)
        except InvalidSignature:
            return False
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        self._remembered[digest] = None
        return True
