"""The installed SUMO: its programs, its scripts, and the city that comes with it.

SUMO runs in separate processes: its library and pyarrow's cannot be loaded into one.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

CITY_NET: Final = "tools/game/DRT/osm.net.xml"
"""The streets of Berlin-Adlershof, from OpenStreetMap."""
TOOL_S_MAX: Final = 120.0
_LINES_SHOWN: Final = 5


class SumoFault(Exception):
    """SUMO is missing or failed; the text has the reason and the remedy."""


def home() -> Path:
    """Return the folder of SUMO."""
    spec = find_spec("sumo")
    if spec is None or spec.origin is None:
        raise SumoFault("SUMO is not installed: install the extra `experiments`")
    return Path(spec.origin).parent


def environment() -> dict[str, str]:
    """Return the environment variables for SUMO's programs."""
    return {**os.environ, "SUMO_HOME": str(home())}


def program(name: str) -> str:
    """Return the path of one of SUMO's programs."""
    return str(home() / "bin" / name)


def run_script(name: str, *arguments: object, folder: Path) -> None:
    """Run one of SUMO's scripts in a folder until it ends."""
    command = [sys.executable, str(home() / "tools" / name), *map(str, arguments)]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=TOOL_S_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        raise SumoFault(f"{name} timed out after {TOOL_S_MAX:g} s") from None
    if done.returncode:
        raise SumoFault(f"{name} failed:\n" + "\n".join(done.stderr.splitlines()[-_LINES_SHOWN:]))
