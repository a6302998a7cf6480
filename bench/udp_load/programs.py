"""What an edge is compared with: a loop in C that receives, one that sends; each says on top of its source what it prints."""

from pathlib import Path

from milepost_experiments.papers.load.programs import BROKER_CORE, Program, built, pinned
from milepost_experiments.papers.load.programs import SOURCES as SHARED

SOURCES = Path(__file__).parent / "c"


def program_sink(*words: object) -> Program:
    """The loop that receives, on the core that an edge has."""
    return _program("udp-sink", "udp_sink.c", words)


def program_fan(*words: object) -> Program:
    """The loop that sends to many."""
    return _program("udp-fan", "udp_fan.c", words)


def _program(name: str, main: str, words: tuple[object, ...]) -> Program:
    path = built(name, [SOURCES / main, SHARED / "udp.c", SHARED / "seals.c"])
    return Program(pinned([str(path), *map(str, words)], BROKER_CORE))
