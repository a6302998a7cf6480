"""The log interface of the listeners; the runtime provides the implementation."""

from typing import Protocol

Fact = str | int | float | bool | None


class Log(Protocol):
    """A structured log: each line is an event and its facts."""

    def info(self, event: str, **facts: Fact) -> None:
        """Log an event."""

    def seldom(self, event: str, **facts: Fact) -> None:
        """Log an event that clients can cause at will: the log may be sampled."""

    def warning(self, event: str, **facts: Fact) -> None:
        """Log an event that needs an operator's attention."""
