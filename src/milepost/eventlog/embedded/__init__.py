"""The embedded log: for one machine, on SQLite, with nothing to install or start."""

from milepost.eventlog.embedded.log import EmbeddedLog

__all__ = ["EmbeddedLog"]
