"""A strict reader of TOML into frozen dataclasses: the dataclass is the schema.

Invariants:
- a key is the name of a field, or of its `Key`; unknown keys, missing keys and values of another type raise a `UsageFault`;
- each fault has file, line and section, the value that was found and the expected type;
- a `dict[str, str]` is a table with any keys;
- integers are at least 0 unless a `Range` allows less;
- a dataclass may check itself in `__post_init__` with a ValueError, to which file, line and section are added; a text that begins
  with the name of a key ("coverage: ...") is reported at the line of that key.

The types of fields are `Any` to `typing`, and so to this file.
"""

import math
import re
import tomllib
import types
import typing
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, Union, get_args, get_origin

from milepost.config.errors import UsageFault

KeyPath = tuple[str | int, ...]
"""The path of a table or key: names from the outside in, and an index in an array of tables."""

_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]")
_KEY: Final = re.compile(r"\s*([\w\-.\"' ]+?)\s*=")
_LEADING_KEY: Final = re.compile(r"[a-z_]+(?:\.[a-z_]+)*(?=\W)")
_LONG_TEXTS: Final = re.compile(r'"""|' + r"'''")


class Lines:
    """The line numbers of tables and keys in a TOML text, which `tomllib` does not keep.

    A table or key must begin a line; keys in an inline table have the line of the key around them.
    """

    def __init__(self, text: str) -> None:
        self._line_of: dict[KeyPath, int] = {}
        self._count: dict[KeyPath, int] = {}
        table: KeyPath = ()
        is_in_text = False
        for number, line in enumerate(text.splitlines(), start=1):
            if not is_in_text:
                table = self._note_line(line, number, table)
            if len(_LONG_TEXTS.findall(line)) % 2:
                is_in_text = not is_in_text

    def maybe_line(self, where: KeyPath) -> int | None:
        """Return the line on which a path, or the nearest one around it, begins; None for the text as a whole."""
        while where:
            if where in self._line_of:
                return self._line_of[where]
            where = where[:-1]
        return None

    def _note_line(self, line: str, number: int, table: KeyPath) -> KeyPath:
        """Record the table or key that begins on this line; return the table of the next line."""
        if header := _HEADER.match(line):
            table = self._table(_names(header[2]), is_one_of_many=header[1] == "[[")
            self._line_of.setdefault(table, number)
        elif key := _KEY.match(line):
            self._line_of.setdefault(table + _names(key[1]), number)
        return table

    def _table(self, names: KeyPath, *, is_one_of_many: bool) -> KeyPath:
        """Return the path of a table: inside the last item of an array of tables."""
        where: KeyPath = ()
        for name in names[:-1]:
            where += (name,)
            if where in self._count:
                where += (self._count[where] - 1,)
        where += names[-1:]
        if not is_one_of_many:
            return where
        self._count[where] = self._count.get(where, 0) + 1
        return (*where, self._count[where] - 1)


def _names(dotted: str) -> KeyPath:
    return tuple(name.strip().strip("\"'") for name in dotted.split("."))


Read = TypeVar("Read")

_NUMBER_MAX: Final = 2**63 - 1

_TYPE_NAMES: Final[dict[type, str]] = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "an array",
    dict: "a table",
}


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a field whose name differs from it."""

    name: str


@dataclass(frozen=True, slots=True)
class Range:
    """The minimum and the maximum of a number."""

    least: int
    greatest: int = _NUMBER_MAX


@dataclass(frozen=True, slots=True)
class Inline:
    """The keys of the field are in the surrounding table."""


@dataclass(frozen=True, slots=True)
class FileName:
    """The text is a path, relative to the folder of the settings file; empty means none."""


class TomlReader:
    """Reads one TOML text, named *source* in faults; relative paths in it start at *folder*."""

    def __init__(self, text: str, source: str, folder: Path) -> None:
        self._source = source
        self._folder = folder
        self._lines = Lines(text)
        try:
            self._table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as fault:
            raise UsageFault(f"{source}: not TOML: {fault}") from None

    def read(self, kind: type[Read]) -> Read:
        """Return the whole text as a dataclass."""
        return self._dataclass(kind, self._table, ())

    def _dataclass(self, kind: type[Read], table: dict[str, Any], where: KeyPath) -> Read:
        known = keys_of(kind)
        for name in table:
            if name not in known:
                raise self._fault((*where, name), f"{_section(where)} has no key {name!r}; {_nearest(name, known)}")
        return self._construct(kind, table, where)

    def _construct(self, kind: type[Read], table: dict[str, Any], where: KeyPath) -> Read:
        hints = typing.get_type_hints(kind, include_extras=True)
        given: dict[str, Any] = {}
        for field in fields(kind):  # type: ignore[arg-type]  # `kind` is a dataclass
            if not field.init:
                continue
            hint = hints[field.name]
            key = key_of(field, hint)
            if _annotation(hint, Inline):
                given[field.name] = self._construct(_bare(hint), table, where)
            elif key in table:
                given[field.name] = self._value(hint, table[key], (*where, key))
            elif field.default is MISSING and field.default_factory is MISSING:
                raise self._fault(where, f"{_section(where)} needs {key}, {_expected(hint)}")
            elif is_dataclass(_bare(hint)):
                given[field.name] = self._construct(_bare(hint), {}, (*where, key))
            elif _annotation(hint, FileName):
                given[field.name] = self._path(str(field.default))
        try:
            return kind(**given)
        except ValueError as fault:
            raise self._check_fault(kind, where, str(fault)) from None

    def _value(self, hint: Any, value: Any, where: KeyPath) -> Any:
        bare = _bare(hint)
        origin = get_origin(bare)
        if origin is tuple:
            return self._array(hint, get_args(bare)[0], value, where)
        if origin is dict:
            return self._texts(hint, value, where)
        if origin in (Union, types.UnionType):
            return self._value(next(kind for kind in get_args(bare) if kind is not types.NoneType), value, where)
        if origin is Literal or (isinstance(bare, type) and issubclass(bare, Enum)):
            return self._choice(bare, value, where)
        if is_dataclass(bare):
            return self._dataclass(_bare(hint), self._checked(dict, hint, value, where), where)
        if bare in (int, float):
            return self._number(hint, value, where)
        checked = self._checked(bare, hint, value, where)
        return self._path(checked) if _annotation(hint, FileName) else checked

    def _checked(self, kind: type, hint: Any, value: Any, where: KeyPath) -> Any:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._type_fault(hint, value, where)
        return value

    def _array(self, hint: Any, item: Any, value: Any, where: KeyPath) -> tuple[Any, ...]:
        found = self._checked(list, hint, value, where)
        return tuple(self._value(item, one, (*where, number)) for number, one in enumerate(found))

    def _texts(self, hint: Any, value: Any, where: KeyPath) -> dict[str, str]:
        """Return a table with any keys, whose values are texts."""
        for name, one in self._checked(dict, hint, value, where).items():
            if isinstance(one, dict):
                raise self._fault((*where, name), f"{_section(where)} {name} is a table: put the dotted name in quotes")
            self._checked(str, str, one, (*where, name))
        return dict(value)

    def _choice(self, kind: Any, value: Any, where: KeyPath) -> Any:
        choices = _choices(kind)
        if not isinstance(value, str) or value not in choices:
            raise self._type_fault(kind, value, where)
        return choices[value]

    def _number(self, hint: Any, value: Any, where: KeyPath) -> int | float:
        allowed = int if _bare(hint) is int else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed):
            raise self._type_fault(hint, value, where)
        span = _annotation(hint, Range) or Range(0)
        if not math.isfinite(value) or not span.least <= value <= span.greatest:
            raise self._type_fault(hint, value, where)
        return value if _bare(hint) is int else float(value)

    def _path(self, name: str) -> str:
        return str(self._folder / name) if name else name

    def _type_fault(self, hint: Any, value: Any, where: KeyPath) -> UsageFault:
        section, key = _section_and_key(where)
        return self._fault(where, f"{section} {key} is {_described(value)}, expected {_expected(hint)}")

    def _check_fault(self, kind: type, where: KeyPath, text: str) -> UsageFault:
        """Return the fault of a table that refused itself, at the key that its text begins with, if it is one."""
        named = _LEADING_KEY.match(text)
        path = tuple(named[0].split(".")) if named else ()
        if named is None or path[0] not in keys_of(kind):
            return self._fault(where, f"{_section(where)}: {text}")
        section, key = _section_and_key((*where, *path))
        return self._fault((*where, *path), f"{section} {key}{text[named.end() :]}")

    def _fault(self, where: KeyPath, what: str) -> UsageFault:
        line = self._lines.maybe_line(where)
        return UsageFault(f"{self._source}, line {line}: {what}" if line else f"{self._source}: {what}")


def keys_of(kind: type) -> dict[str, Any]:
    """Return the keys that a table of this dataclass may have, with their types."""
    hints = typing.get_type_hints(kind, include_extras=True)
    known: dict[str, Any] = {}
    for field in fields(kind):
        if not field.init:
            continue
        hint = hints[field.name]
        known |= keys_of(_bare(hint)) if _annotation(hint, Inline) else {key_of(field, hint): hint}
    return known


def key_of(field: Field[Any], hint: Any) -> str:
    """Return the key of a field."""
    key = _annotation(hint, Key)
    return key.name if key else field.name


def _annotation(hint: Any, kind: type[Read]) -> Read | None:
    """Return the annotation of this kind on a type hint, if there is one."""
    annotations = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((annotation for annotation in annotations if isinstance(annotation, kind)), None)


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _choices(kind: Any) -> dict[str, Any]:
    """Return the allowed texts: an Enum's values, or its names in lower case where the values are no texts."""
    if get_origin(kind) is Literal:
        return {choice: choice for choice in get_args(kind)}
    return {one.value if isinstance(one.value, str) else one.name.lower(): one for one in kind}


def _expected(hint: Any) -> str:
    """Describe the expected value."""
    bare = _bare(hint)
    origin = get_origin(bare)
    if origin is tuple:
        item = get_args(bare)[0]
        return "an array of tables" if is_dataclass(item) else f"an array, each {_expected(item)}"
    if origin in (Union, types.UnionType):
        return _expected(next(kind for kind in get_args(bare) if kind is not types.NoneType))
    if origin is Literal or (isinstance(bare, type) and issubclass(bare, Enum)):
        return " or ".join(f'"{choice}"' for choice in _choices(bare))
    if bare in (int, float):
        span = _annotation(hint, Range) or Range(0)
        most = f" and at most {span.greatest}" if span.greatest < _NUMBER_MAX else ""
        return f"{_TYPE_NAMES[bare]} of at least {span.least}{most}"
    return "a table" if is_dataclass(bare) or origin is dict else _TYPE_NAMES[bare]


def _described(value: object) -> str:
    """Describe the value that was found, with its type."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return _TYPE_NAMES[type(value)]
    text = f'"{value}"' if isinstance(value, str) else str(value)
    kind = _TYPE_NAMES.get(type(value), "a date or time")
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({kind})"


def _nearest(name: str, known: dict[str, Any]) -> str:
    near = get_close_matches(name[:64], known, 1)
    return f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}"


def _section_and_key(where: KeyPath) -> tuple[str, str]:
    """Return the table and the key of a value: `[mqtt]` and `receive_max`; `users[2]` for an item of an array."""
    at = max((number for number, name in enumerate(where) if isinstance(name, str)), default=0)
    items = "".join(f"[{number}]" for number in where[at + 1 :])
    return _section(where[:at]), f"{where[at]}{items}"


def _section(where: KeyPath) -> str:
    """Return the name of a table in faults: `[mqtt]`, or `[[mqtt.listen]] number 2` in an array."""
    if not where:
        return "the file"
    name = ".".join(part for part in where if isinstance(part, str))
    if isinstance(where[-1], int):
        return f"[[{name}]] number {where[-1] + 1}"
    return f"[{name}]"
