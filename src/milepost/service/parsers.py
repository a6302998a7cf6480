"""Parsers of command lines, all alike: help that keeps its lines, and no abbreviated options."""

import argparse
from typing import Any, NoReturn, TypeAlias

from milepost.service.faults import STATUS_USAGE
from milepost.service.terminal import complain


class Arguments(argparse.ArgumentParser):
    """A parser as all commands have it: an epilog with examples, and faults in one line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with what was typed, and how to learn more; ends the process."""
        complain(f"{self.prog}: {message}; `{self.prog} --help` shows what there is")
        self.exit(STATUS_USAGE)


Commands: TypeAlias = "argparse._SubParsersAction[Arguments]"
"""What a parser adds subcommands to; argparse has no public name for it."""
