"""Plain technical English: nouns for classes and modules, nouns as subjects of docstrings, true names, short commit subjects.

Each rule bans one habit that made the code hard to read for engineers who know the field but not this project.
"""

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from house.rules.tree import CODE, module_of, name_of, parsed, python_files

SUBJECT_CHARACTERS_MAX = 72
THIS_RULE = "tests/house/rules/language.py"
"""Commits are checked from the one that adds this file on."""

PRONOUN_NAMES = {
    "anybody", "asked", "asking", "everybody", "heard", "kept", "nobody", "said", "saying", "somebody",
    "telling", "told", "wanted", "what", "who", "whoever", "whom", "wish", "wishes",
}  # fmt: skip
"""Words that leave open what a class or module holds."""

ESTABLISHED_GERUNDS = {
    "forwarding", "fuzzing", "mapping", "matching", "monitoring", "parking", "roaming", "routing", "signing", "tampering",
    "tracing", "tracking", "vetting",
}  # fmt: skip
"""Gerunds that are nouns of the field, in dictionaries of networking, security or testing."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")
_PARAMETER = re.compile(r"(?<![\w*])\*([A-Za-z_]\w*)\*(?![\w*])")
_AMOUNT = re.compile(r"So (?:many|much|long|far|often|few|little)\b")
_PRONOUN = r"(?:who|whom|whoever|somebody|nobody|everybody|anybody)"
_PRONOUN_SUBJECT = re.compile(
    rf"\A(?:{_PRONOUN}|what|whatever)\b"  # "What a step does", "Who is near"
    rf"|(?<=[.;:])\s+{_PRONOUN}\b"  # "...; who comes later is told then"
    rf"|\b(?:to|of|for|by|from|with) (?:who|whoever|somebody|nobody)\b"  # "sent to who is near"
    r"|\bwhat (?:is|are|was|were) (?:asked|heard|kept|meant|said|told|wanted)\b"
    r"|\b(?:is|are|was|were) (?:told|heard)\b",
    re.IGNORECASE,
)


def name_faults(root: Path) -> list[str]:
    """Return classes and modules named by a pronoun or participle, and modules named by a verb."""
    faults = []
    for path in python_files(root, *CODE):
        name = name_of(root, path)
        faults += [f"{name}: the module name {what}" for what in _module_faults(module_of(root, path))]
        classes = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]
        faults += [
            f"{name}:{node.lineno} the class name {node.name} does not say what it holds"
            for node in classes
            if PRONOUN_NAMES.intersection(_words(node.name))
        ]
    return faults


def _module_faults(module: str) -> Iterator[str]:
    for part in module.split("."):
        if PRONOUN_NAMES.intersection(part.split("_")):
            yield f"{part} does not say what it holds"
        elif re.fullmatch(r"[a-z]+ing", part) and part not in ESTABLISHED_GERUNDS:
            yield f"{part} is a verb; name the thing that it holds"


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(name)]


def repeated_classes(root: Path) -> list[str]:
    """Return public class names of src/milepost that several modules define."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in python_files(root, "src/milepost"):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name_of(root, path))
    return [f"{name} is a class of {', '.join(where)}" for name, where in sorted(places.items()) if len(where) > 1]


def docstring_faults(root: Path) -> list[str]:
    """Return docstrings of src with a pronoun for a subject, and values documented as "So many ..."."""
    faults = []
    for path in python_files(root, "src"):
        for line, text in _docstrings(parsed(path)):
            where = f"{name_of(root, path)}:{line}"
            if _AMOUNT.match(text):
                faults.append(f"{where} {text[:30]!r}: say maximum, number, time or distance")
            elif found := _PRONOUN_SUBJECT.search(text):
                faults.append(f"{where} {found[0].strip()!r}: name the subject with a noun")
    return faults


def parameter_faults(root: Path) -> list[str]:
    """Return names between asterisks, in the docstring of a function, that are not its parameters: they were renamed."""
    return [
        f"{name_of(root, path)}:{node.lineno} *{name}* is not a parameter of {node.name}"
        for path in python_files(root, *CODE)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in _PARAMETER.findall(ast.get_docstring(node) or "")
        if name not in _parameters(node.args)
    ]


def _parameters(args: ast.arguments) -> set[str]:
    starred = [one for one in (args.vararg, args.kwarg) if one is not None]
    return {one.arg for one in (*args.posonlyargs, *args.args, *args.kwonlyargs, *starred)}


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes and functions, and those below assignments, with their lines."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        is_documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for before, one in zip([None, *body], body, strict=False):
            follows = is_documented if before is None else isinstance(before, ast.Assign | ast.AnnAssign)
            if follows and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
                yield one.lineno, one.value.value.strip()


def commit_faults(root: Path) -> list[str]:
    """Return commit subjects that are too long, from the commit that adds this rule on; none without a git history."""
    if not (root / ".git").exists():
        return []
    added = _git(root, "log", "--diff-filter=A", "--format=%H", "--", THIS_RULE).split()
    if not added:
        return []
    first = added[-1]
    later = _git(root, "log", "--format=%h %s", f"{first}..HEAD").splitlines()
    subjects = [*later, *_git(root, "log", "-1", "--format=%h %s", first).splitlines()]
    return [
        f"commit {number} has a subject of {len(subject)} characters, {SUBJECT_CHARACTERS_MAX} are allowed: {subject}"
        for number, _, subject in (line.partition(" ") for line in subjects)
        if len(subject) > SUBJECT_CHARACTERS_MAX
    ]


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""
