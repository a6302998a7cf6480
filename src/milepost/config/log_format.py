"""Settings of log lines: the minimum level and the format."""

from enum import Enum


class Level(Enum):
    """Log level, in ascending order."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Format(Enum):
    """Format of log lines."""

    TEXT = "text"
    JSON = "json"
