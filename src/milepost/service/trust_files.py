"""Files of trust: keys, certificates and lists of revocations as text that can be mailed, pasted and looked at.

What must hold:
- private keys are made readable by their owner only, before anything is in them; everything else by everybody;
- a file is made new, or replaced as a whole: nobody reads half of one;
- what cannot be read is a `UsageFault` that says what to do.
"""

import os
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from milepost.model.reasons import Malformed
from milepost.service.faults import UsageFault
from milepost.service.rewriting import text_of
from milepost.trust.certificates import Certificate, read_certificate
from milepost.trust.revocations import Revocations, read_revocations
from milepost.trust.texts import AUTHORITY, CERTIFICATE, PRIVATE_KEY, bytes_from_text, text_from_bytes, title_of
from milepost.wire.sealed import KEY_BYTES


class Kind(Enum):
    """What a file holds: its title, and how a sentence names it."""

    AUTHORITY_KEY = "AUTHORITY PRIVATE KEY", "the private key of an authority"
    AUTHORITY = AUTHORITY, "the public key of an authority"
    KEY = PRIVATE_KEY, "a private key"
    PUBLIC_KEY = "PUBLIC KEY", "a public key"
    CERTIFICATE = CERTIFICATE, "a certificate"
    REVOKED = "REVOCATIONS", "a list of revocations"

    def __init__(self, title: str, spoken: str) -> None:
        self.title = title
        self.spoken = spoken

    @property
    def is_secret(self) -> bool:
        """Whether nobody but its owner may read it."""
        return self in (Kind.AUTHORITY_KEY, Kind.KEY)


class KeyFile(NamedTuple):
    """The private keys of an endpoint, or its public ones: X25519, and Ed25519 where it signs."""

    static: bytes
    signing: bytes
    """Empty if it signs nothing."""


def read_key(path: Path) -> KeyFile:
    """The private keys that a file holds."""
    return _keys(path, Kind.KEY)


def read_public_key(path: Path) -> KeyFile:
    """The public keys that a file holds."""
    return _keys(path, Kind.PUBLIC_KEY)


def read_certificate_file(path: Path) -> Certificate:
    """The certificate that a file holds; nothing is said about who signed it."""
    data = _read(path, Kind.CERTIFICATE)
    try:
        return read_certificate(data)
    except Malformed as fault:
        raise UsageFault(f"{path} holds no certificate ({fault.detail}): get it again from whoever issued it") from None


def read_authority(path: Path) -> bytes:
    """The public key of the authority."""
    return _sized(path, _read(path, Kind.AUTHORITY))


def read_authority_key(path: Path) -> bytes:
    """The private key of the authority."""
    return _sized(path, _read(path, Kind.AUTHORITY_KEY))


def read_revoked(path: Path, authority_public: bytes) -> Revocations:
    """The list of revocations, signed by this authority."""
    data = _read(path, Kind.REVOKED)
    try:
        return read_revocations(data, authority_public)
    except Malformed as fault:
        raise UsageFault(f"{path} cannot be used ({fault.detail}): copy revoked.list from the authority's folder again") from None


def kind_of(path: Path) -> Kind:
    """What a file holds, by its title."""
    return _parted(path)[0]


def write_new(path: Path, kind: Kind, data: bytes) -> None:
    """Make a file that was not there."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise UsageFault(f"{path} is there already: move it away, or write elsewhere (--out)") from None
    except OSError as error:
        raise _cannot_write(path, error) from None
    try:
        _fill(file, kind, data)
    except OSError as error:
        path.unlink()
        raise _cannot_write(path, error) from None


def replace_file(path: Path, kind: Kind, data: bytes) -> None:
    """Put a file in the place of one that others may be reading."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _fill(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), kind, data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise _cannot_write(path, error) from None


def _fill(file: int, kind: Kind, data: bytes) -> None:
    with os.fdopen(file, "w") as stream:
        if not kind.is_secret:
            os.fchmod(file, 0o644)
        stream.write(text_from_bytes(kind.title, data))
        stream.flush()
        os.fsync(file)


def _keys(path: Path, kind: Kind) -> KeyFile:
    data = _read(path, kind)
    if len(data) not in (KEY_BYTES, 2 * KEY_BYTES):
        raise _spoilt(path)
    return KeyFile(data[:KEY_BYTES], data[KEY_BYTES:])


def _sized(path: Path, key: bytes) -> bytes:
    if len(key) != KEY_BYTES:
        raise _spoilt(path)
    return key


def _read(path: Path, kind: Kind) -> bytes:
    found, data = _parted(path)
    if found is not kind:
        raise UsageFault(f"{path} holds {found.spoken}, not {kind.spoken}: correct the name")
    return data


def _parted(path: Path) -> tuple[Kind, bytes]:
    """What a file says it is, and its bytes."""
    text = text_of(path)
    kind = next((kind for kind in Kind if kind.title == title_of(text)), None)
    if kind is None:
        raise UsageFault(f"{path} holds no key, certificate or list of milepost trust: correct the name")
    try:
        return kind, bytes_from_text(text, kind.title)
    except Malformed:
        raise _spoilt(path) from None


def _spoilt(path: Path) -> UsageFault:
    return UsageFault(f"{path} is cut off or spoilt: copy it again from where it was made")


def _cannot_write(path: Path, error: OSError) -> UsageFault:
    return UsageFault(f"{path} cannot be written: {error.strerror}; write elsewhere, or make room and rights for it")
