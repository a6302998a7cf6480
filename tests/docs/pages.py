"""The examples of the documents: every fenced block of README.md and docs/, with its position and the reason if it is not run.

A block that cannot be run has an HTML comment before it: `<!-- not run: why -->`.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(r"(?:^<!-- not run: ([^\n]+) -->\n)?^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    excuse: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {self.language or 'plain'}"


def blocks_in(text: str, page: str) -> list[Block]:
    """Return the blocks of a page, in order."""
    return [
        Block(page, text[: found.start(2)].count("\n") + 1, found[2], found[3], found[1] or "") for found in _FENCE.finditer(text)
    ]


def blocks_of(page: str, *languages: str) -> list[Block]:
    """Return the blocks of a page that are run, in order: all of them, or those in some languages."""
    found = blocks_in((ROOT / page).read_text(), page)
    return [block for block in found if not block.excuse and (not languages or block.language in languages)]


def every_block() -> list[Block]:
    """Return all blocks of all pages."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [block for page in pages for block in blocks_in(page.read_text(), page.relative_to(ROOT).as_posix())]


def commands_of(text: str) -> list[str]:
    """Return the commands of an sh block: continued lines and here-documents are one command; comments are omitted."""
    commands: list[str] = []
    lines = iter(text.replace("\\\n", " ").splitlines())
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        word = re.search(r"<<'(\w+)'", line)
        whole = [line if word else re.sub(r"\s{2,}# .*$", "", line)]
        while word and whole[-1] != word[1]:
            whole.append(next(lines))
        commands.append("\n".join(whole))
    return commands
