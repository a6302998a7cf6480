"""The tree that a rule checks: this repository, or a small one that violates the rule."""

import ast
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
CODE = ("src", "tests", "bench", "scripts", "examples")
GENERATED = "_generated"

Plant = Callable[[dict[str, str]], Path]
"""The `plant` fixture: writes a small tree from a map of names to texts."""


@cache
def files(root: Path) -> tuple[Path, ...]:
    """Return every tracked and every new file; in a tree without git, every file."""
    if (root / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode().split("\0")
        found = [root / name for name in listed if name]
    else:
        found = [path for path in root.rglob("*") if "__pycache__" not in path.parts]
    return tuple(sorted(path for path in found if path.is_file()))


def python_files(root: Path, *tops: str) -> list[Path]:
    """Return Python files below the given folders, without generated ones."""
    folders = tuple(f"{top}/" for top in tops)
    ours = [path for path in files(root) if path.suffix == ".py" and name_of(root, path).startswith(folders)]
    return [path for path in ours if GENERATED not in path.parts]


@cache
def text_of(path: Path) -> str:
    """Return the file's text; empty for a picture or another file that is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""


@cache
def parsed(path: Path) -> ast.Module:
    """Return the file's syntax tree."""
    return ast.parse(text_of(path), filename=str(path))


def name_of(root: Path, path: Path) -> str:
    """Return the path relative to the root, with slashes."""
    return path.relative_to(root).as_posix()


def module_of(root: Path, path: Path) -> str:
    """Return the name under which it is imported: milepost.model.areas for its __init__.py, house.rules.tree for this file."""
    parts = path.relative_to(root).with_suffix("").parts
    if parts[0] in ("src", "tests"):
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
