"""A process that shares a folder with others: `python -m live.eventlog.embedded_process FOLDER LEVEL append|follow|join NAME`.

append: on a line of input, appends numbers under its name to one topic, in lists of changing length; prints `confirmed N` for
each list whose last number is N. follow: prints `received N` for each record. join: as a member of a group; prints its topics,
and `received TOPIC OFFSET` for each record, and commits.
"""

import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from time import sleep

from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.log import Entry, LogUnavailable, Member, Record, TopicEnd
from milepost.model.durability import Durability

TOPIC = "numbers"
TOPICS = ("one", "two", "three", "four")
BODY_BYTES = 1_500  # so that the write-ahead log is checkpointed now and then


def body(number: int) -> bytes:
    return (b"%d " % number).ljust(BODY_BYTES, b".")


def number_in(record: Record) -> int:
    assert record.value is not None
    assert len(record.value) == BODY_BYTES
    return int(record.value.split()[0])


def append(log: EmbeddedLog, name: str, most: int, *, one_by_one: bool) -> None:
    last = log.read(TOPIC, max(0, log.ends(TOPIC)[1] - 1), 1)
    number = number_in(last[0]) + 1 if last and last[0].key == name else 0
    write_line("ready")
    sys.stdin.readline()
    while number < most:
        count = 1 + number % 30
        entries = [Entry(TOPIC, name, body(one)) for one in range(number, number + count)]
        end = number + count - 1
        try:
            if one_by_one:
                wait_until_there(log, number)
            log.append(entries, lambda fault, end=end: write_line(f"failed {fault}" if fault else f"confirmed {end}"))  # type: ignore[misc]
            number += count
        except LogUnavailable:
            sleep(0.001)
    log.close()
    write_line("done")


def wait_until_there(log: EmbeddedLog, end: int) -> None:
    while log.ends(TOPIC)[1] < end:
        sleep(0.001)


def follow(log: EmbeddedLog) -> None:
    def on_records(records: Sequence[Record]) -> None:
        for record in records:
            write_line(f"received {number_in(record)}")

    log.follow({TOPIC: TopicEnd.END}, on_records, print)
    write_line("ready")
    threading.Event().wait()


def join(log: EmbeddedLog, group: str) -> None:
    members: list[Member] = []

    def on_records(records: Sequence[Record]) -> None:
        for record in records:
            write_line(f"received {record.topic} {record.offset}")
        members[0].commit(records[0].topic, records[-1].offset + 1)

    members.append(
        log.join(group, TOPICS, on_records, print, changed=lambda topics: write_line(f"has {' '.join(sorted(topics))}"))
    )
    threading.Event().wait()


def write_line(text: str) -> None:
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


def main() -> None:
    folder, level, what, name = Path(sys.argv[1]), Durability(sys.argv[2]), sys.argv[3], sys.argv[4]
    log = EmbeddedLog(folder, level)
    if what == "append":
        append(log, name, int(sys.argv[5]), one_by_one=sys.argv[6:] == ["slowly"])
    elif what == "follow":
        follow(log)
    else:
        join(log, name)


if __name__ == "__main__":
    main()
