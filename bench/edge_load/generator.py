"""The load generator: a C program on its own core, controlled by lines of text, with answers in JSON."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from milepost_experiments.papers.load.programs import LOAD_CORE, Program, build_program, pin_command
from milepost_experiments.papers.load.programs import SOURCES as SHARED_SOURCES

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
SOURCES = Path(__file__).parent / "c"
LOAD_PARTS = (
    *(SOURCES / name for name in ("main.c", "throughput.c", "roundtrips.c", "storm.c")),
    SHARED_SOURCES / "connection.c",
)
RELAY_PARTS = (SOURCES / "relay.c",)


@dataclass(frozen=True, slots=True)
class Step:
    """The result of offering one rate for a while; times in microseconds, `busy` the generator's share of its core."""

    rate: float
    p50_us: float
    p99_us: float
    late_p99_us: float
    busy: float
    is_complete: bool
    is_overloaded: bool


def load_program() -> Path:
    """Return the generator, compiled if necessary."""
    return build_program("edge-load", LOAD_PARTS)


def relay_program() -> Path:
    """Return the relay that brokers are compared with, compiled if necessary."""
    return build_program("edge-relay", RELAY_PARTS)


class Load(Program):
    """A running generator."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(pin_command([str(load_program()), *(str(word) for word in arguments)], LOAD_CORE))

    def step(self, rate: float, seconds: float, warm_s: float, burst: int = 1) -> Step:
        """Offer `rate` messages per second for a while; a publisher sends `burst` of them at once."""
        found = self.request(rate, seconds, warm_s, burst)
        is_even = found["fewest"] == found["most"] or found["expected"] == found["received"]
        is_complete = found["complete"] and found["received"] == found["expected"] and is_even and not found["wrong"]
        return Step(
            found["rate"], found["p50_us"], found["p99_us"], found["late_p99_us"], found["busy"], is_complete, found["overloaded"]
        )


@contextlib.contextmanager
def running_load(*arguments: object) -> Iterator[Load]:
    """Run the generator in one of its modes for the block."""
    load = Load(*arguments)
    try:
        yield load
    finally:
        load.stop()
