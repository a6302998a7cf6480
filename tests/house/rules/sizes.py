"""Files have at most 400 lines, functions at most 60; generated code is exempt."""

import ast
from pathlib import Path

from house.rules.tree import CODE, GENERATED, files, name_of, parsed, python_files, text_of

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60


def size_faults(root: Path) -> list[str]:
    """Files and functions that want to be taken apart."""
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
