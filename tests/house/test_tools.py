"""The linters are configured to fail: each is run, with this project's settings, on a small tree with a fault."""

import subprocess
import sys
from pathlib import Path

import pytest

from house.rules.tree import ROOT, Plant

BIN = Path(sys.executable).parent
FOLDERS = ("", "model/", "wire/", "matching/", "roads/", "trust/", "vetting/", "broker/", "federation/", "incidents/")
PACKAGES = {f"src/milepost/{folder}__init__.py": '"""A package."""\n' for folder in FOLDERS} | {
    "src/milepost_experiments/__init__.py": '"""A package."""\n'
}
GOOD = {"pyproject.toml": (ROOT / "pyproject.toml").read_text(), **PACKAGES}


def complaints(root: Path, tool: str, *options: str) -> str:
    """Return the output of a tool; empty if it succeeds."""
    environment = {"PYTHONPATH": str(root / "src"), "PATH": ""}
    command = [str(BIN / tool), *options]
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def imports(root: Path) -> str:
    return complaints(root, "lint-imports", "--no-cache", "--no-logo")


def test_a_good_tree_passes(plant: Plant) -> None:
    root = plant({**GOOD, "src/milepost/wire/json.py": '"""JSON."""\n\nfrom milepost import model\n\n__all__ = ["model"]\n'})
    assert imports(root) == ""
    assert complaints(root, "ruff", "check", "--no-cache", "src") == ""
    assert complaints(root, "ruff", "format", "--no-cache", "--check", "src") == ""


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("model/x.py", "import milepost.wire", "milepost.model is not allowed to import milepost.wire"),  # upwards
        ("matching/x.py", "import milepost.roads.net", "milepost.matching is not allowed to import milepost.roads"),  # sideways
        ("surprise/__init__.py", "", "surprise"),  # a package without a layer
        ("wire/x.py", "import asyncio", "milepost.wire is not allowed to import asyncio"),
        ("matching/x.py", "from time import monotonic", "milepost.matching is not allowed to import time"),
        ("model/x.py", "def later():\n    import random", "milepost.model is not allowed to import random"),
    ],
)
def test_a_broken_layer_is_found(plant: Plant, name: str, text: str, complaint: str) -> None:
    packages = {"src/milepost/roads/__init__.py": "", "src/milepost/roads/net.py": ""}
    assert complaint in imports(plant({**GOOD, **packages, f"src/milepost/{name}": text}))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("D100", "LIMIT = 3\n"),
        ("D101", '"""X."""\n\n\nclass Open:\n    pass\n'),
        ("D102", '"""X."""\n\n\nclass Open:\n    """X."""\n\n    def up(self): ...\n'),
        ("D103", '"""X."""\n\n\ndef up(): ...\n'),
        ("T201", '"""X."""\n\nprint(3)\n'),
        ("I001", '"""X."""\n\nimport sys\nimport re\n\n__all__ = ["re", "sys"]\n'),
        ("E501", '"""X' + " x" * 65 + '."""\n'),
        ("TID252", '"""X."""\n\nfrom . import wire\n\n__all__ = ["wire"]\n'),
    ],
)
def test_ruff_finds(plant: Plant, code: str, text: str) -> None:
    assert code in complaints(plant({**GOOD, "src/milepost/bad.py": text}), "ruff", "check", "--no-cache", "src")


def test_a_folder_without_init_is_found(plant: Plant) -> None:
    root = plant({**GOOD, "src/milepost/mesh/net.py": '"""X."""\n'})
    assert "INP001" in complaints(root, "ruff", "check", "--no-cache", "src")


def test_mypy_is_strict(plant: Plant) -> None:
    root = plant({**GOOD, "src/milepost/bad.py": "def up(x): return x\n", "tests/test_bad.py": "def down(x): return x\n"})
    found = complaints(root, "mypy", "--no-incremental", "src", "tests")
    assert "src/milepost/bad.py:1: error" in found
    assert "tests/test_bad.py:1: error" in found
