"""The embedded log: the log of one machine, on SQLite, with nothing to install or start."""

from milepost.backbone.embedded.log import EmbeddedLog

__all__ = ["EmbeddedLog"]
