"""The credentials of an endpoint, and the certificate authority it trusts."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.model.reasons import Malformed, Reason
from milepost.trust.pem import AUTHORITY, CERTIFICATE, PRIVATE_KEY, bytes_from_text
from milepost.wire.sealed import KEY_BYTES

if TYPE_CHECKING:  # MQTT clients do without OpenSSL and protobuf
    from milepost.trust.certificates import Certificate
    from milepost.trust.signing import Signer


@dataclass(frozen=True, slots=True)
class Credentials:
    """Public key of the certificate authority, and the endpoint's certificate and private keys; without these, no encryption."""

    ca: bytes
    certificate: "Certificate | None" = None
    key: bytes = b""
    signing_key: bytes = b""
    """The key of an operator; empty: the endpoint signs no messages."""

    def __post_init__(self) -> None:
        if len(self.ca) != KEY_BYTES:
            detail = f"the public key of the certificate authority has {len(self.ca)} bytes, not {KEY_BYTES}"
            raise Malformed(Reason.FIELD_RANGE, detail)
        if (self.certificate is None) != (not self.key):
            raise Malformed(
                Reason.FIELD_MISSING, "a certificate needs its private key, and the key its certificate: give both or neither"
            )
        if self.certificate is None:
            return
        from milepost.trust.noise import public_of  # noqa: PLC0415

        if public_of(self.key) != self.certificate.key:
            raise Malformed(
                Reason.CERTIFICATE_INVALID, f"the private key does not belong to the certificate of {self.certificate.id!r}"
            )
        from milepost.trust.signing import signing_public_of  # noqa: PLC0415

        if self.signing_key and signing_public_of(self.signing_key) != self.certificate.signing_key:
            raise Malformed(
                Reason.CERTIFICATE_INVALID, f"the signing key does not belong to the certificate of {self.certificate.id!r}"
            )

    @classmethod
    def from_files(cls, *, ca: str | Path, certificate: str | Path | None = None, key: str | Path | None = None) -> "Credentials":
        """Read the files that `milepost trust` writes: authority.pub, NAME.cert and NAME.key."""
        from milepost.trust.certificates import read_certificate  # noqa: PLC0415

        public = bytes_from_text(Path(ca).read_text(), AUTHORITY)
        issued = None if certificate is None else read_certificate(bytes_from_text(Path(certificate).read_text(), CERTIFICATE))
        keys = b"" if key is None else bytes_from_text(Path(key).read_text(), PRIVATE_KEY)
        return cls.from_keys(public, issued, keys)

    @classmethod
    def from_keys(cls, ca: bytes, certificate: "Certificate | None", keys: bytes) -> "Credentials":
        """Return the credentials with the private keys of a file: the signing key is used only by an operator."""
        from milepost.trust.certificates import OPERATOR  # noqa: PLC0415

        is_operator = certificate is not None and certificate.role == OPERATOR
        return cls(ca, certificate, keys[:KEY_BYTES], keys[KEY_BYTES:] if is_operator else b"")


def signer_of(credentials: Credentials | None) -> "Signer":
    """Return the signer of an operator's messages; raise `Malformed` if these are not the credentials of one."""
    from milepost.trust.certificates import OPERATOR  # noqa: PLC0415
    from milepost.trust.signing import Signer  # noqa: PLC0415

    certificate = None if credentials is None else credentials.certificate
    if credentials is None or certificate is None or certificate.role != OPERATOR or not credentials.signing_key:
        raise Malformed(
            Reason.CERTIFICATE_ROLE,
            "only an operator signs messages: give its credentials, made with `milepost trust issue DIR NAME --operator`",
        )
    return Signer(credentials.signing_key, certificate)
