"""Witnesses: the distinct endpoints that reported an event, as a theta sketch of their hashes.

    endpoint ─▶ SHA-256, first 8 bytes ─▶ MurmurHash3 (x64, 128 bits, seed 9001), first word ─▶ the upper 63 bits

Invariants:
- `hashes` has all hashes below `theta`. Up to `WITNESSES_MAX` witnesses `theta` is `THETA_MAX` and all are listed; of more, the
  smallest are, and `theta` is the smallest one left out. So neither the order of reports nor their batches matter;
- MurmurHash is that of DataSketches, and invertible. SHA-256 before it prevents an endpoint from choosing an id with the hash
  of another endpoint, whose weight it would then share.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NewType

from milepost.model.reasons import Malformed, Reason

WitnessHash = NewType("WitnessHash", int)

WITNESSES_MAX_LOG2: Final = 6
WITNESSES_MAX: Final = 1 << WITNESSES_MAX_LOG2
"""Maximum witnesses of a cell that are listed; the number of more is estimated, with a standard error of 13 %."""

THETA_MAX: Final = 2**63 - 1

_SEED: Final = 9001
_WORD: Final = 2**64 - 1
_LENGTH: Final = 8


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Witnesses of one cell."""

    hashes: frozenset[WitnessHash]
    theta: int = THETA_MAX

    def __post_init__(self) -> None:
        if not 1 <= len(self.hashes) <= WITNESSES_MAX:
            raise Malformed(Reason.FIELD_RANGE, f"{len(self.hashes)} witnesses are listed, not 1..{WITNESSES_MAX}")
        if self.theta != THETA_MAX and len(self.hashes) != WITNESSES_MAX:
            raise Malformed(Reason.FIELD_RANGE, f"{len(self.hashes)} of more witnesses are listed, not {WITNESSES_MAX}")
        if not 0 < min(self.hashes) <= max(self.hashes) < self.theta <= THETA_MAX:
            raise Malformed(Reason.FIELD_RANGE, "a witness has a hash that is not between 0 and theta")


def witnesses_of(endpoints: Iterable[str]) -> Witnesses:
    """Return the witnesses with these ids."""
    hashes = sorted({witness_hash(one) for one in endpoints})
    left_out = hashes[WITNESSES_MAX:]
    return Witnesses(frozenset(hashes[:WITNESSES_MAX]), left_out[0] if left_out else THETA_MAX)


def estimated_count(listed: int, theta: int) -> int:
    """Return the number of witnesses, of whom those with a hash below *theta* are listed."""
    return listed if theta == THETA_MAX else round(listed * (THETA_MAX / theta))


def witness_hash(endpoint: str) -> WitnessHash:
    """Return the hash of an endpoint as a witness."""
    from hashlib import sha256  # noqa: PLC0415  # loads OpenSSL, which most processes that know incidents do not need

    word = int.from_bytes(sha256(endpoint.encode()).digest()[:_LENGTH], "little")
    mixed = _rotated(word * 0x87C37B91114253D5 & _WORD) * 0x4CF5AD432745937F & _WORD
    second = _SEED ^ _LENGTH
    first = ((_SEED ^ mixed ^ _LENGTH) + second) & _WORD
    both = _finished(first) + _finished((second + first) & _WORD)
    return WitnessHash((both & _WORD) >> 1)


def _rotated(word: int) -> int:
    return (word << 31 | word >> 33) & _WORD


def _finished(word: int) -> int:
    """Apply MurmurHash3's finalizer."""
    word = (word ^ word >> 33) * 0xFF51AFD7ED558CCD & _WORD
    word = (word ^ word >> 33) * 0xC4CEB9FE1A85EC53 & _WORD
    return word ^ word >> 33
