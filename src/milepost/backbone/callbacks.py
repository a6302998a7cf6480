"""Callbacks of those who use the log: one that raises is told to `threading.excepthook`, and stops nobody else."""

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def tell(callback: Callable[[T], None], what: T) -> None:
    """Call it; what it raises is its owner's fault, and the log's own thread has others to serve."""
    try:
        callback(what)
    except Exception:  # noqa: BLE001  # what one caller can cause must not stop the others
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
