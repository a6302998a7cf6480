"""Where doors tell what happened: whoever runs them decides what becomes of it."""

from typing import Protocol

Fact = str | int | float | bool | None


class Log(Protocol):
    """Takes lines, each an event and its facts."""

    def info(self, event: str, **facts: Fact) -> None:
        """Something worth a line."""

    def seldom(self, event: str, **facts: Fact) -> None:
        """The same for what clients can cause at will: some of them are not shown."""

    def warning(self, event: str, **facts: Fact) -> None:
        """Something that somebody should look at."""
