"""Operator actions on a handler: announce its subscriptions (D6), forget it, list and retry its dead letters.

A handler stays announced while none of its processes runs: requests wait for it in the log. Only `forget` ends that.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from milepost.eventlog.log import Entry, Log, read_to_end
from milepost.handlers.handler import Handler
from milepost.handlers.ledger import DurableAppender, PartitionLedger
from milepost.handlers.records import DeadLetter, dead_letter_from_bytes, request_from_record, retry_record
from milepost.handlers.topic_names import COMPACTED, DEAD_LETTERS, PARTITIONS_MAX, dead_letter_topic, ledger_topic
from milepost.model.endpoints import endpoint_id, name_of_source
from milepost.model.messages import Message
from milepost.model.queries import OnTopic
from milepost.model.site_records import (
    SUBSCRIPTION_INFO,
    EdgeRef,
    Interest,
    handler_topic,
    interest_key,
    service_sender,
    source_of_sender,
)
from milepost.model.subscriptions import Subscription
from milepost.wire.records import to_record

KEYS_PER_COMMIT: Final = 500


class ForgetResult(NamedTuple):
    """The number of filters, values and dead letters that `forget` removed."""

    filters: int
    values: int
    dead_letters: int


class ListedDeadLetter(NamedTuple):
    """A dead letter and its location."""

    handler: str
    key: str
    letter: DeadLetter
    message: Message

    @property
    def id(self) -> str:
        """The id that operators use."""
        return f"{self.handler}:{self.key}"


def announce(log: Log, site: str, handler: Handler) -> None:
    """Announce the handler's subscriptions and withdraw obsolete ones; return when that is durable."""
    log.make(SUBSCRIPTION_INFO, COMPACTED)
    log.make(handler_topic(handler.name))
    edge = EdgeRef(site, service_sender(handler.name))
    interests = {_key(edge, route.filter): _interest_record(edge, route.filter) for route in handler.routes}
    before = _announced(log, edge)
    entries = [Entry(SUBSCRIPTION_INFO, key, None) for key in before if key not in interests]
    entries += [Entry(SUBSCRIPTION_INFO, key, value) for key, value in interests.items() if before.get(key) != value]
    write(log, entries)


def forget(log: Log, site: str, handler: str) -> ForgetResult:
    """Withdraw the handler's subscriptions, drop its store and dead letters, and skip its waiting requests."""
    edge = EdgeRef(site, service_sender(handler))
    interests = _announced(log, edge)
    write(log, [Entry(SUBSCRIPTION_INFO, key, None) for key in interests])
    topics = set(log.topics())
    values = sum(_empty(log, handler, number) for number in range(PARTITIONS_MAX) if ledger_topic(handler, number) in topics)
    dead_letters = read_table(log, dead_letter_topic(handler))
    write(log, [Entry(dead_letter_topic(handler), key, None) for key in dead_letters])
    return ForgetResult(len(interests), values, len(dead_letters))


def all_dead_letters(log: Log) -> Iterator[ListedDeadLetter]:
    """Yield the dead letters of all handlers of a site; those of one handler oldest first."""
    for topic in log.topics():
        if topic.startswith(DEAD_LETTERS):
            for key, value in read_table(log, topic).items():
                with suppress(ValueError):  # not written by a handler
                    letter = dead_letter_from_bytes(value)
                    yield ListedDeadLetter(
                        topic.removeprefix(DEAD_LETTERS), key, letter, request_from_record(letter.record).forwarded.message
                    )


def retry_dead_letter(log: Log, listed: ListedDeadLetter) -> None:
    """Append a request to its handler's topic again, behind all waiting ones; return when that is durable."""
    retried = Entry(handler_topic(listed.handler), listed.message.source, retry_record(listed.letter))
    write(log, [retried])
    write(log, [Entry(dead_letter_topic(listed.handler), listed.key, None)])


def read_table(log: Log, topic: str) -> dict[str, bytes]:
    """Return the last value of each key of a compacted topic."""
    found: dict[str, bytes] = {}
    for records in read_to_end(log, topic):
        for record in records:
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = record.value
    return found


def write(log: Log, entries: Sequence[Entry]) -> None:
    """Append entries; return when they are durable."""
    appender = DurableAppender(log, threading.Event())
    appender.begin(entries)
    appender.finish()


def _empty(log: Log, handler: str, partition: int) -> int:
    """Empty the store of a partition and mark all waiting requests as served; return the number of removed values."""
    ledger = PartitionLedger(log, handler, partition, 0, threading.Event())
    try:
        ledger.claim()
        keys, topic = list(ledger.store.values), handler_topic(handler)
        end = log.ends(topic)[1]
        for at in range(0, len(keys), KEYS_PER_COMMIT):
            ledger.add(topic, end, dict.fromkeys(keys[at : at + KEYS_PER_COMMIT]), [])
            ledger.commit()
        ledger.positions = {topic: end}
        ledger.commit()  # removes the tombstones from the log
        ledger.flush()
    finally:
        ledger.close()
    return len(keys)


def _announced(log: Log, edge: EdgeRef) -> dict[str, bytes]:
    beginning = _key(edge, "")
    return {key: value for key, value in read_table(log, SUBSCRIPTION_INFO).items() if key.startswith(beginning)}


def _key(edge: EdgeRef, topic_filter: str) -> str:
    return interest_key(edge, edge.edge, topic_filter)


def _interest_record(edge: EdgeRef, topic_filter: str) -> bytes:
    return to_record(Interest(edge, Subscription(endpoint_id(name_of_source(source_of_sender(edge))), OnTopic(topic_filter))))
