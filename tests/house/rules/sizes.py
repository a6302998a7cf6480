"""Files have at most 600 lines, functions at most 60, and small modules several importers; generated code is exempt."""

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from house.rules.dead import ENTRY_NAMES, imported_by
from house.rules.tree import CODE, GENERATED, files, module_of, name_of, parsed, python_files, text_of

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
SMALL_LINES_MAX = 59
COMMAND = "a command, in a file of its name"
SMALL_BY_DESIGN = {
    "milepost.cli.agent": COMMAND,
    "milepost.cli.stdin_lines": "a thread and a queue, tested without the command that reads lines",
    "milepost.client.udp.subscriptions": "a table that is tested without a session",
    "milepost.listeners.udp.discovery": "the counterpart of milepost.client.udp.discovery, under the same name",
    "milepost.pipelines.catalogue": "its importer is a process; the list of pipelines belongs to this package",
    "milepost.runtime.services.guard": "a process of its own, started by its name",
    "milepost_experiments.papers.command": COMMAND,
}
"""Small modules with a single importer that stay separate, with the reason."""


def size_faults(root: Path) -> list[str]:
    """Return files and functions that are too long."""
    return [*_long_files(root), *_long_functions(root)]


def _long_files(root: Path) -> list[str]:
    faults = []
    for path in files(root):
        name = name_of(root, path)
        is_code = name.startswith(tuple(f"{top}/" for top in CODE)) and (path.suffix == ".py" or text_of(path).startswith("#!"))
        lines = len(text_of(path).splitlines())
        if is_code and GENERATED not in path.parts and lines > FILE_LINES_MAX:
            faults.append(f"{name} has {lines} lines, {FILE_LINES_MAX} are allowed")
    return faults


def _long_functions(root: Path) -> list[str]:
    faults = []
    for path in python_files(root, *CODE):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    where = f"{name_of(root, path)}:{node.lineno} {node.name}"
                    faults.append(f"{where} has {lines} lines, {FUNCTION_LINES_MAX} are allowed")
    return faults


def small_faults(root: Path, by_design: Mapping[str, str]) -> list[str]:
    """Return modules of src under 60 lines with a single importer, into which they should be merged.

    The `__init__` of the package does not count: other modules import the exported names.
    """
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for path in python_files(root, "src"):
        for name in imported_by(parsed(path)):
            importers[name].add(module_of(root, path))
    modules = {module_of(root, path) for path in python_files(root, "src")}
    faults = [f"{module} does not exist: remove it from the list" for module in by_design if module not in modules]
    for path in python_files(root, "src"):
        module, lines = module_of(root, path), len(text_of(path).splitlines())
        importing = importers[module] - {module}
        is_small = lines <= SMALL_LINES_MAX and path.stem not in ENTRY_NAMES
        if is_small and len(importing) == 1 and importing != {module.rpartition(".")[0]}:
            if module not in by_design:
                faults.append(f"{name_of(root, path)} has {lines} lines and one importer, {min(importing)}: merge it")
        elif module in by_design:
            faults.append(f"{module} is not a small module with one importer any more: remove it from the list")
    return faults
