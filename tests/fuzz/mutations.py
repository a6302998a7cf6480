"""Seeded mutations of valid bytes and texts, which reach further into a decoder than noise does."""

import re
from collections.abc import Sequence
from random import Random

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|\w+|\s+|.', re.DOTALL)
ODD_NUMBERS = ["0", "-0.0", "1e308", "-1e309", "90.0000001", "-180.5", "9" * 25, "4.9e-324", "18446744073709551615", "007", "٣"]
ODD_TEXTS = [
    '""',
    '"\\u0000"',
    '"\\ud800"',
    '"+/#"',
    '"type"',
    '"radius_m"',
    "null",
    "true",
    "{}",
    "[]",
    "topic:",
    "now",
    "EMPTY",
]
ODD_CHARACTERS = [*'()[]{},:"\\!&|/-TZ\x00\né\ud800', ".."]


def mutated_bytes(random: Random, seeds: Sequence[bytes]) -> bytes:
    """Return noise, or a seed with flipped bits, truncated, spliced, with a repeated stretch, or with overwritten bytes."""
    seed = random.choice(seeds)
    at = random.randrange(len(seed) + 1)
    match random.randrange(8):
        case 0:
            return random.randbytes(random.randrange(64))
        case 1:
            return seed[:at]
        case 2:
            other = random.choice(seeds)
            return seed[:at] + other[random.randrange(len(other) + 1) :]
        case 3:
            end = at + random.randrange(16)
            return seed[:end] + seed[at:end] * random.randrange(1, 20) + seed[end:]
        case 4:
            few = random.randbytes(random.randrange(1, 9))
            return seed[:at] + few + seed[at + len(few) :]
        case _:
            return _flipped(random, seed)


def _flipped(random: Random, seed: bytes) -> bytes:
    found = bytearray(seed)
    for _ in range(random.randrange(1, 3)):
        found[random.randrange(len(found))] ^= 1 << random.randrange(8)
    return bytes(found)


def tokens(text: str) -> list[str]:
    """Split a text into quoted strings, numbers, words, spaces and single characters."""
    return TOKEN.findall(text)


def mutated_text(random: Random, seeds: Sequence[list[str]]) -> str:
    """Return a seed with one to three tokens removed, repeated, exchanged, or replaced by an unusual one."""
    found = list(random.choice(seeds))
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(found))
        match random.randrange(8):
            case 0:
                found[at] = ""
            case 1:
                found[at] *= random.choice((2, 2, 3, 50))
            case 2:
                other = random.randrange(len(found))
                found[at], found[other] = found[other], found[at]
            case 3:
                other = random.randrange(len(found))
                found[at] = found[other]
            case 4:
                found[at] = random.choice(ODD_CHARACTERS)
            case 5:
                found[at] = random.choice(random.choice(seeds))
            case _:
                found[at] = _of_the_same_kind(random, found[at])
    return "".join(found)


def _of_the_same_kind(random: Random, token: str) -> str:
    if token[:1].isdigit() or token[:1] == "-":
        return random.choice((*ODD_NUMBERS, f"{random.uniform(-200, 200):.3f}", str(random.randrange(100)), f"{token}1"))
    return random.choice(ODD_TEXTS) if token[:1] == '"' else token[::-1]
