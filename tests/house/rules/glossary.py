"""docs/glossary.md lists the words of our own, each with the established term, its meaning and the code; it stays short."""

import re
from collections import Counter
from pathlib import Path

from house.rules.tree import text_of

WORDS_MAX = 70
"""Beyond this number a reader has to learn a language first."""

COLUMNS = ("word", "established term", "meaning", "code")
_CODE = re.compile(r"`milepost\.[\w.]+`")


def glossary_faults(root: Path) -> list[str]:
    """Return rows that lack a column, words listed twice, and an excess of words; `documents.py` checks that the code exists."""
    lines = [line for line in text_of(root / "docs" / "glossary.md").splitlines() if line.startswith("| ")]
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]
    rows = [row for row in rows if row != COLUMNS]
    faults = [f"docs/glossary.md: {row[0]} has no {column}" for row in rows for column in _missing(row)]
    counted = Counter(row[0] for row in rows)
    faults += [f"docs/glossary.md lists {word} {count} times" for word, count in counted.items() if count > 1]
    if len(rows) > WORDS_MAX:
        faults.append(f"docs/glossary.md has {len(rows)} words, {WORDS_MAX} are allowed: use the established terms")
    return faults


def _missing(row: tuple[str, ...]) -> list[str]:
    cells = dict(zip(COLUMNS, row, strict=False))
    return [column for column in COLUMNS if not cells.get(column) or (column == "code" and not _CODE.fullmatch(cells[column]))]
