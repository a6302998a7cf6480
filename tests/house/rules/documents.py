"""Documents refer only to existing paths, links, make targets, modules and names in the code.

In backticks: a path below a folder of ours, a file name, `make x`, a dotted name of ours, and any word that can only be a name in
code (CamelCase, snake_case, CONSTANT_CASE). A part in CAPITALS inside a path is a placeholder. Names of planned code are written
without backticks. In the source only paths and make targets are checked; mypy checks the rest.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from house.rules.names import definitions, exists, maybe_exists, words
from house.rules.tree import files, name_of, python_files, text_of

HISTORY = {"CHANGELOG.md"}  # may name what a release has removed

CODE_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MAKE = re.compile(r"^(?:\w+=\S+ )*make ((?:[a-z][\w-]*|[A-Z_]+=\S+)(?: \S+)*)")
PATH = re.compile(r"^(?:src|tests|bench|docs|scripts|examples|\.ci)/\S*$")
FILE_NAME = re.compile(r"^[\w-][\w.-]*\.(?:toml|lock|md|txt|py|json|proto|html|svg|png)$")
DOTTED = re.compile(r"^[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$")
NAME_IN_CODE = re.compile(r"^(?:[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|_*[a-z0-9]+(?:_[a-z0-9]+)+|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)$")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def document_faults(root: Path) -> list[str]:
    """Return the names in documents that do not exist."""
    faults = []
    for path in files(root):
        if path.suffix == ".md":
            faults += [f"{name_of(root, path)} names {what}" for what in _missing(root, path)]
    for path in python_files(root, "src"):
        spans = CODE_SPAN.findall(text_of(path))
        faults += [f"{name_of(root, path)} names {what}" for span in spans for what in _missing_place(root, span)]
    return faults


def _missing(root: Path, path: Path) -> Iterator[str]:
    text = text_of(path)
    prose = FENCE.sub("", text)
    for link in LINK.findall(prose):
        if not _link_leads_somewhere(path, link):
            yield f"the link {link}, which leads nowhere"
    if path.name in HISTORY:
        return
    for fence in FENCE.findall(text):
        yield from (what for line in fence.splitlines() for what in _missing_targets(root, line.strip()))
    for span in CODE_SPAN.findall(prose):
        yield from _missing_in_span(root, span.strip())


def _missing_in_span(root: Path, span: str) -> Iterator[str]:
    if span.startswith("make ") or PATH.match(span):
        yield from _missing_place(root, span)
    elif FILE_NAME.match(span):
        if not any(path.name == span for path in files(root)):
            yield f"{span}, a file that is nowhere"
    elif DOTTED.match(span.removesuffix("()")):
        yield from _missing_dotted(root, span.removesuffix("()"))
    else:
        name = re.sub(r"\(.*\)$", "", span)
        if NAME_IN_CODE.match(name) and name not in words(root):
            yield f"{name}, which no code mentions"


def _missing_place(root: Path, span: str) -> Iterator[str]:
    if PATH.match(span):
        yield from _missing_path(root, span)
    else:
        yield from _missing_targets(root, span)


def _missing_targets(root: Path, line: str) -> Iterator[str]:
    match = MAKE.match(line)
    makefile = root / "Makefile"
    if match:
        known = set(re.findall(r"^([a-z][\w-]*):", text_of(makefile), re.MULTILINE)) if makefile.exists() else set()
        words = re.sub(r'"[^"]*"', "", match.group(1)).split("#")[0]
        targets = [word for word in words.split() if "=" not in word]
        yield from (f"make {word}, a target that is not in the Makefile" for word in targets if word not in known)


def _missing_path(root: Path, span: str) -> Iterator[str]:
    where, _, test = span.partition("::")
    pattern = PLACEHOLDER.sub("*", where).replace("…", "*").rstrip("/")
    if pattern != where.rstrip("/"):
        pattern = pattern.split("*")[0].rpartition("/")[0]  # a placeholder: the folder above it must be there
    if not any(root.glob(pattern)):
        yield f"{where}, a path that is not there"
    elif test and test not in definitions(root, "tests"):
        yield f"{span}, a test that is not there"


def _missing_dotted(root: Path, dotted: str) -> Iterator[str]:
    is_there = exists(root, dotted) if dotted.startswith("milepost.") else maybe_exists(root, dotted)
    if is_there is False:
        yield f"{dotted}, which the source does not define"


def _link_leads_somewhere(page: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    if re.match(r"[a-z]+:", target):
        return True  # the outside world is not checked
    there = (page.parent / target) if target else page
    if not there.exists():
        return False
    return not anchor or there.suffix != ".md" or anchor in _anchors(text_of(there))


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
