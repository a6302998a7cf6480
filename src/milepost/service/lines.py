"""Where the tables and keys of a TOML text stand, so that a fault names its line.

Python's TOML reader keeps no lines. This finds tables and keys that stand at the beginning of a line, as people write them; what
stands inside an inline table has the line of the key that holds it.
"""

import re
from typing import Final

Where = tuple[str | int, ...]
"""Names of tables and keys from the outside in; a number where there are several tables of one name."""

_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]")
_KEY: Final = re.compile(r"\s*([\w\-.\"' ]+?)\s*=")
_LONG_TEXTS: Final = re.compile(r'"""|' + r"'''")


class Lines:
    """The lines of one TOML text, by what begins on them."""

    def __init__(self, text: str) -> None:
        self._line_of: dict[Where, int] = {}
        self._count: dict[Where, int] = {}
        above: Where = ()
        is_in_text = False
        for number, line in enumerate(text.splitlines(), start=1):
            if not is_in_text:
                above = self._look_at(line, number, above)
            if len(_LONG_TEXTS.findall(line)) % 2:
                is_in_text = not is_in_text

    def maybe_line(self, where: Where) -> int | None:
        """The line on which it, or the nearest around it, begins; nothing for the text as a whole."""
        while where:
            if where in self._line_of:
                return self._line_of[where]
            where = where[:-1]
        return None

    def _look_at(self, line: str, number: int, above: Where) -> Where:
        """Note what begins on this line; gives the table that the next line is in."""
        if header := _HEADER.match(line):
            above = self._table(_names(header[2]), is_one_of_many=header[1] == "[[")
            self._line_of.setdefault(above, number)
        elif key := _KEY.match(line):
            self._line_of.setdefault(above + _names(key[1]), number)
        return above

    def _table(self, names: Where, *, is_one_of_many: bool) -> Where:
        """Where a table is: inside the last of those that came many times."""
        where: Where = ()
        for name in names[:-1]:
            where += (name,)
            if where in self._count:
                where += (self._count[where] - 1,)
        where += names[-1:]
        if not is_one_of_many:
            return where
        self._count[where] = self._count.get(where, 0) + 1
        return (*where, self._count[where] - 1)


def _names(dotted: str) -> Where:
    return tuple(name.strip().strip("\"'") for name in dotted.split("."))
