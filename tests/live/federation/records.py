"""Records in the log of a site, read through the interface of the log, live or afterwards."""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from live.federation.deployment import wait_until
from milepost.eventlog.log import Log, LogLost, Record, TopicEnd
from milepost.model.queries import OnTopic
from milepost.model.reasons import Malformed
from milepost.model.site_records import CROSS_HUB, SUBSCRIPTION_INFO, VEHICLE_INFO, SiteRecord
from milepost.wire.records import from_record

Kind = TypeVar("Kind", bound=SiteRecord)


class Found(NamedTuple):
    """A decoded record, or the removal of a key."""

    topic: str
    key: str
    value: SiteRecord | None


class LogWatcher:
    """Follows topics from now on, collects their records, and calls back when an awaited one arrives."""

    def __init__(self, log: Log, *topics: str) -> None:
        self.found: list[Found] = []
        self._alarms: list[tuple[Callable[[Found], bool], Callable[[], None]]] = []
        self._lock = threading.Lock()
        self._log = log
        watched = topics or (CROSS_HUB, SUBSCRIPTION_INFO, VEHICLE_INFO)
        self._next = {topic: log.ends(topic)[1] for topic in watched}
        self._following = log.follow(dict.fromkeys(watched, TopicEnd.END), self._on_records, _on_gap)

    def call_when(self, matches: Callable[[Found], bool], call: Callable[[], None]) -> None:
        """Call once, in the log's own thread, when a matching record arrives."""
        with self._lock:
            self._alarms.append((matches, call))

    def wait(self, matches: Callable[[Found], bool], what: str) -> Found:
        """Wait for the first matching record."""
        wait_until(lambda: any(map(matches, list(self.found))), what)
        return next(filter(matches, self.found))

    def of(self, kind: type[Kind]) -> list[Kind]:
        """Return all values of a kind that were appended up to now."""
        for topic in self._next:
            end = self._log.ends(topic)[1]
            wait_until(lambda: self._next[topic] >= end, f"{topic} is read")  # noqa: B023
        return [one.value for one in self.found if isinstance(one.value, kind)]

    def close(self) -> None:
        self._following.close()

    def _on_records(self, records: Sequence[Record]) -> None:
        for record in records:
            found = _read(record)
            if found is None:
                continue
            self.found.append(found)
            with self._lock:
                due = [one for one in self._alarms if one[0](found)]
                self._alarms = [one for one in self._alarms if one not in due]
            for _, call in due:
                call()
        self._next[records[0].topic] = records[-1].offset + 1


def filter_of(subscription: object) -> str:
    """Return the topic filter of a subscription."""
    query = getattr(subscription, "query", None)
    return query.filter if isinstance(query, OnTopic) else ""


def _read(record: Record) -> Found | None:
    try:
        return Found(record.topic, record.key, None if record.value is None else from_record(record.value))
    except Malformed:
        return None


def _on_gap(fault: LogLost) -> None:
    raise AssertionError(f"nothing may be lost here: {fault}")
