"""Which files of the package run while something is done: for the tests that hold `docs/walk.md` to the code.

*Invariants:* only functions that are called count. Module and class bodies do not: an import is not a step of a message's way.
"""

import inspect
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType

REPOSITORY = Path(__file__).parent.parent
SOURCE = REPOSITORY / "src" / "milepost"
WALK = REPOSITORY / "docs" / "walk.md"


def traced_files(run: Callable[[], object]) -> set[str]:
    """Call *run* and return the files below `src/milepost` in which a function was called, as `broker/broker.py`.

    Threads that *run* starts are traced too; other processes are not. Where lazy imports would call functions that the message
    itself does not need, call *run* once before, untraced.
    """
    called: set[CodeType] = set()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
    prefix = f"{SOURCE}/"
    functions = (code for code in called if code.co_flags & inspect.CO_OPTIMIZED)
    return {code.co_filename.removeprefix(prefix) for code in functions if code.co_filename.startswith(prefix)}


def without_model(files: set[str]) -> set[str]:
    """Return *files* without those of `model`, which every step uses."""
    return {file for file in files if not file.startswith("model/")}


def walk_files(section: str) -> set[str]:
    """Return the files named in the fenced blocks of a section of `docs/walk.md`: each line's first word, if it ends in `.py`."""
    text = WALK.read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(section)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"docs/walk.md has no section {section!r}"
    blocks: list[str] = re.findall(r"^```[a-z]*\n(.*?)^```$", found[1], re.MULTILINE | re.DOTALL)
    return {words[0] for block in blocks for line in block.splitlines() if (words := line.split()) and words[0].endswith(".py")}
