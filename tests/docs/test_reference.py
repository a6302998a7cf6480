"""The generated pages, configuration.md and commands.md of docs/reference/, match the settings and the parsers."""

import argparse
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.cli.main import make_parser
from milepost.config.settings import PipelineProcessSettings
from milepost.config.toml_reader import keys_of
from milepost.pipelines.spark_settings import DEFAULTS, REQUIRED
from parts import ROOT
from scripts.write_reference import PAGES, _unit, commands, configuration


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_generated_page_is_up_to_date(path: Path) -> None:
    assert path.read_text() == PAGES[path](), "run: make reference"


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inside in action.choices.values():
                yield from parsers(inside)


def help_examples() -> list[tuple[str, ...]]:
    """Return the arguments of the examples in all help texts but the first, which repeats others, without their comments."""
    _, *below = parsers(make_parser())
    lines = "\n".join(parser.epilog or "" for parser in below).replace("\\\n", " ").splitlines()
    found = [shlex.split(re.split(r"\s{2,}(?=\w)", line.strip())[0]) for line in lines if re.match(r"\s+milepost ", line)]
    cut = [tuple(words[: words.index("|")] if "|" in words else words) for words in found]
    return sorted({words for words in cut if "..." not in words})


@pytest.mark.parametrize("words", help_examples(), ids=" ".join)
def test_an_example_in_a_help_text_is_valid(words: tuple[str, ...]) -> None:
    assert callable(make_parser().parse_args(words[1:]).run)


def test_help_texts_have_examples() -> None:
    assert len(help_examples()) > 40


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
        ("bytes_per_s", "bytes/s"),
        ("reports_per_s", "per second"),
        ("speed_mps_max", "m/s"),
        ("radius_m_min", "m"),
        ("batch_wait_ms", "ms"),
        ("side_deg", "degrees"),
        ("sessions_max", ""),
        ("address", ""),
    ],
)
def test_the_unit_of_a_setting_follows_from_its_name(key: str, unit: str) -> None:
    assert _unit(key) == unit


def test_the_page_of_settings_shows_examples_apart_from_defaults() -> None:
    page = configuration()
    assert "| `receive_max` | `20` |  | Receive Maximum (MQTT 5)" in page
    assert "| `allow` | `[true]` |" in page


def test_the_page_of_pipelines_has_every_setting_and_sparks_with_their_reasons() -> None:
    page = (ROOT / "docs" / "how-to" / "pipelines.md").read_text()
    assert [key for key in keys_of(PipelineProcessSettings) if f"| `{key}` |" not in page] == []
    rows = [f"| `{name}` = `{one.value}` | {one.reason} |" for name, one in {**DEFAULTS, **REQUIRED}.items()]
    assert [row for row in rows if row not in page] == []
