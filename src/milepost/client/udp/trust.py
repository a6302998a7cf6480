"""Whom an endpoint believes, and by what it shows who it is."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.model.reasons import Malformed, Reason
from milepost.trust.texts import AUTHORITY, CERTIFICATE, PRIVATE_KEY, bytes_from_text
from milepost.wire.sealed import KEY_BYTES

if TYPE_CHECKING:  # OpenSSL and protobuf are not wanted by who speaks MQTT
    from milepost.trust.certificates import Certificate


@dataclass(frozen=True, slots=True)
class Trust:
    """The authority's public key, and this endpoint's certificate and private key; without these two nothing is sealed."""

    authority: bytes
    certificate: "Certificate | None" = None
    key: bytes = b""

    def __post_init__(self) -> None:
        if len(self.authority) != KEY_BYTES:
            raise Malformed(Reason.FIELD_RANGE, f"the authority's public key has {len(self.authority)} bytes, not {KEY_BYTES}")
        if (self.certificate is None) != (not self.key):
            raise Malformed(Reason.FIELD_MISSING, "a certificate and its private key come together")
        if self.certificate is None:
            return
        from milepost.trust.noise import public_of  # noqa: PLC0415

        if public_of(self.key) != self.certificate.key:
            raise Malformed(Reason.CERTIFICATE_INVALID, f"the certificate of {self.certificate.id!r} is about another key")

    @classmethod
    def from_files(
        cls, *, authority: str | Path, certificate: str | Path | None = None, key: str | Path | None = None
    ) -> "Trust":
        """The same from the files that `milepost trust` makes: authority.pub, NAME.cert and NAME.key."""
        from milepost.trust.certificates import read_certificate  # noqa: PLC0415

        public = bytes_from_text(Path(authority).read_text(), AUTHORITY)
        shown = None if certificate is None else read_certificate(bytes_from_text(Path(certificate).read_text(), CERTIFICATE))
        static = b"" if key is None else bytes_from_text(Path(key).read_text(), PRIVATE_KEY)[:KEY_BYTES]
        return cls(public, shown, static)
