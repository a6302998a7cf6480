"""A topic that retention shortens while it is read to its end."""

from typing import Any, cast

from milepost.eventlog.log import Log, LogLost, Record, read_to_end
from milepost.model.instants import Instant


class Shrinking:
    """A log of five records whose first ones are removed when it is first read."""

    def __init__(self, gone: int) -> None:
        self._gone = gone
        self._first = 0

    def ends(self, topic: str) -> tuple[int, int]:
        return self._first, 5

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        self._first = self._gone
        if first < self._first:
            raise LogLost(topic)
        return [Record(topic, number, "", b"", Instant(0)) for number in range(first, 5)]


def offsets_in(log: Any) -> list[int]:
    return [record.offset for records in read_to_end(cast("Log", log), "t") for record in records]


def test_records_removed_meanwhile_are_skipped() -> None:
    assert offsets_in(Shrinking(3)) == [3, 4]


def test_reading_ends_when_the_topic_has_become_empty() -> None:
    assert offsets_in(Shrinking(5)) == []
