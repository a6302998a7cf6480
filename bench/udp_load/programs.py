"""The programs of the UDP benchmark: built from C; each says on top of its source what it takes and what it prints."""

import json
import select
import subprocess
from pathlib import Path
from typing import Any

from bench.edge_load.generator import BROKER_CORE, LOAD_CORE, LoadFailed, pinned, put_ahead

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "c"
PROGRAMS = ROOT / ".cache" / "bin"
SINK, SOURCE, FAN = PROGRAMS / "udp-sink", PROGRAMS / "udp-source", PROGRAMS / "udp-fan"
MAINS = {SINK: "udp_sink.c", SOURCE: "udp_source.c", FAN: "udp_fan.c"}
SHARED = ("udp.c", "seals.c")  # with udp.h and seals.h
CORES = {SINK: BROKER_CORE, SOURCE: LOAD_CORE, FAN: BROKER_CORE}
"""A program has the core of what it is compared with, or the other one if it is the load."""

SLACK_S = 30.0


def build() -> None:
    """Compile those whose sources are newer."""
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    for target, main in MAINS.items():
        if target.exists() and target.stat().st_mtime > newest:
            continue
        command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-D_GNU_SOURCE", "-o", str(target)]
        subprocess.run([*command, *(str(SOURCES / part) for part in (main, *SHARED)), "-lcrypto"], check=True)


class Program:
    """One of them, running; ended when the block ends."""

    def __init__(self, path: Path, *words: object) -> None:
        command = pinned([str(path), *(str(word) for word in words)], CORES[path])
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
        )
        put_ahead(self._process.pid)

    def __enter__(self) -> "Program":
        return self

    def answer(self, seconds: float = 0.0) -> dict[str, Any]:
        """Its next line, which comes in about so many seconds."""
        assert self._process.stdout
        assert self._process.stderr
        if not select.select([self._process.stdout], [], [], seconds + SLACK_S)[0]:
            raise LoadFailed("a program of the benchmark does not answer")
        line = self._process.stdout.readline()
        if not line:
            raise LoadFailed(self._process.stderr.read().strip() or "a program of the benchmark died")
        found: dict[str, Any] = json.loads(line)
        return found

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout
        assert self._process.stderr
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()
