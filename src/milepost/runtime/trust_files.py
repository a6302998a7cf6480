"""Files of keys, certificates and revocation lists, as PEM-like text.

Invariants:
- a private key file is readable by its owner only, from before it has content; all other files are readable by everybody;
- a file is created new, or replaced atomically: no process reads half of one;
- an unreadable file raises a `UsageFault` that says what to do.
"""

import os
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from milepost.config.errors import COPY_FROM_AUTHORITY, UsageFault, cannot_read
from milepost.model.reasons import Malformed
from milepost.runtime.files import text_of
from milepost.trust.certificates import Certificate, Revocations, RevocationScope, read_certificate, read_revocations
from milepost.trust.pem import AUTHORITY, CERTIFICATE, PRIVATE_KEY, SITE_KEY, bytes_from_text, text_from_bytes, title_of
from milepost.wire.sealed import KEY_BYTES


class TrustFileType(Enum):
    """Type of a file: its title line, and its name in messages."""

    AUTHORITY_KEY = "AUTHORITY PRIVATE KEY", "the private key of a certificate authority"
    AUTHORITY = AUTHORITY, "the public key of a certificate authority"
    KEY = PRIVATE_KEY, "a private key"
    PUBLIC_KEY = "PUBLIC KEY", "a public key"
    CERTIFICATE = CERTIFICATE, "a certificate"
    REVOKED = "REVOCATIONS", "a revocation list"
    SITE_KEY = SITE_KEY, "the key of a site's log"
    REVOKED_SIGNERS = "REVOKED SIGNERS", "a list of revoked signers"

    def __init__(self, title: str, label: str) -> None:
        self.title = title
        self.label = label

    @property
    def is_secret(self) -> bool:
        """Whether only the owner may read it."""
        return self in (TrustFileType.AUTHORITY_KEY, TrustFileType.KEY, TrustFileType.SITE_KEY)


class KeyFile(NamedTuple):
    """The private or the public keys of an endpoint: X25519, and Ed25519 if it signs."""

    static: bytes
    signing: bytes
    """Empty if it signs nothing."""


def read_key(path: Path) -> KeyFile:
    """Read the private keys of a file."""
    return _keys(path, TrustFileType.KEY)


def read_public_key(path: Path) -> KeyFile:
    """Read the public keys of a file."""
    return _keys(path, TrustFileType.PUBLIC_KEY)


def read_certificate_file(path: Path) -> Certificate:
    """Read the certificate of a file; its signature is not checked."""
    data = _read(path, TrustFileType.CERTIFICATE)
    try:
        return read_certificate(data)
    except Malformed as fault:
        raise UsageFault(
            f"{path} has no valid certificate ({fault.detail}): get it again from its certificate authority"
        ) from None


def read_authority(path: Path) -> bytes:
    """Read the public key of the certificate authority."""
    return _sized(path, _read(path, TrustFileType.AUTHORITY))


def read_authority_key(path: Path) -> bytes:
    """Read the private key of the certificate authority."""
    return _sized(path, _read(path, TrustFileType.AUTHORITY_KEY))


def read_site_key(path: Path) -> bytes:
    """Read the key of a site's log."""
    return _sized(path, _read(path, TrustFileType.SITE_KEY))


def read_revoked(path: Path, authority_public: bytes, scope: RevocationScope = RevocationScope.ALL) -> Revocations:
    """Read a revocation list; refuse one that is not signed by this authority."""
    try:
        path.stat()
    except OSError as error:
        raise cannot_read(path, error, remedy=COPY_FROM_AUTHORITY) from None
    data = _read(path, TrustFileType.REVOKED if scope is RevocationScope.ALL else TrustFileType.REVOKED_SIGNERS)
    try:
        return read_revocations(data, authority_public, scope)
    except Malformed as fault:
        raise UsageFault(f"{path} is not valid ({fault.detail}): copy it from the folder of the CA again") from None


def kind_of(path: Path) -> TrustFileType:
    """Return the type of a file, by its title."""
    return _parted(path)[0]


def write_new(path: Path, kind: TrustFileType, data: bytes) -> None:
    """Create a file; refuse one that exists."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageFault(f"{path} exists already: move it away, or write to another folder (--out)") from None
    except OSError as error:
        raise _cannot_write(path, error) from None
    try:
        _fill(file, kind, data)
    except OSError as error:
        path.unlink()
        raise _cannot_write(path, error) from None


def replace_file(path: Path, kind: TrustFileType, data: bytes) -> None:
    """Replace a file that other processes may be reading."""
    new_file = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _fill(os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), kind, data)
        new_file.replace(path)
    except OSError as error:
        new_file.unlink(missing_ok=True)
        raise _cannot_write(path, error) from None


def _fill(file: int, kind: TrustFileType, data: bytes) -> None:
    with os.fdopen(file, "w") as stream:
        if not kind.is_secret:
            os.fchmod(file, 0o644)
        stream.write(text_from_bytes(kind.title, data))
        stream.flush()
        os.fsync(file)


def _keys(path: Path, kind: TrustFileType) -> KeyFile:
    data = _read(path, kind)
    if len(data) not in (KEY_BYTES, 2 * KEY_BYTES):
        raise _damaged(path)
    return KeyFile(data[:KEY_BYTES], data[KEY_BYTES:])


def _sized(path: Path, key: bytes) -> bytes:
    if len(key) != KEY_BYTES:
        raise _damaged(path)
    return key


def _read(path: Path, kind: TrustFileType) -> bytes:
    found, data = _parted(path)
    if found is not kind:
        raise UsageFault(f"{path} has {found.label}, not {kind.label}: correct the path")
    return data


def _parted(path: Path) -> tuple[TrustFileType, bytes]:
    """Return the type of a file, by its title, and its decoded content."""
    text = text_of(path)
    kind = next((kind for kind in TrustFileType if kind.title == title_of(text)), None)
    if kind is None:
        raise UsageFault(f"{path} is not a file of `milepost trust` (key, certificate or revocation list): correct the path")
    try:
        return kind, bytes_from_text(text, kind.title)
    except Malformed:
        raise _damaged(path) from None


def _damaged(path: Path) -> UsageFault:
    return UsageFault(f"{path} is truncated or damaged: copy it again from the original")


def _cannot_write(path: Path, error: OSError) -> UsageFault:
    return UsageFault(f"{path} cannot be written: {error.strerror}; free space or change permissions, or write to another folder")
