"""A member of a consumer group: a reader whose topics Kafka assigns, each topic to one member at a time."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from milepost.eventlog.kafka.errors import ClusterFault, error_in
from milepost.eventlog.kafka.reader import KafkaReader
from milepost.eventlog.kafka.settings import Committed
from milepost.eventlog.kafka.topics import TopicAdmin
from milepost.eventlog.log import OnGap, OnRecords, call_safely

_RETRY_S: Final = 0.5
_COMMIT_S: Final = 0.1
"""Minimum interval of commits: the library makes the committing thread wait for its reader."""

Changed = Callable[[frozenset[str]], None]


class KafkaGroupMember(KafkaReader):
    """A reader of the topics assigned to it, until `close`."""

    def __init__(
        self,
        new_consumer: Callable[[Committed], Consumer],
        topics: TopicAdmin,
        on_records: OnRecords,
        on_gap: OnGap,
        cluster_fault: ClusterFault,
        *,
        changed: Changed | None,
    ) -> None:
        super().__init__(new_consumer(self._committed), topics, on_records, on_gap, cluster_fault)
        self._changed = changed
        self._lock = threading.RLock()  # a blocking commit may run its callback in the same thread
        self._commits: dict[str, int] = {}
        """Offsets whose commit is not confirmed yet."""
        self._commit_at = 0.0
        """Earliest time of the next commit."""

    def join(self, names: Sequence[str]) -> None:
        """Start reading those of the topics that the group assigns to this member."""
        wire_names = [self._topics.on_wire(name) for name in names]
        self._consumer.subscribe(wire_names, on_assign=self._on_assigned, on_revoke=self._on_revoked, on_lost=self._on_lost)
        self._thread.start()

    def commit(self, topic: str, offset: int) -> None:
        """Commit `offset`: all records before it are processed; ignored if the topic went to another member."""
        with self._lock:
            if topic in self._positions:
                self._commits[topic] = offset

    def _between(self) -> None:
        """Commit new offsets, and retry commits that failed."""
        super()._between()
        with self._lock:
            if self._commits and monotonic() >= self._commit_at:
                self._commit_at = monotonic() + _COMMIT_S
                self._try_to_commit(self._commits, waits=False)

    def _try_to_commit(self, offsets: Mapping[str, int], *, waits: bool) -> None:
        partitions = [self._partition(topic, offset) for topic, offset in offsets.items()]
        if not partitions:
            return
        try:
            if waits:
                self._consumer.commit(offsets=partitions, asynchronous=False)
            else:
                self._consumer.commit(offsets=partitions)
        except KafkaException as fault:
            self._cluster_fault.note_error(error_in(fault))
            self._commit_at = monotonic() + _RETRY_S
        except RuntimeError:  # the consumer was closed meanwhile
            self._commits.clear()

    def _committed(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        """Process the outcome of a commit; in the reader's thread, like all callbacks of the library."""
        with self._lock:
            for partition in partitions:
                topic = self._topics.off_wire(partition.topic)
                if error is None and partition.error is None and self._commits.get(topic) == partition.offset:
                    del self._commits[topic]
            if self._commits and (error is not None or any(partition.error is not None for partition in partitions)):
                self._commit_at = monotonic() + _RETRY_S

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        names = [self._topics.off_wire(partition.topic) for partition in partitions]
        with self._lock:
            self._positions.update(dict.fromkeys(names))
        self._report_changed(names)
        consumer.incremental_assign(partitions)

    def _on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Handle revoked topics, also on leaving: commit their offsets before the next owner starts."""
        names = {self._topics.off_wire(partition.topic) for partition in partitions}
        with self._lock:
            self._try_to_commit({topic: offset for topic, offset in self._commits.items() if topic in names}, waits=True)
        self._on_lost(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Handle lost topics, which may have another owner already."""
        names = {self._topics.off_wire(partition.topic) for partition in partitions}
        with self._lock:
            for name in names:
                self._positions.pop(name, None)
                self._unpositioned.pop(name, None)
                self._commits.pop(name, None)
        self._report_changed(names)
        consumer.incremental_unassign(partitions)

    def _report_changed(self, names: Collection[str]) -> None:
        if self._changed is not None and names and not self._is_closing:
            call_safely(self._changed, frozenset(self._positions))
