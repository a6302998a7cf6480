"""Names without meaning (`utils`, `Manager`) are not used, and times have better names than "timestamp"."""

import ast
import re
from pathlib import Path

from house.rules.tree import CODE, module_of, name_of, parsed, python_files

EMPTY_MODULE_NAMES = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc", "data", "process", "stuff"}
EMPTY_CLASS_ENDING = re.compile(r"(Manager|Helper|Util|Utils)$")


def word_faults(root: Path) -> list[str]:
    """Return modules, classes and variables with such a name."""
    faults = []
    for path in python_files(root, *CODE):
        name = name_of(root, path)
        empty = EMPTY_MODULE_NAMES.intersection(module_of(root, path).split("."))
        faults += [f"{name}: the module name {part} has no meaning" for part in sorted(empty)]
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and EMPTY_CLASS_ENDING.search(node.name):
                faults.append(f"{name}:{node.lineno} the class name {node.name} has no meaning")
            elif name.startswith("src/") and "timestamp" in _named_here(node).lower():
                faults.append(f"{name}:{getattr(node, 'lineno', 0)} {_named_here(node)}: say seen_at, received_at or valid_until")
    return faults


def _named_here(node: ast.AST) -> str:
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
