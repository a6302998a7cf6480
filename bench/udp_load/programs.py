"""The programs of the UDP benchmark: built from C; each says on top of its source what it takes and what it prints."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = Path(__file__).parent / "c"
PROGRAMS = ROOT / ".cache" / "bin"
SINK, SOURCE, FAN = PROGRAMS / "udp-sink", PROGRAMS / "udp-source", PROGRAMS / "udp-fan"
MAINS = {SINK: "udp_sink.c", SOURCE: "udp_source.c", FAN: "udp_fan.c"}
SHARED = ("udp.c", "seals.c")  # with udp.h and seals.h


def build() -> None:
    """Compile those whose sources are newer."""
    newest = max(path.stat().st_mtime for path in SOURCES.iterdir())
    PROGRAMS.mkdir(parents=True, exist_ok=True)
    for target, main in MAINS.items():
        if target.exists() and target.stat().st_mtime > newest:
            continue
        command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=gnu11", "-D_GNU_SOURCE", "-o", str(target)]
        subprocess.run([*command, *(str(SOURCES / part) for part in (main, *SHARED)), "-lcrypto"], check=True)
