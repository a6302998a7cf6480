"""Lookups with one shared consumer: the ends of a topic, the offset at a time, a range of records."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, sleep
from typing import Final, TypeVar, assert_never

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from milepost.eventlog.kafka.errors import ClusterFault, closed, error_in, fault_of
from milepost.eventlog.kafka.reader import records_of
from milepost.eventlog.kafka.topics import REQUEST_TIMEOUT_S, TopicAdmin
from milepost.eventlog.log import BATCH_RECORDS_MAX, LogUnavailable, Record, Since, Start, TopicEnd, maybe_gap

_LOOK_S: Final = 0.1
_RETRY_S: Final = 0.02
_AGAIN_S: Final = 1.0
_MILLISECOND_NS: Final = 1_000_000

# Transient: a new topic is not yet known to every broker, and a topic whose broker died has no leader for a moment.
_TRANSIENT: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._TRANSPORT,
)

T = TypeVar("T")


class LookupConsumer:
    """Lookups, one at a time; each waits at most `REQUEST_TIMEOUT_S`."""

    def __init__(self, consumer: Consumer, topics: TopicAdmin, address: str, cluster_fault: ClusterFault) -> None:
        self._consumer = consumer
        self._topics = topics
        self._address = address
        self._cluster_fault = cluster_fault
        self._lock = threading.Lock()
        self._is_closed = False

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the offsets of the oldest record and of the next append of an existing topic."""
        return self._call(topic, lambda left_s: self._consumer.get_watermark_offsets(self._partition(topic), timeout=left_s))

    def position_of(self, topic: str, start: Start) -> int:
        """Return the offset that a start position denotes at the moment."""
        match start:
            case int():
                assert start >= 0, f"{start} is no offset"
                return start
            case TopicEnd.BEGINNING:
                return self.ends(topic)[0]
            case TopicEnd.END:
                return self.ends(topic)[1]
            case Since(time):
                return self._first_at(topic, -(-time // _MILLISECOND_NS))
        assert_never(start)

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Return at most `limit` records from offset *first* on."""
        low, high = self.ends(topic)
        if (gap := maybe_gap(topic, first, low, high)) is not None:
            raise gap
        if first == high or limit <= 0:
            return []
        with self._lock:
            self._check_open()
            self._consumer.assign([self._partition(topic, first)])
            try:
                return records_of(topic, self._messages(high, limit))
            finally:
                self._consumer.unassign()

    def close(self) -> None:
        """Close the consumer."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._consumer.close()

    def _messages(self, high: int, limit: int) -> Iterator[Message]:
        give_up_at = monotonic() + REQUEST_TIMEOUT_S
        while monotonic() < give_up_at:
            first = self._consumer.poll(_LOOK_S)
            if first is None:
                continue
            for message in [first, *self._consumer.consume(min(limit, BATCH_RECORDS_MAX) - 1, 0)]:
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise fault_of(error, self._address)
                if error is not None:
                    return
                yield message
                limit -= 1
                offset = message.offset()
                if limit == 0 or (offset is not None and offset + 1 >= high):
                    return
        raise LogUnavailable(f"Kafka at {self._address} has not answered for {REQUEST_TIMEOUT_S:g} s: check that the brokers run")

    def _first_at(self, topic: str, time_ms: int) -> int:
        partition = self._partition(topic, time_ms)

        def look_up(left_s: float) -> int:
            (found,) = self._consumer.offsets_for_times([partition], timeout=left_s)
            if found.error is not None:
                raise KafkaException(found.error)
            return found.offset

        offset = self._call(topic, look_up)
        return offset if offset >= 0 else self.ends(topic)[1]

    def _call(self, topic: str, request: Callable[[float], T]) -> T:
        """Return the answer to *request*, with retries; its argument is the remaining time in seconds."""
        give_up_at = monotonic() + REQUEST_TIMEOUT_S
        while True:
            with self._lock:
                self._check_open()
                try:
                    result = request(max(_LOOK_S, give_up_at - monotonic()))
                    self._cluster_fault.clear()
                    return result
                except KafkaException as fault:
                    error = error_in(fault)
                    self._refresh_metadata(topic)
            if error.code() not in _TRANSIENT or monotonic() > give_up_at:
                self._cluster_fault.note_error(error)
                raise fault_of(error, self._address)
            sleep(_RETRY_S)

    def _refresh_metadata(self, topic: str) -> None:
        """Refresh the library's metadata: a topic looked up too early would stay without a partition for long."""
        with suppress(KafkaException):
            self._consumer.list_topics(self._topics.on_wire(topic), timeout=_AGAIN_S)

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed()

    def _partition(self, topic: str, offset: int = -1) -> TopicPartition:
        return TopicPartition(self._topics.on_wire(topic), 0, offset)
