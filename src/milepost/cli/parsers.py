"""The argument parser of all commands: help keeps its line breaks, options are not abbreviated, errors are one line."""

import argparse
import re
from typing import Any, Final, NoReturn, TypeAlias

from milepost.config.errors import STATUS_USAGE
from milepost.runtime.terminal import complain

_NEGATIVE: Final = re.compile(r"-\.?\d")
"""The beginning of a negative number or coordinate; no option matches it."""


class Arguments(argparse.ArgumentParser):
    """The parser of a command or subcommand."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)
        # The pattern of argparse matches single numbers only, so `-33.87,151.2` was an option. It has no public setting.
        self._negative_number_matcher = _NEGATIVE

    def error(self, message: str) -> NoReturn:
        """Print the error and the help command, and exit."""
        complain(f"{self.prog}: {message}; `{self.prog} --help` shows what there is")
        self.exit(STATUS_USAGE)


Commands: TypeAlias = "argparse._SubParsersAction[Arguments]"
"""The object that subcommands are added to; argparse has no public name for it."""
