"""Compacted topics as tables: the last value of each key."""

import threading
from collections.abc import Sequence

from milepost.backbone.log import BATCH_RECORDS_MAX, Entry, Log, LogLost
from milepost.handlers.appending import Appender


def read_table(log: Log, topic: str) -> dict[str, bytes]:
    """What a compacted topic holds now; nothing if it is not there."""
    found: dict[str, bytes] = {}
    position, end = log.ends(topic)
    while position < end:
        try:
            records = log.read(topic, position, BATCH_RECORDS_MAX)
        except LogLost:  # cleaned in between
            position = max(log.ends(topic)[0], position + 1)
            continue
        if not records:
            break
        for record in records:
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = record.value
        position = records[-1].offset + 1
    return found


def write(log: Log, entries: Sequence[Entry]) -> None:
    """Append, and come back when it is safe."""
    appender = Appender(log, threading.Event())
    appender.begin(entries)
    appender.finish()
