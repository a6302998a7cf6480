"""Dead files: every module is imported, and every script, benchmark and test part is used."""

import ast
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from house.rules.tree import CODE, GENERATED, files, module_of, name_of, parsed, python_files, text_of

ENTRY_NAMES = {"__init__", "__main__", "conftest"}
OUTPUT_FOLDERS = ("bench/results/",)


def dead_modules(root: Path) -> list[str]:
    """Return modules of src that no module imports and pyproject.toml does not declare as public or as a command."""
    used = _declared(root)
    for path in python_files(root, "src"):
        used |= imported_by(parsed(path)) - {module_of(root, path)}
    known = {module_of(root, path): path for path in python_files(root, "src")}
    dead = [path for name, path in known.items() if path.stem not in ENTRY_NAMES and name not in used]
    gone = [name for name in _public(root) if name not in known]
    return [f"{name_of(root, path)} is imported by nothing in src" for path in dead] + [
        f"pyproject.toml declares {name} as public, there is no such module" for name in gone
    ]


def dead_parts(root: Path) -> list[str]:
    """Return scripts, benchmarks, examples and test parts that no other file uses or mentions."""
    faults = []
    imported = {path: imported_by(parsed(path)) for path in python_files(root, *CODE)}
    for path in files(root):
        name = name_of(root, path)
        is_part = name.startswith(("scripts/", "bench/", "examples/", "tests/")) and not name.startswith(OUTPUT_FOLDERS)
        is_test = path.name.startswith("test_") and name.startswith("tests/")
        if is_part and not is_test and path.stem not in ENTRY_NAMES and not _is_used(root, path, imported):
            faults.append(f"{name} is used by nothing")
    return faults


def _public(root: Path) -> list[str]:
    tool = tomllib.loads((root / "pyproject.toml").read_text()).get("tool", {})
    names: list[str] = tool.get("milepost", {}).get("house", {}).get("public", [])
    return names


def _declared(root: Path) -> set[str]:
    project = tomllib.loads((root / "pyproject.toml").read_text()).get("project", {})
    return set(_public(root)) | {target.partition(":")[0] for target in project.get("scripts", {}).values()}


def imported_by(tree: ast.Module) -> set[str]:
    """Return the modules, and names in modules, that a file imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{name.name}" for name in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("milepost"):
            names.add(node.value)  # imported by name
    return names


def _is_used(root: Path, path: Path, imported: Mapping[Path, set[str]]) -> bool:
    if path.suffix == ".py":
        module = module_of(root, path)
        if any(module in names for other, names in imported.items() if other != path):
            return True
        pattern = re.compile(rf"(?<![\w.]){re.escape(module)}(?![\w.])|(?<!\w){re.escape(name_of(root, path))}\b")
    else:
        pattern = re.compile(rf"(?<![\w-]){re.escape(path.name)}(?![\w-])|(?<!\w){re.escape(name_of(root, path.parent))}/\*")
    return any(pattern.search(text_of(other)) for other in files(root) if other != path and GENERATED not in other.parts)
