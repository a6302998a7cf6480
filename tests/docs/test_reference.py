"""The written pages, configuration.md and commands.md of docs/reference/, are what the settings and the parsers say."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.cli.main import make_parser
from scripts.write_reference import PAGES, _unit, commands, configuration


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_page_is_what_the_source_gives(path: Path) -> None:
    assert path.read_text() == PAGES[path](), "run: make reference"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inside in action.choices.values():
                yield from parsers(inside)


def typed() -> list[tuple[str, ...]]:
    """The words of the examples in all helps but the first, whose lines are among the others, without what is said about them."""
    _, *below = parsers(make_parser())
    lines = "\n".join(parser.epilog or "" for parser in below).replace("\\\n", " ").splitlines()
    found = [shlex.split(re.split(r"\s{2,}(?=\w)", line.strip())[0]) for line in lines if re.match(r"\s+milepost ", line)]
    cut = [tuple(words[: words.index("|")] if "|" in words else words) for words in found]
    return sorted({words for words in cut if "..." not in words})


@pytest.mark.parametrize("words", typed(), ids=" ".join)
def test_an_example_in_a_help_can_be_typed(words: tuple[str, ...]) -> None:
    assert callable(make_parser().parse_args(words[1:]).run)


def test_there_are_examples_in_helps() -> None:
    assert len(typed()) > 40


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = commands()
    for parser in parsers(make_parser()):
        options = [option for action in parser._actions for option in action.option_strings]
        if parser.get_default("run"):
            assert f"\n## {parser.prog}\n" in page
            section = page.partition(f"\n## {parser.prog}\n")[2].partition("\n## ")[0]
            assert [option for option in options if f"`{option}" not in section and option not in ("-h", "--help")] == []


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("keep_alive_s_max", "s"),
        ("queue_bytes_max", "bytes"),
        ("bytes_per_s", "bytes a second"),
        ("reports_per_s", "a second"),
        ("speed_mps_max", "m/s"),
        ("radius_m_min", "m"),
        ("gather_ms", "ms"),
        ("side_deg", "degrees"),
        ("sessions_max", ""),
        ("address", ""),
    ],
)
def test_a_unit_follows_from_the_name(key: str, unit: str) -> None:
    assert _unit(key) == unit


def test_the_page_of_settings_shows_examples_apart_from_defaults() -> None:
    page = configuration()
    assert "| `receive_max` | `20` |  | QoS 1 and 2 messages" in page
    assert "| `allow` | `[true]` |" in page
