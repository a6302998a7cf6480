"""A process that writes tick after tick and prints the outcome of each: `python -m live.storage.writer FOLDER LEVEL TICKS`.

Tick n stores three messages and queues them, and deletes those of tick n - 10; `last_tick` checks the state that results.
"""

import os
import sys
from itertools import count
from pathlib import Path

from milepost.broker.effects import Queued, StateChanges, StorageUnavailable, StoredState
from milepost.model.durability import Durability
from milepost.storage import SqliteStorage

SESSION = 1
MESSAGES_PER_TICK = 3
RETENTION_TICKS = 10
BODY_BYTES = 6_000  # the write-ahead log is full, and checkpointed, after about 900 ticks


def tick_changes(number: int) -> StateChanges:
    changes = StateChanges(sessions={SESSION: b"%d" % number})
    for one in _of(number):
        changes.messages[one] = (b"%d " % one).ljust(BODY_BYTES, b".")
        changes.queued[SESSION, one] = Queued(one, 1, False, b"")
    for one in _of(number - RETENTION_TICKS):
        changes.messages[one] = None
        changes.queued[SESSION, one] = None
    return changes


def last_tick(stored: StoredState) -> int:
    """Return the last tick written, after checking that every tick up to it is stored completely and the next one not at all."""
    last = int(stored.sessions.get(SESSION, b"0"))
    expected = [one for number in range(max(1, last - RETENTION_TICKS + 1), last + 1) for one in _of(number)]
    assert list(stored.queued) == [(SESSION, one) for one in expected]
    assert sorted(stored.messages) == expected
    assert all(body.startswith(b"%d " % one) and len(body) == BODY_BYTES for one, body in stored.messages.items())
    return last


def _of(number: int) -> range:
    return range(number * MESSAGES_PER_TICK, (number + 1) * MESSAGES_PER_TICK) if number > 0 else range(0)


def main() -> None:
    folder, level, ticks = Path(sys.argv[1]), Durability(sys.argv[2]), int(sys.argv[3])
    seconds = count()  # each reading of the clock advances it by a second
    storage = SqliteStorage(folder, level, clock_s=lambda: float(next(seconds)))
    number = last_tick(storage.load())
    print_line("ready")
    for _ in range(ticks):
        try:
            storage.write(tick_changes(number + 1))
        except StorageUnavailable as fault:
            print_line(f"failed {fault}")
        else:
            number += 1
            print_line(f"stored {number}")
    print_line("done")
    sys.stdin.read()
    storage.close()


def print_line(text: str) -> None:
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


if __name__ == "__main__":
    main()
