"""What a command says to whoever typed it: results on standard output, faults on standard error."""

import sys


def say(text: str) -> None:
    """A line of the result."""
    sys.stdout.write(text + "\n")


def complain(text: str) -> None:
    """A line about what went wrong."""
    sys.stdout.flush()
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
