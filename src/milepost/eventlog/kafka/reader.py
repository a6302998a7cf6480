"""Reader: one thread that polls records from Kafka and hands them to `on_records`, one topic at a time, each from its position.

Invariants:
- the library never resets an offset by itself (`auto.offset.reset` is `error`): a topic that cannot be read from its position
  waits in `_unpositioned` until the gap is reported and a new position is found;
- records of topics that are not, or no longer, assigned to this reader are not handed over.
"""

import threading
from collections.abc import Iterable, Sequence
from itertools import groupby
from time import monotonic
from typing import Final

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, Message, TopicPartition

from milepost.eventlog.kafka.errors import ClusterFault, error_in
from milepost.eventlog.kafka.topics import TopicAdmin
from milepost.eventlog.log import BATCH_RECORDS_MAX, OnGap, OnRecords, Record, call_safely, maybe_gap
from milepost.model.instants import Instant

_LOOK_S: Final = 0.1
_PLACE_S: Final = 5.0
_RETRY_S: Final = 0.2
_MILLISECOND_NS: Final = 1_000_000


class KafkaReader:
    """A reader that runs from `start` to `close`; `positions` has the next offset of each topic."""

    def __init__(
        self, consumer: Consumer, topics: TopicAdmin, on_records: OnRecords, on_gap: OnGap, cluster_fault: ClusterFault
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._on_records = on_records
        self._on_gap = on_gap
        self._cluster_fault = cluster_fault
        self._positions: dict[str, int | None] = {}
        """Next offset by topic; None: the committed offset of the group."""
        self._unpositioned: dict[str, float] = {}
        """Topics without a valid position, with the time of the next attempt to find one."""
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="log-reader", daemon=True)

    def start(self, positions: dict[str, int]) -> None:
        """Start reading, each topic at its offset."""
        self._positions = dict(positions)
        self._consumer.assign([self._partition(topic, offset) for topic, offset in positions.items()])
        self._thread.start()

    @property
    def is_open(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Request the end; `close` waits for it."""
        self._is_closing = True

    def close(self) -> None:
        """Stop reading; waits for a running `on_records`, unless called from it."""
        self.stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                messages = self._next()
                for wire_name, batch in groupby(messages, Message.topic):
                    self._hand_over(self._topics.off_wire(wire_name or ""), list(batch))
                self._between()
        finally:
            self._consumer.close()

    def _next(self) -> list[Message]:
        """Return the available messages, waiting briefly for the first; a single `consume` would wait for a full batch."""
        messages: list[Message] = []
        try:
            first = self._consumer.poll(_LOOK_S)
            if first is not None:
                messages.append(first)
                messages += self._consumer.consume(BATCH_RECORDS_MAX - 1, 0)
        except KafkaException as fault:  # the next poll shows whether it has passed
            self._cluster_fault.note_error(error_in(fault))
        return messages

    def _hand_over(self, topic: str, messages: Sequence[Message]) -> None:
        records = records_of(topic, messages)
        if len(records) < len(messages):
            self._note(topic, [error for message in messages if (error := message.error()) is not None])
        if not records or topic not in self._positions or self._is_closing:
            return
        self._positions[topic] = records[-1].offset + 1
        self._cluster_fault.clear()
        call_safely(self._on_records, records)

    def _note(self, topic: str, errors: Sequence[KafkaError]) -> None:
        for error in errors:
            if error.code() == KafkaError._AUTO_OFFSET_RESET and topic in self._positions:
                self._unpositioned[topic] = monotonic()
            else:
                self._cluster_fault.note_error(error)

    def _between(self) -> None:
        """Between two batches: find positions for the topics without one."""
        for topic, try_at in list(self._unpositioned.items()):
            if monotonic() >= try_at:
                self._try_to_reposition(topic)

    def _try_to_reposition(self, topic: str) -> None:
        try:
            self._reposition(topic)
            del self._unpositioned[topic]
        except KafkaException as fault:
            self._cluster_fault.note_error(error_in(fault))
            self._unpositioned[topic] = monotonic() + _RETRY_S

    def _reposition(self, topic: str) -> None:
        """Find the offset from which a topic can be read on, and report the gap."""
        low, high = self._consumer.get_watermark_offsets(self._partition(topic), timeout=_PLACE_S)
        position = self._positions[topic]
        if position is None:
            (stored,) = self._consumer.committed([self._partition(topic)], timeout=_PLACE_S)
            position = low if stored.offset == OFFSET_INVALID else stored.offset
        offset = max(low, min(position, high))
        if (gap := maybe_gap(topic, position, low, high)) is not None:
            call_safely(self._on_gap, gap)
        # `seek` is refused for a topic that has just failed; a new assignment starts at the given offset.
        self._consumer.incremental_unassign([self._partition(topic)])
        self._consumer.incremental_assign([self._partition(topic, offset)])
        self._positions[topic] = offset

    def _partition(self, topic: str, offset: int = OFFSET_INVALID) -> TopicPartition:
        return TopicPartition(self._topics.on_wire(topic), 0, offset)


def records_of(topic: str, messages: Iterable[Message]) -> list[Record]:
    """Convert Kafka messages to records, without errors; times are the broker's, in milliseconds."""
    return [
        Record(
            topic,
            message.offset(),  # type: ignore[arg-type]  # only an unsent message has none
            (message.key() or b"").decode(errors="replace"),
            message.value(),
            Instant(message.timestamp()[1] * _MILLISECOND_NS),
        )
        for message in messages
        if message.error() is None
    ]
