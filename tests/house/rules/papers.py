"""docs/papers.md has one row for each requirement, and what a row says is true."""

import re
from collections import Counter
from pathlib import Path

from house.rules.tree import text_of

LAST_NUMBERS = {"M": 34, "P": 15, "O": 15, "D": 15, "T": 28}
REQUIREMENTS = [f"{letter}{number}" for letter, last in LAST_NUMBERS.items() for number in range(1, last + 1)]
NOT_YET = "not yet"

ROW = re.compile(r"^\| *([MPODT]\d+) *\|(.*)\|(.*)\|(.*)\|$", re.MULTILINE)
SHOWN_BY = re.compile(r"`((?:tests|bench)/[^`:]+)(?:::\w+)?`")


def paper_faults(root: Path) -> list[str]:
    """Requirements without a row or with two, and rows whose evidence is not there."""
    rows = ROW.findall(text_of(root / "docs" / "papers.md"))
    count = Counter(row[0] for row in rows)
    faults = [f"{one} has {count[one]} rows in docs/papers.md" for one in REQUIREMENTS if count[one] != 1]
    faults += [f"{one} in docs/papers.md is no requirement" for one in count if one not in REQUIREMENTS]
    for one, what, _, shown in rows:
        if not what.strip():
            faults.append(f"{one} does not say what it is")
        faults += _evidence_faults(root, one, shown.strip())
    return faults


def _evidence_faults(root: Path, requirement: str, shown: str) -> list[str]:
    paths = SHOWN_BY.findall(shown)
    if not paths:
        is_honest = shown.startswith(NOT_YET)
        return [] if is_honest else [f"{requirement} is shown by {shown!r}: name a file of tests or bench, or say {NOT_YET!r}"]
    faults = []
    for name in paths:
        if not (root / name).is_file():
            faults.append(f"{requirement} is shown by {name}, which is not there")
        elif not re.search(rf"(?<![A-Za-z0-9]){requirement}(?![0-9])", text_of(root / name), re.IGNORECASE):
            faults.append(f"{requirement} is shown by {name}, which does not mention it")
    return faults
