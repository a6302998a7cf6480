"""The example file: complete, true, and made of lines that work."""

import re
from dataclasses import is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_origin

from house.rules.tree import ROOT
from milepost.config.settings import Settings, settings_from
from milepost.config.toml_reader import keys_of

EXAMPLE = (ROOT / "milepost.example.toml").read_text()
UNCOMMENTED = re.sub(r"^#(?=\S)", "", EXAMPLE, flags=re.MULTILINE)


def read(text: str) -> Settings:
    return settings_from(text, source="milepost.example.toml", folder=Path())


def keys_below(kind: Any, section: str) -> list[tuple[str, str]]:
    """Every section and key of the settings."""
    found = []
    for key, hint in keys_of(kind).items():
        bare = get_args(hint)[0] if get_origin(hint) is not None and not is_dataclass(hint) else hint
        inside = f"{section}.{key}".lstrip(".")
        found += keys_below(bare, inside) if is_dataclass(bare) else [(section, key)]
    return found


def written(text: str) -> list[tuple[str, str]]:
    section, found = "", []
    for line in text.splitlines():
        if header := re.match(r"\[+([\w.]+)\]", line):
            section = header[1]
        elif key := re.match(r"(\w+) =", line):
            found.append((section, key[1]))
    return found


def test_the_values_are_the_defaults() -> None:
    assert read(EXAMPLE) == Settings()


def test_every_key_is_in_the_example_once() -> None:
    wanted = keys_below(Settings, "")
    assert len(wanted) > 40
    assert sorted(written(UNCOMMENTED)) == sorted(wanted)


def test_commented_out_examples_are_valid() -> None:
    settings = read(UNCOMMENTED)
    assert [len(rules) for rules in (settings.access.rules, settings.rules.payload, settings.rules.priority)] == [1, 1, 1]


def test_every_group_of_keys_follows_a_comment() -> None:
    is_key = re.compile(r"#?\w+ =").match
    runs = [(above, line) for above, line in pairwise(EXAMPLE.splitlines()) if is_key(line) and not is_key(above)]
    assert len(runs) > 30
    assert [line for above, line in runs if not above.startswith("# ")] == []
