"""Datagrams that are almost right: made from real ones and from nothing."""

from collections.abc import Iterator
from random import Random

from milepost.wire.sealed import Kind


def forged(random: Random, real: list[bytes], count: int) -> Iterator[bytes]:
    """So many datagrams, none of which an edge may accept; some are real ones that it has had already."""
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
    """Under a counter that has not come yet."""
    data = _data(random, real)
    return data[:9] + (int.from_bytes(data[9:17]) + random.randrange(1, 1_000)).to_bytes(8) + data[17:]


def _crossed(random: Random, real: list[bytes]) -> bytes:
    """Under the token of another session."""
    data, other = _data(random, real), _data(random, real)
    return data[:1] + other[1:9] + data[9:]


def _invented(random: Random, real: list[bytes]) -> bytes:
    """A real beginning or none, and then noise."""
    head = _data(random, real)[:9] if random.random() < 0.5 else bytes([random.randrange(9)])
    return head + random.randbytes(random.randrange(300))


def _data(random: Random, real: list[bytes]) -> bytes:
    return random.choice([data for data in random.sample(real, min(len(real), 20)) if data[0] == Kind.DATA] or real)
