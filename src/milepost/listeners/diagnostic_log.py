"""The diagnostic log of the listeners, for operators; the runtime provides the implementation."""

from typing import Protocol

LogValue = str | int | float | bool | None


class DiagnosticLog(Protocol):
    """A structured log: each line is an event and its fields."""

    def info(self, event: str, **fields: LogValue) -> None:
        """Log an event."""

    def info_limited(self, event: str, **fields: LogValue) -> None:
        """Log an event that clients can cause at will: lines beyond a rate are suppressed and counted."""

    def warning(self, event: str, **fields: LogValue) -> None:
        """Log an event that needs an operator's attention."""
