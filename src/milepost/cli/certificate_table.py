"""Content of key, certificate and revocation files as text: a line for each key and list, a table of certificates."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from milepost.model.instants import Instant
from milepost.model.reasons import Reason
from milepost.runtime.certificate_authority import AUTHORITY, REVOKED, issued_in, public_keys_of, revoked_in, serial_text
from milepost.runtime.trust_files import (
    KeyFile,
    TrustFileType,
    kind_of,
    read_authority,
    read_authority_key,
    read_certificate_file,
    read_key,
    read_public_key,
    read_revoked,
    read_site_key,
)
from milepost.trust.certificates import Certificate, CertificateAuthority, RevocationScope
from milepost.trust.signing import signing_public_of
from milepost.wire.times import instant_to_text

_HEAD: Final = ("id", "role", "serial", "valid from", "valid until", "state")


def shown_files(paths: Sequence[Path], now: Instant) -> str:
    """Describe each file; of a folder, its authority and all issued certificates."""
    lines: list[str] = []
    rows: list[tuple[str, ...]] = []
    for path in paths:
        if path.is_dir():
            lines += [_line(path / name) for name in (AUTHORITY, REVOKED)]
            authority = _maybe_authority(path)
            rows += [_row(certificate, authority, now) for certificate in issued_in(path)]
        elif kind_of(path) is TrustFileType.CERTIFICATE:
            rows.append(_row(read_certificate_file(path), _maybe_authority(path.parent), now))
        else:
            lines.append(_line(path))
    return "\n".join([*lines, *(_table([_HEAD, *rows]) if rows else [])])


def _maybe_authority(folder: Path) -> CertificateAuthority | None:
    """Return the authority of a folder, to check certificates; without a revocation list nothing is revoked."""
    if not (folder / AUTHORITY).exists():
        return None
    authority = CertificateAuthority(read_authority(folder / AUTHORITY))
    if (folder / REVOKED).exists():
        authority.use(revoked_in(folder))
    return authority


def _line(path: Path) -> str:
    match kind_of(path):
        case TrustFileType.KEY:
            return f"{path}: a private key, of the public key {_hex(public_keys_of(read_key(path)))}"
        case TrustFileType.PUBLIC_KEY:
            return f"{path}: a public key, {_hex(read_public_key(path))}"
        case TrustFileType.AUTHORITY_KEY:
            return f"{path}: the private key of the CA {signing_public_of(read_authority_key(path)).hex()}"
        case TrustFileType.AUTHORITY:
            return f"{path}: the CA {read_authority(path).hex()}"
        case TrustFileType.SITE_KEY:
            return f"{path}: the key of a site's log, with the fingerprint {sha256(read_site_key(path)).hexdigest()[:16]}"
        case TrustFileType.REVOKED | TrustFileType.CERTIFICATE:
            revoked = read_revoked(path, read_authority(path.with_name(AUTHORITY)))
            return f"{path}: {len(revoked.serials)} revoked, signed at {instant_to_text(revoked.issued_at)}"
        case TrustFileType.REVOKED_SIGNERS:
            revoked = read_revoked(path, read_authority(path.with_name(AUTHORITY)), RevocationScope.SIGNERS)
            return f"{path}: {len(revoked.serials)} revoked signers, signed at {instant_to_text(revoked.issued_at)}"


def _hex(keys: KeyFile) -> str:
    return keys.static.hex() + (f", signing {keys.signing.hex()}" if keys.signing else "")


def _row(certificate: Certificate, authority: CertificateAuthority | None, now: Instant) -> tuple[str, ...]:
    return (
        certificate.id,
        certificate.role,
        serial_text(certificate.serial),
        instant_to_text(certificate.not_before),
        instant_to_text(certificate.not_after),
        _state(certificate, authority, now),
    )


def _state(certificate: Certificate, authority: CertificateAuthority | None, now: Instant) -> str:
    if authority is None:
        return f"not verified: no {AUTHORITY} in its folder"
    verdict = authority.check(certificate, now)
    if verdict is None:
        return "valid"
    if verdict.reason is Reason.CERTIFICATE_EXPIRED:
        return "not yet valid" if now < certificate.not_before else "expired"
    return "revoked" if verdict.reason is Reason.CERTIFICATE_REVOKED else "of another CA"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
