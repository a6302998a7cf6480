"""The definitions of the source, read without importing it: modules, their names, and the members of their classes."""

import ast
import re
from functools import cache
from pathlib import Path

from house.rules.tree import files, module_of, parsed, python_files, text_of

Members = dict[str, "Members"]


@cache
def modules(root: Path) -> dict[str, Members]:
    """Return every module of src with the names it defines, packages without `__init__.py` included."""
    found: dict[str, Members] = {}
    for path in [path for path in files(root) if path.suffix == ".py" and root / "src" in path.parents]:
        name = module_of(root, path)
        found[name] = _members(parsed(path).body)
        parts = name.split(".")
        for end in range(1, len(parts)):
            found.setdefault(".".join(parts[:end]), {})
    return found


def exists(root: Path, dotted: str) -> bool:
    """Whether a full dotted name (`milepost.model.areas.Circle.contains`) exists."""
    known = modules(root)
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        if (module := ".".join(parts[:end])) in known:
            return _leads_somewhere(known[module], parts[end:])
    return False


def maybe_exists(root: Path, dotted: str) -> bool | None:
    """The same for a name that begins in the middle (`areas.Circle`, `Reason.MALFORMED`); None if it belongs to other code."""
    known = modules(root)
    first, *rest = dotted.split(".")
    owners = [name for name in known if name.rpartition(".")[2] == first]
    classes = [members[first] for members in known.values() if members.get(first)]
    if not owners and not classes:
        return None
    return any(exists(root, ".".join([owner, *rest])) for owner in owners) or any(_leads_somewhere(one, rest) for one in classes)


@cache
def words(root: Path) -> frozenset[str]:
    """Return every word of files other than documents, without the faulty samples of the house tests."""
    house = root / "tests" / "house"
    texts = (text_of(path) for path in files(root) if path.suffix not in (".md", ".lock") and house not in path.parents)
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


@cache
def definitions(root: Path, top: str) -> frozenset[str]:
    """Return the names of functions and classes below a folder."""
    trees = [parsed(path) for path in python_files(root, top)]
    return frozenset(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef))


def _leads_somewhere(members: Members, rest: list[str]) -> bool:
    for name in rest:
        if name not in members:
            return False
        members = members[name]
    return True


def _members(body: list[ast.stmt]) -> Members:
    found: Members = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = _members(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = {}
        elif isinstance(node, ast.Assign):
            found |= {target.id: {} for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = {}
        elif isinstance(node, ast.ImportFrom):
            found |= {name.asname or name.name: {} for name in node.names}
    return found
