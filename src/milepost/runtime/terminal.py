"""Terminal output of commands: results on standard output, faults on standard error."""

import sys


def print_line(text: str) -> None:
    """Print a line of the result."""
    sys.stdout.write(text + "\n")


def print_error(text: str) -> None:
    """Print a line to standard error."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
