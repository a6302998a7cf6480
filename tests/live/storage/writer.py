"""A process that writes turn after turn and says what became of each: `python -m live.storage.writer FOLDER LEVEL TURNS`.

Turn n puts three messages and queues them, and removes what turn n - 10 put; `last_turn` knows what must then be there.
"""

import os
import sys
from itertools import count
from pathlib import Path

from milepost.broker.effects import Changes, Kept, Queued, StorageUnavailable
from milepost.model.durability import Durability
from milepost.storage import SqliteStorage

SESSION = 1
EACH = 3
STAYS = 10
BODY_BYTES = 6_000  # a log is full, and taken over, after about 900 turns


def turn(number: int) -> Changes:
    changes = Changes(sessions={SESSION: b"%d" % number})
    for one in _of(number):
        changes.messages[one] = (b"%d " % one).ljust(BODY_BYTES, b".")
        changes.queued[SESSION, one] = Queued(one, 1, False, b"")
    for one in _of(number - STAYS):
        changes.messages[one] = None
        changes.queued[SESSION, one] = None
    return changes


def last_turn(kept: Kept) -> int:
    """The turn that was written last, if all turns until then left what they had to and the next one left nothing."""
    last = int(kept.sessions.get(SESSION, b"0"))
    there = [one for number in range(max(1, last - STAYS + 1), last + 1) for one in _of(number)]
    assert list(kept.queued) == [(SESSION, one) for one in there]
    assert sorted(kept.messages) == there
    assert all(body.startswith(b"%d " % one) and len(body) == BODY_BYTES for one, body in kept.messages.items())
    return last


def _of(number: int) -> range:
    return range(number * EACH, (number + 1) * EACH) if number > 0 else range(0)


def main() -> None:
    folder, level, turns = Path(sys.argv[1]), Durability(sys.argv[2]), int(sys.argv[3])
    seconds = count()  # a second passes each time somebody looks at the clock
    storage = SqliteStorage(folder, level, clock_s=lambda: float(next(seconds)))
    number = last_turn(storage.load())
    say("ready")
    for _ in range(turns):
        try:
            storage.write(turn(number + 1))
        except StorageUnavailable as fault:
            say(f"failed {fault}")
        else:
            number += 1
            say(f"kept {number}")
    say("done")
    sys.stdin.read()
    storage.close()


def say(text: str) -> None:
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


if __name__ == "__main__":
    main()
