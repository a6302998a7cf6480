"""The load generator of the hub, built from C on the connections of the edge's one; it sleeps when there is nothing to do."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.edge_load.generator import CACHE, Load, LoadFailed, put_ahead
from bench.edge_load.generator import SOURCES as LINK_SOURCES

SOURCES = Path(__file__).parent / "c"
PROGRAM = CACHE / "bin" / "hub-load"
PARTS = (SOURCES / "hub.c", SOURCES / "spread.c", SOURCES / "roam.c", LINK_SOURCES / "link.c")


@dataclass(frozen=True, slots=True)
class Times:
    """What a kind of time was: in milliseconds."""

    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, said: dict[str, Any]) -> "Times":
        """From the generator's words."""
        return cls(said["count"], said["mean_us"] / 1e3, said["p50_us"] / 1e3, said["p99_us"] / 1e3, said["max_us"] / 1e3)

    def __str__(self) -> str:
        return " / ".join(_three_digits(value) for value in (self.mean_ms, self.p50_ms, self.p99_ms, self.max_ms))


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def build() -> None:
    """Compile the generator if its sources are newer."""
    newest = max(path.stat().st_mtime for folder in (SOURCES, LINK_SOURCES) for path in folder.iterdir())
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > newest:
        return
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11", f"-I{LINK_SOURCES}", "-o", str(PROGRAM)]
    subprocess.run([*command, *map(str, PARTS), "-lssl", "-lcrypto"], check=True)


class HubLoad(Load):
    """A running generator, on whichever core is free."""

    def __init__(self, *words: object) -> None:
        command = ["setpriv", "--pdeathsig", "KILL", str(PROGRAM), *(str(word) for word in words)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        put_ahead(self._process.pid)

    def ask(self, *words: object) -> dict[str, Any]:
        """Have it do something, and hear what came of it."""
        assert self._process.stdin
        with suppress(BrokenPipeError):  # why, its last words say
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        return self.answer()


@contextmanager
def loading(*words: object) -> Iterator[HubLoad]:
    """The generator in one of its modes, ready, stopped after."""
    load = HubLoad(*words)
    try:
        if not load.answer().get("ready"):
            raise LoadFailed("the generator is not ready")
        yield load
    finally:
        load.stop()
