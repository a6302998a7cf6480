"""Writer: an idempotent producer, and `done` for each call once and in the order of calls.

Invariants:
- records go to the producer in the order of calls; it preserves that order without duplicates, despite retries;
- a call is finished when all its records have delivery reports; its `done` follows those of all calls before it;
- the queue is bounded, in records and in bytes;
- a call for a topic not known to exist is held, with all later calls, until the topic is created.

    append ─▶ held, while a topic is created (maker thread) ─▶ producer ─▶ delivery reports ─▶ done (poll thread)
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from random import uniform
from time import monotonic
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from milepost.eventlog.kafka.errors import ClusterFault, closed, error_in, fault_of
from milepost.eventlog.kafka.topics import TopicAdmin
from milepost.eventlog.log import WAITING_BYTES_MAX, WAITING_RECORDS_MAX, Done, Entry, LogRefused, LogUnavailable, call_safely

CLOSE_S: Final = 10.0
"""Time after `close` at which unconfirmed appends fail."""
SLOW_S: Final = 5.0
"""Age of an unconfirmed append from which the log reports a fault."""

_POLL_S: Final = 0.05
_RETRY_S: Final = 0.5
_PURGE_S: Final = 2.0
_TOPIC_DELETED: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class _PendingAppend:
    """One append; `left` is changed by the poll thread alone."""

    __slots__ = ("count", "done", "entries", "fault", "is_given_up", "left", "put_at", "size")

    def __init__(self, entries: Sequence[Entry], size: int, done: Done | None) -> None:
        self.entries: Sequence[Entry] = entries
        self.count = len(entries)
        self.size = size
        self.done = done
        self.put_at = monotonic()
        self.left = self.count
        """Records without a delivery report."""
        self.is_given_up = False
        """Set once, when no more delivery reports will arrive."""
        self.fault: LogUnavailable | LogRefused | KafkaError | None = None

    def reported(self, error: KafkaError | None, _: Message) -> None:
        """Process the delivery report of one record."""
        self.left -= 1
        if error is not None and self.fault is None:
            self.fault = error

    @property
    def is_finished(self) -> bool:
        """Whether no more delivery reports are expected."""
        return self.left == 0 or self.is_given_up

    def give_up(self, fault: LogUnavailable | LogRefused) -> None:
        """Fail the call without waiting for more delivery reports."""
        self.fault = fault
        self.is_given_up = True


class KafkaWriter:
    """The append queue, producer and threads of one log object."""

    def __init__(
        self, new_producer: Callable[[], Producer], topics: TopicAdmin, address: str, cluster_fault: ClusterFault
    ) -> None:
        self._new_producer = new_producer
        self._producer = new_producer()
        self._is_broken = False
        self._topics = topics
        self._address = address
        self._cluster_fault = cluster_fault
        self._condition = threading.Condition()
        self._calls: deque[_PendingAppend] = deque()
        self._held: deque[_PendingAppend] = deque()
        self._records = 0
        self._bytes = 0
        self._close_at: float | None = None
        self._is_over = False
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("log-poll", self._poll), ("log-maker", self._make))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def slow_for_s(self) -> float:
        """Age of the oldest unconfirmed append."""
        try:
            return monotonic() - self._calls[0].put_at
        except IndexError:
            return 0.0

    def append(self, entries: Sequence[Entry], size: int, done: Done | None) -> None:
        """Queue records for sending; raises `LogUnavailable` if the queue is full."""
        with self._condition:
            if self._close_at is not None:
                raise closed()
            records, total = self._records + len(entries), self._bytes + size
            if self._calls and (records > WAITING_RECORDS_MAX or total > WAITING_BYTES_MAX):
                why = self._cluster_fault.text or "records are appended faster than it confirms them"
                raise LogUnavailable(
                    f"{self._records} records wait for Kafka at {self._address} already ({why}): try again later"
                )
            call = _PendingAppend(entries, size, done)
            self._calls.append(call)
            self._records, self._bytes = records, total
            if self._held or any(entry.topic not in self._topics.known for entry in entries):
                self._held.append(call)
                self._condition.notify_all()
            else:
                self._produce(call)

    def close(self) -> None:
        """Wait up to `CLOSE_S` for pending appends; fail the rest."""
        with self._condition:
            if self._close_at is None:
                self._close_at = monotonic() + CLOSE_S
            self._condition.notify_all()
        if threading.current_thread() in self._threads:  # called from a `done`: the thread ends after it has returned
            return
        for thread in self._threads:
            thread.join()

    def _produce(self, call: _PendingAppend) -> None:
        produce, on_wire, reported = self._producer.produce, self._topics.on_wire, call.reported
        entries, call.entries = call.entries, ()
        try:
            for topic, key, value in entries:
                produce(on_wire(topic), value, key, 0, reported)
        except KafkaException as fault:
            call.give_up(fault_of(error_in(fault), self._address))

    def _poll(self) -> None:
        """Poll for delivery reports and call `done` of finished calls."""
        while not self._is_finished():
            self._poll_reports(self._producer.poll, _POLL_S)
            self._settle()
            if self._is_broken:
                self._renew()
        self._give_up(self._producer)
        with self._condition:
            for call in self._calls:
                call.give_up(LogUnavailable(f"Kafka at {self._address} did not confirm it before the log was closed"))
            self._held.clear()
        self._settle()
        with self._condition:
            self._is_over = True
            self._condition.notify_all()

    def _is_finished(self) -> bool:
        with self._condition:
            return self._close_at is not None and (not self._calls or monotonic() > self._close_at)

    def _settle(self) -> None:
        finished: list[_PendingAppend] = []
        with self._condition:
            while self._calls and self._calls[0].is_finished:
                call = self._calls.popleft()
                self._records -= call.count
                self._bytes -= call.size
                finished.append(call)
        for call in finished:
            fault = self._meaning(call.fault)
            if call.done is not None:
                call_safely(call.done, fault)
        if finished and finished[-1].fault is None:
            self._cluster_fault.clear()

    def _meaning(self, fault: LogUnavailable | LogRefused | KafkaError | None) -> LogUnavailable | LogRefused | None:
        if not isinstance(fault, KafkaError):
            return fault
        if fault.code() in _TOPIC_DELETED:
            self._topics.forget()
        return fault_of(fault, self._address)

    def _poll_reports(self, wait: Callable[[float], int], timeout_s: float) -> None:
        """Process delivery reports; the library raises when the producer is permanently broken."""
        try:
            wait(timeout_s)
        except KafkaException as fault:
            self._is_broken = True
            self._cluster_fault.note_error(error_in(fault))

    def _renew(self) -> None:
        """Replace a producer that has lost its sequence and accepts no more records; its pending records fail."""
        with self._condition:
            broken, self._producer = self._producer, self._new_producer()
        self._give_up(broken)
        self._is_broken = False
        self._settle()

    def _give_up(self, producer: Producer) -> None:
        """Purge the producer's queue and process the failure reports."""
        producer.purge()
        self._poll_reports(producer.flush, _PURGE_S)

    def _make(self) -> None:
        """Create the topics of held calls; while there is a fault, probe until it is over."""
        while self._wait_for_work():
            with self._condition:
                missing = {entry.topic for call in self._held for entry in call.entries}
            try:
                if missing:
                    self._topics.ensure(missing)
                else:
                    self._topics.check_available()
            except LogRefused:
                self._refuse()
            except LogUnavailable:
                self._wait_before_retry()
            self._produce_held()

    def _wait_for_work(self) -> bool:
        with self._condition:
            while not self._held and not self._is_over:
                self._condition.wait(_RETRY_S)
                if self._cluster_fault.text is not None:
                    break
            return not self._is_over

    def _produce_held(self) -> None:
        """Produce the held calls, in order, up to the first whose topics are missing."""
        with self._condition:
            while self._held and all(entry.topic in self._topics.known for entry in self._held[0].entries):
                self._produce(self._held.popleft())

    def _refuse(self) -> None:
        """Find the held calls that the cluster refuses and fail them; the others go on."""
        with self._condition:
            held = list(self._held)
        for call in held:
            try:
                self._topics.ensure({entry.topic for entry in call.entries})
            except LogRefused as its_own:
                with self._condition:
                    if call in self._held:  # closing may have failed it meanwhile
                        self._held.remove(call)
                        call.give_up(its_own)
            except LogUnavailable:
                return

    def _wait_before_retry(self) -> None:
        with self._condition:
            if not self._is_over:
                self._condition.wait(_RETRY_S * uniform(0.5, 1.0))
