"""External programs that a test needs: found, or the test is skipped with the command that installs them.

With CI=true such a skip is a failure (`plugins.no_skips`).
"""

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LISTED = ROOT / "tests" / "debian-packages.txt"
BUILT = ROOT / ".cache" / "bin"


def need(command: str, *, debian: str) -> str:
    """Return the path of a command of the Debian package `debian`; the package must be on the list that `make` installs."""
    listed = {line.partition(":")[2].strip() for line in LISTED.read_text().splitlines()}
    assert debian in listed, f"add {debian} to {LISTED.name}, or it will not be installed"
    found = shutil.which(command) or shutil.which(command, path=BUILT)
    if found is None:
        pytest.skip(f"{command} is not installed; fix: apt-get install --yes --no-install-recommends {debian}")
    return found
