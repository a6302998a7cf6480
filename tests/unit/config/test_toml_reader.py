"""The TOML reader on small dataclasses: features that the settings do not use."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest

from milepost.config.errors import UsageFault
from milepost.config.toml_reader import FileName, Inline, Key, Range, TomlReader, keys_of


@dataclass(frozen=True, slots=True)
class Inner:
    words: tuple[str, ...] = ()
    share: Annotated[float, Range(0, 1)] = 0.5
    maybe: str | None = None


@dataclass(frozen=True, slots=True)
class Outer:
    need: int
    colour: Literal["red", "green"] = "red"
    file: Annotated[str, FileName()] = "f"
    kind: Annotated[str, Key("class")] = ""
    inner: Inner = field(default_factory=Inner)
    spread: Annotated[Inner, Inline()] = field(default_factory=Inner)


def read(text: str) -> Outer:
    return TomlReader(text, "t", Path("/base")).read(Outer)


def test_keys_are_field_names_renamed_and_inlined() -> None:
    assert list(keys_of(Outer)) == ["need", "colour", "file", "class", "inner", "words", "share", "maybe"]


def test_values_reach_their_fields() -> None:
    found = read('need = 1\ncolour = "green"\nclass = "c"\nshare = 1\nmaybe = "m"\n[inner]\nwords = ["a", "b"]')
    assert found == Outer(1, "green", "/base/f", "c", Inner(words=("a", "b")), Inner(share=1.0, maybe="m"))
    assert isinstance(found.spread.share, float)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "t: the file needs need, a whole number of at least 0"),
        ("need = 1\nshare = 1.5", "t, line 2: the file share is 1.5 (a number), expected a number of at least 0 and at most 1"),
        ("need = 1\nshare = nan", "share is nan"),
        ("need = 1\ncolour = 'blue'", 'colour is "blue" (text), expected "red" or "green"'),
        ("need = 1\n[inner]\nwords = ['a', 2]", "t, line 3: [inner] words[1] is 2 (a whole number), expected text"),
        ("need = 1\n[inner]\nwords = 'a'", 'words is "a" (text), expected an array, each text'),
        ("need = 1\nmaybe = 3", "maybe is 3 (a whole number), expected text"),
    ],
)
def test_faults_name_key_and_expected_type(text: str, complaint: str) -> None:
    with pytest.raises(UsageFault) as caught:
        read(text)
    assert complaint in str(caught.value)


@dataclass(frozen=True, slots=True)
class Checked:
    low: int = 0
    high: int = 1

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"high is {self.high}, less than low")
        if self.low == self.high:
            raise ValueError("both are equal")


@dataclass(frozen=True, slots=True)
class Around:
    checked: Checked = field(default_factory=Checked)
    inline: Annotated[Checked, Inline()] = field(default_factory=Checked)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[checked]\nlow = 3\nhigh = 2", "t, line 3: [checked] high is 2, less than low"),
        ("[checked]\nlow = 3", "t, line 1: [checked] high is 1, less than low"),  # a default has the line of its table
        ("[checked]\nlow = 1", "t, line 1: [checked]: both are equal"),
        ("low = 3\nhigh = 2", "t, line 2: the file high is 2, less than low"),
    ],
)
def test_a_check_that_names_a_key_is_reported_at_its_line(text: str, complaint: str) -> None:
    with pytest.raises(UsageFault) as caught:
        TomlReader(text, "t", Path()).read(Around)
    assert str(caught.value) == complaint
