"""Write docs/reference/configuration.md and docs/reference/commands.md: `python scripts/write_reference.py`.

The first comes from milepost.example.toml, which a test holds complete; the second from the parsers of the command line.
"""

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from milepost.cli.main import make_parser

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
EXAMPLE = ROOT / "milepost.example.toml"

SETTINGS_OPENING = """# Configuration

One TOML file for all commands (`--config`). Each table is read by the command that needs it; a key that is not known, or a value
of another type, is a fault that names its line. Relative paths start from the folder of the file. A default in brackets is an
example: the key is not there unless you write it. What clients see when a limit is reached is said in [limits](limits.md).

This page is written by `scripts/write_reference.py` from `milepost.example.toml`, which can be copied from; change that instead.
"""
COMMANDS_OPENING = """# Command line

One command, `milepost`; each of those below has `--help`. The exit status is 0 when it is done, 1 when it failed, 2 for a wrong
command line or file, 130 after Ctrl-C. This page is written by `scripts/write_reference.py` from the command's own parsers.
"""

UNITS = {
    "bytes_per_s": "bytes a second",
    "per_s": "a second",
    "bytes_burst": "bytes",
    "bytes_max": "bytes",
    "minutes": "minutes",
    "intervals": "intervals",
    "kmh": "km/h",
    "mps": "m/s",
    "deg": "degrees",
    "ms": "ms",
    "s": "s",
    "m": "m",
}
"""Units by the last words of a name, the longest first; `_min` and `_max` behind them say nothing about the unit."""

KEY = re.compile(r"^(#?)(\w+) = (.+)$")
TABLE = re.compile(r"^#?(\[+[\w.]+\]+)$")


@dataclass
class Group:
    """Keys that one comment explains."""

    meaning: list[str] = field(default_factory=list)
    keys: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Table:
    """A table of the file, with what is said before it."""

    name: str
    about: list[str] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)


def configuration() -> str:
    """The page of settings."""
    lines = [SETTINGS_OPENING]
    for table in _tables(EXAMPLE.read_text()):
        lines += [f"## {table.name.strip('[]')}", ""]
        lines += ["May be there several times.", ""] if table.name.startswith("[[") else []
        lines += [" ".join(table.about), ""] if table.about else []
        lines += ["| key | default | unit | what it says |", "|---|---|---|---|"]
        lines += [_settings_row(group) for group in table.groups]
        lines.append("")
    return "\n".join(lines)


def _tables(text: str) -> list[Table]:
    tables: list[Table] = []
    comment: list[str] = []
    group = Group()
    for line in text.partition("\n\n")[2].splitlines():
        key, table = KEY.match(line), TABLE.match(line)
        if table:
            tables.append(Table(table[1], about=comment))
            comment = []
        elif key:
            if comment or not tables[-1].groups:
                group = Group(comment)
                tables[-1].groups.append(group)
                comment = []
            group.keys.append((key[2], f"[{key[3]}]" if key[1] else key[3]))
        elif line.startswith("# "):
            comment.append(line.removeprefix("# "))
    return tables


def _settings_row(group: Group) -> str:
    keys = "<br>".join(f"`{name}`" for name, _ in group.keys)
    defaults = "<br>".join(f"`{_cell(default)}`" if default != '""' else "empty" for _, default in group.keys)
    units = "<br>".join(_unit(name) for name, _ in group.keys)
    return f"| {keys} | {defaults} | {units if units.replace('<br>', '') else ''} | {_prose(' '.join(group.meaning))} |"


def _unit(name: str) -> str:
    bare = re.sub(r"_(?:min|max)$", "", name) if not name.endswith("bytes_max") else name
    return next((unit for words, unit in UNITS.items() if bare == words or bare.endswith(f"_{words}")), "")


def commands() -> str:
    """The page of commands."""
    return "\n".join([COMMANDS_OPENING, *_sections(make_parser())])


def _sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    inside = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in inside:
        for each in action.choices.values():
            yield from _sections(each)
    if not inside:
        yield from _section(parser)


def _section(parser: argparse.ArgumentParser) -> Iterator[str]:
    """One command that does something: what, with which words, and examples."""
    yield from (f"## {parser.prog}", "", _prose(parser.description or ""), "", "| word | what it says |", "|---|---|")
    for action in parser._actions:
        if not isinstance(action, argparse._HelpAction):
            yield f"| {_written(action)} | {_prose(_help(action))} |"
    yield ""
    if parser.epilog:
        yield from ("```help", parser.epilog.strip(), "```", "")


def _written(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"{action.metavar}"
    takes = "" if action.nargs == 0 else f" {action.metavar or '|'.join(map(str, action.choices or ())) or action.dest.upper()}"
    written = ", ".join(f"`{_cell(option + takes)}`" for option in action.option_strings)
    return f"{written}, needed" if action.required else written


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action)} if "%(" in (action.help or "") else (action.help or "").replace("%%", "%")


def _prose(text: str) -> str:
    """Text in which nothing means anything to Markdown but backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([|*<])", r"\\\1", part) for part in parts)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


PAGES = {REFERENCE / "configuration.md": configuration, REFERENCE / "commands.md": commands}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page())
