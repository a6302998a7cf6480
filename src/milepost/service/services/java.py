"""The Java that runs the servers: found, and new enough."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from milepost.service.faults import StartFault

JAVA_MIN: Final = 17
"""What Kafka 4 asks for."""

_ANSWER_S_MAX: Final = 30
_VERSION: Final = re.compile(r'version "(\d+)')
_INSTALL: Final = f"install one (on Debian: apt-get install openjdk-{JAVA_MIN}-jre-headless), or set JAVA_HOME"


def find_java() -> str:
    """The path of a `java` that will do: that of JAVA_HOME, or the first on the path."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None:
        raise StartFault(f"the servers need Java {JAVA_MIN} or newer and there is none: {_INSTALL}")
    version = _version_of(java)
    if version < JAVA_MIN:
        raise StartFault(f"{java} is Java {version}, and the servers need {JAVA_MIN} or newer: {_INSTALL}")
    return java


def _version_of(java: str) -> int:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise StartFault(f"{java} does not run ({fault}): {_INSTALL}") from None
    found = _VERSION.search(said)
    return int(found[1]) if found else 0
