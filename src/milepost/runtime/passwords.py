"""Users and their passwords: a file of `name:hash` lines, and the check against it.

Invariants:
- the file has hashes only: scrypt, or the format of mosquitto_passwd (`$7$`, PBKDF2 with SHA-512), each with its parameters;
- an unknown name takes as long to refuse as a wrong password, and hashes are compared in constant time;
- correct passwords are cached in this process, by a keyed hash that is useless outside of it, so that a thousand clients that
  reconnect at once do not cost 40 ms each; wrong passwords are never cached;
- a change of the file is atomic, and does not touch other lines.
"""

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from milepost.config.errors import UsageFault
from milepost.runtime.files import FileRewrite, text_of

CACHED_MAX: Final = 65_536
NAME_BYTES_MAX: Final = 1_024

SALT_BYTES: Final = 16
_SCRYPT_BYTES: Final = 32
_SCRYPT_MEMORY_MAX: Final = 128 << 20
_PBKDF2_ROUNDS_MAX: Final = 10_000_000


@dataclass(frozen=True, slots=True)
class Scrypt:
    """Cost, block size and parallelism as RFC 7914 names them: 16 MB and about 40 ms."""

    n: int = 16_384
    r: int = 8
    p: int = 1

    def hash(self, password: bytes, salt: bytes, size: int) -> bytes:
        """Return the hash of a password."""
        return hashlib.scrypt(password, salt=salt, n=self.n, r=self.r, p=self.p, maxmem=2 * _SCRYPT_MEMORY_MAX, dklen=size)


@dataclass(frozen=True, slots=True)
class Pbkdf2:
    """PBKDF2 with SHA-512, as mosquitto_passwd uses it."""

    rounds: int

    def hash(self, password: bytes, salt: bytes, size: int) -> bytes:
        """Return the hash of a password."""
        return hashlib.pbkdf2_hmac("sha512", password, salt, self.rounds, size)


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A hashed password of the file."""

    algorithm: Scrypt | Pbkdf2
    salt: bytes
    hash: bytes

    def is_password(self, password: bytes) -> bool:
        """Return whether this is the password; takes the time of one hash."""
        return hmac.compare_digest(self.algorithm.hash(password, self.salt, len(self.hash)), self.hash)


class Users:
    """The users of one file, with a cache of correct passwords."""

    def __init__(self, hashes: dict[str, PasswordHash], *, cached_max: int = CACHED_MAX) -> None:
        self._hashes = hashes
        self._decoy = _decoy(hashes)
        self._correct: dict[bytes, None] = {}
        self._cached_max = cached_max
        self._key = os.urandom(32)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the users of a file; raise a `UsageFault` that names the invalid line."""
        return cls(users_from(text_of(path), source=str(path)))

    def reload(self, path: Path) -> None:
        """Read the file again; if it cannot be read, raise a `UsageFault` with the reason and change nothing."""
        self._hashes = users_from(text_of(path), source=str(path))
        self._decoy = _decoy(self._hashes)
        self._correct.clear()

    def __len__(self) -> int:
        return len(self._hashes)

    @property
    def names(self) -> frozenset[str]:
        """The names of all users."""
        return frozenset(self._hashes)

    def ended_by(self, newer: "Users | None") -> frozenset[str]:
        """Return the users that *newer* lacks, or has with another password."""
        hashes = newer._hashes if newer is not None else {}
        return frozenset(name for name, hashed in self._hashes.items() if hashes.get(name) != hashed)

    def check(self, name: str, password: bytes) -> bool:
        """Return whether the user exists and this is the password."""
        digest = self._digest(name, password)
        if digest in self._correct:
            return True
        found = self._hashes.get(name)
        is_right = (found or self._decoy).is_password(password) and found is not None
        if is_right:
            if len(self._correct) >= self._cached_max:
                del self._correct[next(iter(self._correct))]
            self._correct[digest] = None
        return is_right

    def _digest(self, name: str, password: bytes) -> bytes:
        encoded = name.encode(errors="surrogatepass")
        return hmac.digest(self._key, len(encoded).to_bytes(4) + encoded + password, "sha256")


def users_from(text: str, *, source: str) -> dict[str, PasswordHash]:
    """Parse the text of a users file."""
    found: dict[str, PasswordHash] = {}
    for number, name, hashed in _entries(text):
        if not name or name in found:
            raise UsageFault(
                f"{source}, line {number}: {f'a second line for {name!r}' if name else 'no user name'}; remove the line"
            )
        if len(name.encode(errors="surrogatepass")) > NAME_BYTES_MAX:
            raise UsageFault(f"{source}, line {number}: the user name has more than {NAME_BYTES_MAX} bytes; shorten it")
        try:
            found[name] = _hash_from(hashed)
        except ValueError as fault:
            advice = f"remove the line, then run: milepost passwd {source} {name}"
            raise UsageFault(f"{source}, line {number}: the password of {name!r} {fault}; {advice}") from None
    return found


def check_name(name: str) -> None:
    """Refuse a name that cannot be written to the file."""
    if not name or not name.isprintable() or ":" in name or name.startswith("#") or name != name.strip():
        raise UsageFault(
            f"{name!r} is not a valid user name: use at least one character, no colon or control character, no # or space first"
        )
    if len(name.encode()) > NAME_BYTES_MAX:
        raise UsageFault(f"the user name has more than {NAME_BYTES_MAX} bytes: shorten it")


def set_password(path: Path, name: str, password: bytes) -> bool:
    """Add a user to the file, or change the password; return whether the user is new."""
    with FileRewrite(path, may_create=True) as lines:
        line = f"{name}:{_hashed(password)}"
        at = _maybe_line(lines, name)
        if at is None:
            lines.append(line)
        else:
            lines[at] = line
        return at is None


def remove_user(path: Path, name: str) -> None:
    """Remove a user from the file."""
    with FileRewrite(path, may_create=False) as lines:
        at = _maybe_line(lines, name)
        if at is None:
            raise UsageFault(f"there is no user {name!r} in {path}: nothing was changed")
        del lines[at]


def _entries(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line number, name and hash of each user; skip empty lines and comments."""
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r")
        if line.strip() and not line.startswith("#"):
            name, _, hashed = line.partition(":")
            yield number, name, hashed


def _maybe_line(lines: list[str], name: str) -> int | None:
    return next((at for at, line in enumerate(lines) if line.startswith(f"{name}:")), None)


def _decoy(hashes: dict[str, PasswordHash]) -> PasswordHash:
    """Return a random password hash, for unknown users, that costs as much to check as most in the file."""
    common = Counter((one.algorithm, len(one.salt), len(one.hash)) for one in hashes.values())
    algorithm, salt_bytes, hash_bytes = common.most_common(1)[0][0] if common else (Scrypt(), SALT_BYTES, _SCRYPT_BYTES)
    return PasswordHash(algorithm, os.urandom(salt_bytes), os.urandom(hash_bytes))


def _hashed(password: bytes) -> str:
    algorithm, salt = Scrypt(), os.urandom(SALT_BYTES)
    hashed = algorithm.hash(password, salt, _SCRYPT_BYTES)
    return f"$scrypt$n={algorithm.n},r={algorithm.r},p={algorithm.p}${b64encode(salt).decode()}${b64encode(hashed).decode()}"


def _hash_from(text: str) -> PasswordHash:
    """Parse a hash; raise a ValueError with the reason if it cannot be used."""
    match text.split("$"):
        case ["", "scrypt", numbers, salt, hashed]:
            return PasswordHash(_scrypt_from(numbers), _octets(salt), _octets(hashed))
        case ["", "7", rounds, salt, hashed]:
            return PasswordHash(Pbkdf2(_number(rounds, _PBKDF2_ROUNDS_MAX)), _octets(salt), _octets(hashed))
        case ["", kind, *_] if kind:
            raise ValueError(f"has an unknown hash type (${kind[:16]}$)")
        case _:
            raise ValueError("is not hashed")


def _scrypt_from(numbers: str) -> Scrypt:
    given = dict(part.partition("=")[::2] for part in numbers.split(","))
    if sorted(given) != ["n", "p", "r"]:
        raise ValueError("lacks one of the parameters n, r and p")
    n, r, p = (_number(given[name], _SCRYPT_MEMORY_MAX) for name in "nrp")
    if n & (n - 1) or n < 2 or 128 * n * r > _SCRYPT_MEMORY_MAX or r * p > 1_024:
        raise ValueError("has an n that is not a power of two, or parameters that need too much memory")
    return Scrypt(n, r, p)


def _number(text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 10 and 1 <= int(text) <= most):
        raise ValueError(f"has a parameter {text[:20]!r}, not 1 to {most}")
    return int(text)


def _octets(text: str) -> bytes:
    try:
        found = b64decode(text, validate=True)
    except ValueError:
        found = b""
    if not 1 <= len(found) <= 128:
        raise ValueError("is truncated or damaged")
    return found
