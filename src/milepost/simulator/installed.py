"""SUMO as it is installed: its programs, its scripts, and the town that comes with it.

It runs as programs of its own: its library and pyarrow's cannot live in one process.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

TOWN: Final = "tools/game/DRT/osm.net.xml"
"""The streets of Berlin-Adlershof, from OpenStreetMap."""
TOOL_S_MAX: Final = 120.0
_LINES_SHOWN: Final = 5


class SumoFault(Exception):
    """SUMO is not there, or does not do what it was asked; says why, and what to do."""


def home() -> Path:
    """The folder of SUMO."""
    spec = find_spec("sumo")
    if spec is None or spec.origin is None:
        raise SumoFault("SUMO is not installed; install it: pip install 'milepost[sumo,roads]'")
    return Path(spec.origin).parent


def environment() -> dict[str, str]:
    """What its programs need to find each other."""
    return {**os.environ, "SUMO_HOME": str(home())}


def program(name: str) -> str:
    """The path of one of its programs."""
    return str(home() / "bin" / name)


def run_script(name: str, *arguments: object, folder: Path) -> None:
    """Run one of its scripts in a folder until it ends."""
    command = [sys.executable, str(home() / "tools" / name), *map(str, arguments)]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=TOOL_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise SumoFault(f"{name} has not ended after {TOOL_S_MAX:g} s") from None
    if done.returncode:
        raise SumoFault(f"{name} failed:\n" + "\n".join(done.stderr.splitlines()[-_LINES_SHOWN:]))
