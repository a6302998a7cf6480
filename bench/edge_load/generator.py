"""The load generator as seen from Python: built from C, pinned to a core of its own, asked line by line, answering in JSON."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from milepost_experiments.papers.load.programs import LOAD_CORE, Program, built, pinned
from milepost_experiments.papers.load.programs import SOURCES as LINK_SOURCES

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
SOURCES = Path(__file__).parent / "c"
LOAD_PARTS = (*(SOURCES / name for name in ("main.c", "fan.c", "trips.c", "storm.c")), LINK_SOURCES / "link.c")
RELAY_PARTS = (SOURCES / "relay.c",)


@dataclass(frozen=True, slots=True)
class Step:
    """What came of offering one rate for a while; times in microseconds, `busy` the generator's share of its core."""

    rate: float
    p50_us: float
    p99_us: float
    late_p99_us: float
    busy: float
    is_whole: bool
    is_hopeless: bool


def load_program() -> Path:
    """The generator, built if it has to be."""
    return built("edge-load", LOAD_PARTS)


def relay_program() -> Path:
    """The relay that brokers are compared with, built if it has to be."""
    return built("edge-relay", RELAY_PARTS)


class Load(Program):
    """A running generator."""

    def __init__(self, *words: object) -> None:
        super().__init__(pinned([str(load_program()), *(str(word) for word in words)], LOAD_CORE))

    def step(self, rate: float, seconds: float, warm_s: float, burst: int = 1) -> Step:
        """Offer `rate` messages a second for a while, a publisher sending `burst` of them at once."""
        found = self.ask(rate, seconds, warm_s, burst)
        is_even = found["fewest"] == found["most"] or found["expected"] == found["received"]
        is_whole = found["complete"] and found["received"] == found["expected"] and is_even and not found["wrong"]
        return Step(
            found["rate"], found["p50_us"], found["p99_us"], found["late_p99_us"], found["busy"], is_whole, found["hopeless"]
        )


@contextlib.contextmanager
def loading(*words: object) -> Iterator[Load]:
    """The generator in one of its modes, stopped after."""
    load = Load(*words)
    try:
        yield load
    finally:
        load.stop()
