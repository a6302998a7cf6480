"""The baselines of an edge: a loop in C that receives, and one that sends; each documents its output in its first comment."""

from pathlib import Path

from milepost_experiments.papers.load.programs import BROKER_CORE, Program, build_program, pin_command
from milepost_experiments.papers.load.programs import SOURCES as SHARED

SOURCES = Path(__file__).parent / "c"


def start_sink(*arguments: object) -> Program:
    """Start the loop that receives, on the core of the edge."""
    return _program("udp-sink", "udp_sink.c", arguments)


def start_fanout(*arguments: object) -> Program:
    """Start the loop that sends to many."""
    return _program("udp-fanout", "udp_fanout.c", arguments)


def _program(name: str, main: str, arguments: tuple[object, ...]) -> Program:
    path = build_program(name, [SOURCES / main, SHARED / "udp.c", SHARED / "encryption.c"])
    return Program(pin_command([str(path), *map(str, arguments)], BROKER_CORE))
