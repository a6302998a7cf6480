"""The folder of a certificate authority: its keys, its register of issued certificates and its revocation list.

    authority.key    private key, which signs certificates           authority.pub   public key, for edges and endpoints
    issued.jsonl     every certificate it issued, one line each      revoked.list    revoked serial numbers, signed, for edges
                                                                     revoked-signers.list   those that sign, for clients

Invariants:
- a certificate is in the register before it is handed out, so every issued certificate can be revoked by its name;
- one process at a time changes a folder;
- randomness is drawn here, with `secrets`, and passed to `trust` as bytes.
"""

import fcntl
import json
import os
import secrets
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from milepost.config.errors import UsageFault, cannot_read
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed
from milepost.runtime.trust_files import (
    KeyFile,
    TrustFileType,
    read_authority,
    read_authority_key,
    read_revoked,
    replace_file,
    write_new,
)
from milepost.trust.certificates import (
    SERIAL_MAX,
    SIGNING_ROLES,
    Certificate,
    Revocations,
    RevocationScope,
    issue,
    read_certificate,
    revoke,
    revoke_signers,
)
from milepost.trust.noise import public_of
from milepost.trust.signing import signing_public_of
from milepost.wire.sealed import KEY_BYTES
from milepost.wire.times import instant_to_text

AUTHORITY_KEY: Final = "authority.key"
AUTHORITY: Final = "authority.pub"
REVOKED: Final = "revoked.list"
REVOKED_SIGNERS: Final = "revoked-signers.list"
ISSUED: Final = "issued.jsonl"

CLOCK_SLACK_NS: Final = 300 * SECOND_NS
"""Time by which the validity of a certificate starts before its issue: the clock of an edge may be behind."""

_DAY_NS: Final = 86_400 * SECOND_NS


def make_authority(folder: Path, now: Instant) -> None:
    """Create an authority in a folder, which is created if missing; refuse a folder that has one."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageFault(f"{folder} cannot be created: {error.strerror}; choose another folder") from None
    existing = [name for name in (AUTHORITY_KEY, AUTHORITY, REVOKED, REVOKED_SIGNERS, ISSUED) if (folder / name).exists()]
    if existing:
        raise UsageFault(f"{folder} has {existing[0]} already: nothing was changed; choose another folder")
    key = secrets.token_bytes(KEY_BYTES)
    write_new(folder / AUTHORITY_KEY, TrustFileType.AUTHORITY_KEY, key)
    write_new(folder / AUTHORITY, TrustFileType.AUTHORITY, signing_public_of(key))
    write_new(folder / REVOKED, TrustFileType.REVOKED, revoke(key, None, (), now).data)
    write_new(folder / REVOKED_SIGNERS, TrustFileType.REVOKED_SIGNERS, revoke_signers(key, None, (), now).data)
    (folder / ISSUED).touch(0o644)


def new_keys(*, signs: bool) -> KeyFile:
    """Draw new private keys."""
    return KeyFile(secrets.token_bytes(KEY_BYTES), secrets.token_bytes(KEY_BYTES) if signs else b"")


def public_keys_of(keys: KeyFile) -> KeyFile:
    """Return the public keys of private keys."""
    return KeyFile(public_of(keys.static), signing_public_of(keys.signing) if keys.signing else b"")


def issue_in(folder: Path, name: str, keys: KeyFile, *, role: str, days: int, now: Instant) -> Certificate:
    """Issue a certificate for public keys and add it to the register."""
    authority_key = read_authority_key(folder / AUTHORITY_KEY)
    whole_second = now // SECOND_NS * SECOND_NS
    try:
        certificate = issue(
            authority_key,
            id=name,
            role=role,
            key=keys.static,
            not_before=Instant(whole_second - CLOCK_SLACK_NS),
            not_after=Instant(whole_second + days * _DAY_NS),
            serial=1 + secrets.randbelow(SERIAL_MAX),
            signing_key=keys.signing,
        )
    except Malformed as fault:
        raise UsageFault(f"no certificate was issued for {name!r}: {fault.detail}; correct it") from None
    with _locked(folder):
        _register(folder / ISSUED, certificate)
    return certificate


def revoke_in(folder: Path, targets: Sequence[str], now: Instant) -> list[int]:
    """Revoke all certificates of each name, or the one of a serial number; return the newly revoked serial numbers."""
    with _locked(folder):
        authority_key = read_authority_key(folder / AUTHORITY_KEY)
        previous = revoked_in(folder)
        serials = _serials(folder, targets)
        new = sorted(serials - previous.serials)
        if new:
            try:
                updated = revoke(authority_key, previous, new, now)
                signers = _revoked_signers(folder, authority_key, updated, now)
            except Malformed as fault:
                raise UsageFault(f"nothing was revoked: {fault.detail}; create a new certificate authority") from None
            replace_file(folder / REVOKED, TrustFileType.REVOKED, updated.data)
            replace_file(folder / REVOKED_SIGNERS, TrustFileType.REVOKED_SIGNERS, signers.data)
    return new


def _revoked_signers(folder: Path, authority_key: bytes, revoked: Revocations, now: Instant) -> Revocations:
    """Return the list for clients: revoked certificates that can sign and have not expired, and those of unknown role."""
    path = folder / REVOKED_SIGNERS
    public = read_authority(folder / AUTHORITY)
    previous = read_revoked(path, public, RevocationScope.SIGNERS) if path.exists() else None
    harmless = {
        certificate.serial
        for certificate in issued_in(folder)
        if certificate.role not in SIGNING_ROLES or certificate.not_after < now
    }
    return revoke_signers(authority_key, previous, revoked.serials - harmless, now)


def revoked_in(folder: Path) -> Revocations:
    """Return the revocation list of a folder."""
    return read_revoked(folder / REVOKED, read_authority(folder / AUTHORITY))


def issued_in(folder: Path) -> Iterator[Certificate]:
    """Yield every certificate of the register, in the order of issue."""
    path = folder / ISSUED
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield _registered(path, number, line)
    except OSError as error:
        raise cannot_read(path, error) from None


def serial_text(serial: int) -> str:
    """Format a serial number as 16 hexadecimal digits."""
    return f"{serial:016x}"


def _serials(folder: Path, targets: Sequence[str]) -> frozenset[int]:
    """Resolve names and serial numbers to serial numbers; a text that is both is a name."""
    by_name: dict[str, set[int]] = {}
    for certificate in issued_in(folder):
        by_name.setdefault(certificate.id, set()).add(certificate.serial)
    found: set[int] = set()
    for text in targets:
        serial = _maybe_serial(text)
        if text in by_name:
            found |= by_name[text]
        elif serial is not None:  # also a certificate that is missing in the register
            found.add(serial)
        else:
            raise UsageFault(f"{text!r} has no certificate in {folder / ISSUED}, nor is it a serial number: nothing was revoked")
    return frozenset(found)


def _maybe_serial(text: str) -> int | None:
    if len(text) != len(serial_text(0)):
        return None
    try:
        return int.from_bytes(bytes.fromhex(text))
    except ValueError:
        return None


def _register(path: Path, certificate: Certificate) -> None:
    """Append a line to the register; only its field `certificate` is read back, the others are for people and tools."""
    line = {
        "id": certificate.id,
        "role": certificate.role,
        "serial": serial_text(certificate.serial),
        "not_before": instant_to_text(certificate.not_before),
        "not_after": instant_to_text(certificate.not_after),
        "certificate": b64encode(certificate.data).decode(),
    }
    try:
        with path.open("a") as stream:
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise UsageFault(f"{path} cannot be written: {error.strerror}; nothing was issued") from None


def _registered(path: Path, number: int, line: bytes) -> Certificate:
    try:
        return read_certificate(b64decode(json.loads(line)["certificate"], validate=True))
    except (ValueError, TypeError, KeyError):  # Malformed is a ValueError too
        raise UsageFault(f"{path}, line {number} cannot be decoded: restore it from a backup, or remove the line") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock the folder against changes by other processes."""
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise cannot_read(folder, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        os.fsync(file)
    finally:
        os.close(file)
