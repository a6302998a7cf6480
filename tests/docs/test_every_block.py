"""Each block of each page is run, parsed, or a drawing; or it has a reason why not, and can at least be parsed."""

import ast
import configparser
import re
import shlex
import sqlite3
from pathlib import Path
from typing import Final

import pytest

from docs.pages import ROOT, Block, blocks_in, commands_of, every_block
from docs.test_examples import READERS
from docs.test_follow import FOLLOWED
from milepost.cli.main import make_parser
from milepost.config.settings import settings_from

DRAWING: Final = ""
FOLLOWED_LANGUAGES: Final = {"sh", "printed"}
ELSEWHERE: Final = {
    ("docs/how-to/archive.md", "python"): "tests/live/pipelines/test_archive_page.py",
    ("docs/how-to/archive.md", "queries"): "tests/live/pipelines/test_archive_page.py",
    ("docs/how-to/archive.md", "sh"): "tests/live/pipelines/test_archive_page.py",
    ("docs/reference/backtest.md", "sh"): "tests/live/pipelines/test_archive_page.py",
    ("docs/how-to/handlers.md", "python"): "tests/docs/test_handlers.py",
    ("docs/how-to/handlers.md", "sh"): "tests/docs/test_handlers.py",
    ("docs/how-to/handlers.md", "printed"): "tests/docs/test_handlers.py",
    ("docs/how-to/vehicles.md", "route"): "tests/docs/test_vehicles.py",
    ("docs/how-to/vehicles.md", "sh"): "tests/docs/test_vehicles.py",
    ("docs/how-to/vehicles.md", "printed"): "tests/docs/test_vehicles.py",
    ("docs/how-to/run-an-edge.md", "sh"): "tests/docs/test_operating.py",
    ("docs/how-to/run-an-edge.md", "printed"): "tests/docs/test_operating.py",
    ("docs/how-to/run-an-edge.md", "log"): "tests/docs/test_operating.py",
    ("docs/how-to/run-an-edge.md", "ini"): "tests/docs/test_every_block.py",
    ("docs/reference/client.md", "python"): "tests/live/client/test_page.py",
    ("docs/reference/commands.md", "help"): "tests/docs/test_reference.py",
    ("docs/reference/incidents.md", "cell"): "tests/unit/wire/test_incidents.py",
    ("docs/reference/incidents.md", "predicate"): "tests/unit/wire/test_incidents.py",
    ("docs/reference/incidents.md", "sql"): "tests/unit/wire/test_incidents.py",
    ("docs/reference/roads.md", "python"): "tests/docs/test_examples.py",
    ("docs/what-works.md", "python"): "tests/docs/test_examples.py",
}
"""The tests that run all blocks of a language on a page, if they are neither followed nor parsed line by line."""

WHOLE_PROGRAMS: Final = {
    "docs/how-to/city.md": "tests/live/demo/test_demo.py",
    "docs/how-to/papers.md": "tests/live/papers/test_papers.py",
}
"""Pages about one command that takes minutes: a test runs a smaller case, and here its options are parsed."""

COMMAND: Final = re.compile(r"^(?:\$ )?(?:milepost|mosquitto_\w+|make|curl|python|pip|openssl) ", re.MULTILINE)
BLOCKS: Final = every_block()
EXCUSED: Final = [block for block in BLOCKS if block.excuse]


def is_run(block: Block) -> bool:
    """Return whether a block is run or parsed, or needs neither."""
    if block.excuse or block.language in READERS or (block.page, block.language) in ELSEWHERE:
        return True
    if block.page in WHOLE_PROGRAMS and block.language in ("sh", DRAWING):
        return (ROOT / WHOLE_PROGRAMS[block.page]).exists()
    if block.language == DRAWING:
        return not COMMAND.search(block.text)
    is_file = block.language == "python" and block.text.startswith("# ")
    return block.page in FOLLOWED and (block.language in FOLLOWED_LANGUAGES or is_file)


def test_every_block_is_run_or_has_a_reason() -> None:
    assert len(BLOCKS) > 100
    assert [str(block) for block in BLOCKS if not is_run(block)] == []


@pytest.mark.parametrize(
    "text", ["```sh\nls\n```\n", "```\nmilepost edge run\n```\n", "```python\nprint()\n```\n", "```basic\nRUN\n```\n"]
)
def test_a_block_that_is_not_run_is_found(text: str) -> None:
    (block,) = blocks_in(text, "docs/new.md")
    assert not is_run(block)
    (excused,) = blocks_in(f"<!-- not run: a reason -->\n{text}", "docs/new.md")
    assert is_run(excused)


def test_a_test_that_runs_a_page_names_it() -> None:
    there = {(block.page, block.language) for block in BLOCKS}
    assert [key for key in ELSEWHERE if key not in there] == []
    wrong = [(page, test) for (page, _), test in ELSEWHERE.items() if Path(page).name not in (ROOT / test).read_text()]
    assert wrong == []


def check_options(block: Block) -> None:
    for command in commands_of(block.text):
        if command.startswith("milepost "):
            words = shlex.split(command, comments=True)
            assert callable(make_parser().parse_args(words[1:]).run)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.page in WHOLE_PROGRAMS], ids=str)
def test_the_options_of_a_long_command_are_valid(block: Block) -> None:
    check_options(block)


@pytest.mark.parametrize("block", EXCUSED, ids=str)
def test_a_block_that_is_not_run_can_be_parsed(block: Block) -> None:
    assert len(block.excuse) > 10
    match block.language:
        case "sh":
            check_options(block)
        case "toml":
            settings_from(block.text, source=str(block), folder=Path())
        case "python":
            compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        case "sql":
            assert sqlite3.complete_statement(f"{block.text};")
        case other:
            pytest.fail(f"no parser for {other}")


def test_few_blocks_are_not_run() -> None:
    """Each is a gap; the failure lists them with their reasons."""
    assert len(EXCUSED) <= 15, "\n".join(f"{block}: {block.excuse}" for block in EXCUSED)


def test_the_systemd_unit_of_the_operators_page_runs_an_edge() -> None:
    """The unit is in run-an-edge.md."""
    (text,) = [block.text for block in BLOCKS if block.language == "ini"]
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    _, *words = shlex.split(unit["Service"]["ExecStart"])
    assert make_parser().parse_args(words).config == Path("/etc/milepost/milepost.toml")
