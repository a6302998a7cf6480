"""Theta sketches as DataSketches and Spark's `theta_sketch_agg` write them, in their compact, ordered form.

    version 3   longs, 3, family, 0, 0, flags, seed hash │ [count, 4 bytes; 4 unused │ [theta] │] hashes, 8 bytes each
    version 4   longs, 4, family, bits, n, flags, seed hash │ [theta │] count, n bytes │ differences of the hashes, `bits` each

`longs` is the number of 8-byte words before the hashes, without the count of version 4: a sketch of one hash in version 3 has
one, any other has two, and one more with theta. Numbers are little-endian, but the differences, which are bits in sequence.
Only sketches with at least one hash and with the default seed are accepted.
"""

from itertools import accumulate
from struct import Struct, error
from typing import Final

from milepost.model.incidents.witnesses import THETA_MAX, WITNESSES_MAX, Witnesses, WitnessHash
from milepost.model.reasons import Malformed, Reason

_FAMILY: Final = 3
_FLAGS: Final = 0b0001_1010
"""Read-only, compact, ordered."""
_SINGLE: Final = 0b0010_0000
"""Set in sketches of one hash in version 3."""
_SEED_HASH: Final = 0x93CC
_HEAD: Final = Struct("<BBBBBBH")
_COUNT: Final = Struct("<II")
_LONG: Final = Struct("<Q")


def sketch_to_bytes(witnesses: Witnesses) -> bytes:
    """Return the sketch of witnesses, in version 3."""
    hashes = sorted(witnesses.hashes)
    is_single, is_exact = len(hashes) == 1, witnesses.theta == THETA_MAX
    longs = 1 if is_single else 2 if is_exact else 3
    words = hashes if is_exact else [witnesses.theta, *hashes]
    head = _HEAD.pack(longs, 3, _FAMILY, 0, 0, _FLAGS | (_SINGLE if is_single else 0), _SEED_HASH)
    return head + (b"" if is_single else _COUNT.pack(len(hashes), 0x3F800000)) + Struct(f"<{len(words)}Q").pack(*words)


def sketch_from_bytes(data: bytes) -> Witnesses:
    """Return the witnesses of a sketch; raises only `Malformed`."""
    try:
        longs, version, family, bits, count_bytes, _, seed_hash = _HEAD.unpack_from(data)
        if (family, seed_hash) != (_FAMILY, _SEED_HASH):
            raise Malformed(Reason.FIELD_RANGE, "is not a compact theta sketch with the default seed")
        match version, longs:
            case 4, 1 | 2:
                theta, hashes = _read_packed(data, bits, count_bytes, has_theta=longs == 2)
            case 3, 1 | 2 | 3:
                theta, hashes = _read_plain(data, longs)
            case _:
                raise Malformed(Reason.FIELD_RANGE, f"is a theta sketch of version {version} with {longs} longs")
    except error:
        raise Malformed(Reason.FIELD_RANGE, "is not as long as a theta sketch of that many hashes") from None
    if sorted(hashes) != hashes or len(found := frozenset(map(WitnessHash, hashes))) != len(hashes):
        raise Malformed(Reason.FIELD_RANGE, "has hashes that are not in order")
    return Witnesses(found, theta)


def _read_plain(data: bytes, longs: int) -> tuple[int, list[int]]:
    count = 1 if longs == 1 else _checked_count(_COUNT.unpack_from(data, 8)[0])
    theta = _LONG.unpack_from(data, 16)[0] if longs == 3 else THETA_MAX
    return theta, list(Struct(f"<{count}Q").unpack(data[8 * longs :]))


def _read_packed(data: bytes, bits: int, count_bytes: int, *, has_theta: bool) -> tuple[int, list[int]]:
    theta = _LONG.unpack_from(data, 8)[0] if has_theta else THETA_MAX
    begin = 16 if has_theta else 8
    count = _checked_count(int.from_bytes(data[begin : begin + count_bytes], "little"))
    packed = data[begin + count_bytes :]
    if not 1 <= bits <= 63 or len(packed) != -(-count * bits // 8):
        raise Malformed(Reason.FIELD_RANGE, f"is not as long as {count} hashes of {bits} bits")
    number, mask = int.from_bytes(packed, "big"), (1 << bits) - 1
    end = len(packed) * 8
    return theta, list(accumulate(number >> end - bits * (at + 1) & mask for at in range(count)))


def _checked_count(count: int) -> int:
    if not 1 <= count <= WITNESSES_MAX:
        raise Malformed(Reason.FIELD_RANGE, f"has {count} hashes, not 1..{WITNESSES_MAX}")
    return count
