"""Forged datagrams: mutations of real ones, and invented ones."""

from collections.abc import Iterator
from random import Random

from milepost.wire.sealed import SealedType


def forged(random: Random, real: list[bytes], count: int) -> Iterator[bytes]:
    """Yield *count* datagrams that an edge must not accept; some are replays of real ones."""
    makers = (_flipped, _cut, _longer, _later, _crossed, _invented, lambda _, real: random.choice(real))
    for _ in range(count):
        yield random.choice(makers)(random, real)


def _flipped(random: Random, real: list[bytes]) -> bytes:
    data = bytearray(random.choice(real))
    for _ in range(random.choice((1, 1, 1, 2, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(data)


def _cut(random: Random, real: list[bytes]) -> bytes:
    data = random.choice(real)
    return data[: random.randrange(len(data))]


def _longer(random: Random, real: list[bytes]) -> bytes:
    return random.choice(real) + random.randbytes(random.randrange(1, 200))


def _later(random: Random, real: list[bytes]) -> bytes:
    """Return a datagram under a counter that was not used yet."""
    data = _data(random, real)
    return data[:9] + (int.from_bytes(data[9:17]) + random.randrange(1, 1_000)).to_bytes(8) + data[17:]


def _crossed(random: Random, real: list[bytes]) -> bytes:
    """Return a datagram under the token of another session."""
    data, other = _data(random, real), _data(random, real)
    return data[:1] + other[1:9] + data[9:]


def _invented(random: Random, real: list[bytes]) -> bytes:
    """Return noise after a real header or none."""
    head = _data(random, real)[:9] if random.random() < 0.5 else bytes([random.randrange(9)])
    return head + random.randbytes(random.randrange(300))


def _data(random: Random, real: list[bytes]) -> bytes:
    return random.choice([data for data in random.sample(real, min(len(real), 20)) if data[0] == SealedType.DATA] or real)
