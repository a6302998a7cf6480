"""Write docs/reference/reasons.md from milepost.model.reasons: `python scripts/write_reasons.py`."""

from itertools import groupby
from pathlib import Path

from milepost.model.reasons import Reason

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "reasons.md"

OPENING = """# Reasons

Why something was not let in. A number, once released, is never given to anything else. Each refusal carries the number, the
name, what exactly was wrong, and the advice below. This page is written by `scripts/write_reasons.py`; change
`milepost.model.reasons` instead.
"""


def page() -> str:
    """The whole page, a table for each ten numbers."""
    lines = [OPENING]
    for decade, reasons in groupby(sorted(Reason), key=lambda reason: reason // 10):
        lines += [f"## {decade}0 to {decade}9", "", "| number | name | what to change |", "|---|---|---|"]
        lines += [f"| {reason.value} | `{reason.name}` | {_cell(reason.advice)} |" for reason in reasons]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page())
