"""Listeners, federation and runtime use the broker through its own methods, never through an object behind it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from house.rules.tree import name_of, parsed, python_files

CALLERS = ("src/milepost/listeners", "src/milepost/federation", "src/milepost/runtime")
BROKER_NAMES = {"broker", "_broker"}
VALUES = {"limits", "rules"}
"""Frozen settings of the broker: their fields may be read."""


def facade_faults(root: Path) -> list[str]:
    """Return the places that reach through the broker, such as `broker.deliveries.actions`."""
    return [
        f"{name_of(root, path)}:{line} reaches through the broker: {chain}"
        for path in python_files(root, *CALLERS)
        for line, chain in _chains(parsed(path))
    ]


def _chains(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Attribute):
            inner = node.value
            if _last_name(inner.value) in BROKER_NAMES and inner.attr not in VALUES:
                yield node.lineno, ast.unparse(node)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
