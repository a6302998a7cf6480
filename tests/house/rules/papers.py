"""docs/papers.md has one row for each requirement, and names the test functions or benchmark rows that show it.

| M12 | what it is | where it lives | `tests/unit/x.py::test_y` |                    the function mentions M12
| M20 | what it is | where it lives | partly (no DHCP): `tests/unit/x.py::test_y` |  what is missing, then the evidence
| M31 | what it is | where it lives | `bench/results/x.md: first cell of a row` |
| M32 | what it is | | not yet |
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from house.rules.tree import text_of

LAST_NUMBERS = {"M": 40, "P": 18, "O": 19, "D": 16, "T": 33}
"""The requirements of each paper are numbered from 1 without gaps."""
REQUIREMENTS = [f"{letter}{number}" for letter, last in LAST_NUMBERS.items() for number in range(1, last + 1)]
NOT_YET = "not yet"

ROW = re.compile(r"^\| *([MPODT]\d+) *\|(.*)\|(.*)\|(.*)\|$", re.MULTILINE)
SPAN = re.compile(r"`([^`]+)`")
PARTLY = re.compile(r"partly \([^`)]+\): (?=`)")
FUNCTION = re.compile(r"(tests/[\w/.]+\.py)::(test_\w+)")
RESULT = re.compile(r"(bench/results/[\w/.-]+\.md): (.+)")


def paper_faults(root: Path) -> list[str]:
    """Return requirements without a row or with two, and rows whose evidence is missing."""
    rows = ROW.findall(text_of(root / "docs" / "papers.md"))
    count = Counter(row[0] for row in rows)
    faults = [f"{one} has {count[one]} rows in docs/papers.md" for one in REQUIREMENTS if count[one] != 1]
    faults += [f"{one} in docs/papers.md is no requirement" for one in count if one not in REQUIREMENTS]
    for one, what, _, shown in rows:
        if not what.strip():
            faults.append(f"{one} does not say what it is")
        faults += _evidence_faults(root, one, shown.strip())
    return faults


def _evidence_faults(root: Path, requirement: str, shown: str) -> Iterator[str]:
    if shown == NOT_YET:
        return
    evidence = PARTLY.sub("", shown, count=1)
    spans = SPAN.findall(evidence)
    if not spans or SPAN.sub("", evidence).strip(" ,"):
        yield f"{requirement} is shown by {shown!r}: name test functions or rows of results, or say {NOT_YET!r}"
    for span in spans:
        if function := FUNCTION.fullmatch(span):
            fault = _maybe_function_fault(root / function[1], function[2], requirement)
        elif result := RESULT.fullmatch(span):
            fault = None if _has_row(root / result[1], result[2]) else "which is not there"
        else:
            fault = "which is neither a test function nor a row of results"
        if fault:
            yield f"{requirement} is shown by {span}, {fault}"


def _maybe_function_fault(path: Path, name: str, requirement: str) -> str | None:
    """Return the fault of a test function as evidence: it must exist and mention the id of the requirement."""
    text = text_of(path) if path.is_file() else ""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            source = ast.get_source_segment(text, node) or ""
            is_there = re.search(rf"(?<![A-Za-z0-9]){requirement}(?![0-9])", source, re.IGNORECASE)
            return None if is_there else "which does not mention it"
    return "which is not there"


def _has_row(path: Path, first_cell: str) -> bool:
    return path.is_file() and any(line.startswith(f"| {first_cell} |") for line in text_of(path).splitlines())
