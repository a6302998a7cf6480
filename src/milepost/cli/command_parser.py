"""The argument parser of all commands: help keeps its line breaks, options are not abbreviated, errors are one line."""

import argparse
import re
from difflib import get_close_matches
from typing import Any, Final, NoReturn, TypeAlias

from milepost.config.errors import STATUS_USAGE
from milepost.runtime.terminal import print_error

_NEGATIVE: Final = re.compile(r"-\.?\d")
"""The beginning of a negative number or coordinate; no option matches it."""


class _CommandHelp(argparse.RawDescriptionHelpFormatter):
    """Help whose first column has room for the longest subcommand: argparse does not count the indent of subcommands."""

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        for inner in self._iter_indented_subactions(action):
            width = len(self._format_action_invocation(inner)) + self._current_indent
            self._action_max_length = max(self._action_max_length, width)


class CommandParser(argparse.ArgumentParser):
    """The parser of a command or subcommand."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_CommandHelp, allow_abbrev=False, **options)
        # The pattern of argparse matches single numbers only, so `-33.87,151.2` was an option. It has no public setting.
        self._negative_number_matcher = _NEGATIVE

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is not one of the choices, and suggest the nearest one; argparse has no public hook for it."""
        if action.choices is None or value in action.choices:
            return
        choices = [str(one) for one in action.choices]
        near = get_close_matches(str(value), choices, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(choices)}"
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}; {hint}")

    def error(self, message: str) -> NoReturn:
        """Print the error and the help command, and exit."""
        print_error(f"{self.prog}: {message}{' See' if message.endswith('?') else '; see'} `{self.prog} --help`")
        self.exit(STATUS_USAGE)


Commands: TypeAlias = "argparse._SubParsersAction[CommandParser]"
"""The object that subcommands are added to; argparse has no public name for it."""
