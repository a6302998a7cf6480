"""One running partition of a handler: it reads requests in order, serves them, and records the outcomes in its ledger.

publish topic ─▶ take ─▶ own partition? ─▶ serve ─▶ ledger: changes, answer or dead letter ─▶ commit at the end of a batch
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import orjson

from milepost.eventlog.log import Entry, Following, Log, LogLost, LogRefused, LogUnavailable, Record, Start, TopicEnd
from milepost.handlers.answers import FAILED, AnswerStatus, answer_to, answer_topic_of, may_be_answered, next_number
from milepost.handlers.calls import HUNG_MAX, CallRunner, RequestEnd, RequestOutcome, Server
from milepost.handlers.handler import Handler, describe_fault
from milepost.handlers.ledger import Cancelled, PartitionLedger
from milepost.handlers.records import DeadLetter, HandlerRequest, dead_letter_to_bytes, request_from_record
from milepost.handlers.topic_names import dead_letter_topic, partition_of, sender_name_of
from milepost.model.addresses import ToContent
from milepost.model.instants import Instant
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage, handler_topic
from milepost.wire.records import record_prefix, to_record

REQUEST_BYTES_MAX: Final = 400_000
"""Maximum size of a request: a larger one would not fit into a dead letter."""

DEAD_LETTERS_MAX: Final = 10_000
"""Maximum dead letters per partition; then the oldest are dropped."""


class PartitionLogger(Protocol):
    """Logger of events with their facts."""

    def info(self, event: str, **facts: str | int | None) -> None:
        """Log a line."""

    def info_limited(self, event: str, **facts: str | int | None) -> None:
        """Log an event that clients can cause at will, rate-limited."""

    def warning(self, event: str, **facts: str | int | None) -> None:
        """Log an event that needs an operator's attention."""


class Partition:
    """One partition, from its claim to its end; `fault` is set if it must not be restarted."""

    def __init__(
        self,
        handler: Handler,
        number: int,
        site: str,
        log: Log,
        logger: PartitionLogger,
        counts: Counter[str],
        clock: Callable[[], int],
        *,
        cross_hub_start: int = 0,
    ) -> None:
        self._handler = handler
        self.number = number
        self._site = site
        self._log = log
        self._logger = logger
        self._counts = counts
        self._clock = clock
        self._topic = handler_topic(handler.name)
        self._cross_hub_start = cross_hub_start
        """First offset of other sites' messages, used if the partition was never served."""
        self._own_site = record_prefix("forwarded") + b',"from":"%s/' % site.encode()
        self._cancelled = threading.Event()
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self.ledger = PartitionLedger(log, handler.name, number, handler.partitions, self._cancelled)
        self._caller = CallRunner(handler.timeout_s, self._cancelled)
        self._server = Server(handler, self._caller.call, self._pause)
        self._following: Following | None = None
        self.fault: str | None = None
        self._thread = threading.Thread(target=self._begin, name=f"handler-partition-{number}", daemon=True)

    @property
    def has_ended(self) -> bool:
        """Whether the partition has ended."""
        return self._cancelled.is_set()

    def start(self) -> None:
        """Claim the partition and start serving."""
        self._thread.start()

    def repair(self) -> None:
        """Rewrite records that a previous owner overwrote; call this periodically."""
        if self._busy.acquire(blocking=False):
            try:
                if self._following is not None and not self._cancelled.is_set() and self.ledger.has_uncommitted:
                    self._guarded(self._commit)
            finally:
                self._busy.release()

    def close(self, within_s: float) -> None:
        """Finish the current request within *within_s*, then end."""
        self._stopping.set()
        closing = threading.Thread(target=self._end, name=f"handler-end-{self.number}", daemon=True)
        closing.start()
        closing.join(within_s)
        self._cancelled.set()
        closing.join()

    def _end(self) -> None:
        self._thread.join()
        if self._following is not None:
            self._following.close()
        if self.ledger.needs_commit:
            self._guarded(self._commit)
        self.ledger.close()
        self._caller.close()

    def _begin(self) -> None:
        self._guarded(self._claim)

    def _claim(self) -> None:
        self.ledger.claim()
        before = self.ledger.previous_partitions
        if before not in (0, self._handler.partitions):
            self._fail(
                f"the handler ran with partitions={before} before, and its store is partitioned accordingly: "
                f"use that number, or run `milepost handler forget {self._handler.name}` first"
            )
            return
        positions = self.ledger.positions
        if CROSS_HUB not in positions:
            positions[CROSS_HUB] = self._cross_hub_start
            self._commit()
        starts: dict[str, Start] = {self._topic: positions.get(self._topic, TopicEnd.BEGINNING), CROSS_HUB: positions[CROSS_HUB]}
        self._following = self._log.follow(starts, self._receive, self._on_gap)
        self._logger.info(
            "partition served", handler=self._handler.name, partition=self.number, position=positions.get(self._topic)
        )

    def _receive(self, records: Sequence[Record]) -> None:
        with self._busy:
            self._guarded(lambda: self._serve_all(records))

    def _serve_all(self, records: Sequence[Record]) -> None:
        for record in records:
            if self._stopping.is_set() or self._cancelled.is_set():
                break
            self._serve(record)
            if self.ledger.is_full:
                self.ledger.commit()
            if self._caller.hung >= HUNG_MAX:
                self._commit()
                self._fail(f"{HUNG_MAX} calls exceeded their timeout and still hang: find out what they wait for, then restart")
                return
        if self.ledger.has_uncommitted:
            self.ledger.commit()
        self.ledger.flush()

    def _commit(self) -> None:
        self.ledger.commit()
        self.ledger.flush()

    def _serve(self, record: Record) -> None:
        topic, position = record.topic, record.offset + 1
        request = self._maybe_request(record)
        if request is None:
            self.ledger.skip(topic, position)
            return
        forwarded = request.forwarded
        self._counts["received"] += 1
        if not request.retries:
            if not self.ledger.is_new(forwarded.sender, forwarded.number):
                self._counts["duplicates"] += 1
                self.ledger.skip(topic, position)
                return
            self.ledger.mark_served(forwarded.sender, forwarded.number)
        now = Instant(self._clock())
        size = len(record.value or b"")
        if size > REQUEST_BYTES_MAX:
            outcome = RequestOutcome(
                RequestEnd.REJECTED, reason=f"the request has {size} bytes; the maximum is {REQUEST_BYTES_MAX}"
            )
        else:
            outcome = self._server.serve(request, self.ledger.store, now)
        self._counts[outcome.end.value] += 1
        entries = [*self._dead_letter(request, outcome, now), *self._answer(request, outcome, now)]
        self.ledger.add(topic, position, outcome.changes, entries)

    def _maybe_request(self, record: Record) -> HandlerRequest | None:
        """Return the request in a record, or None if it belongs to another partition or to none."""
        is_remote = record.topic == CROSS_HUB
        if record.value is None or (is_remote and (record.key or record.value.startswith(self._own_site))):
            return None  # messages from this site arrive on the handler's own topic
        if not is_remote and not self._serves(record.key):
            return None
        try:
            request = request_from_record(record.value)
        except ValueError as fault:
            self._counts["malformed"] += 1
            self._logger.info_limited("request unreadable", handler=self._handler.name, offset=record.offset, reason=str(fault))
            return None
        return request if not is_remote or self._is_remote_request(request.forwarded) else None

    def _is_remote_request(self, forwarded: ForwardedMessage) -> bool:
        """Return whether a message from the central hub is for this partition."""
        message = forwarded.message
        is_for_all = forwarded.sender.site != self._site and isinstance(message.address, ToContent)
        return is_for_all and self._serves(message.source) and self._handler.find_route(message.topic) is not None

    def _serves(self, source: str) -> bool:
        return partition_of(source, self._handler.partitions) == self.number

    def _dead_letter(self, request: HandlerRequest, outcome: RequestOutcome, now: Instant) -> list[Entry]:
        if outcome.end is not RequestEnd.DEAD_LETTER:
            return []
        self._logger.info_limited(
            "dead letter",
            handler=self._handler.name,
            source=request.forwarded.message.source,
            topic=request.forwarded.message.topic,
            attempts=outcome.attempts,
            reason=outcome.reason,
        )
        letter = DeadLetter(outcome.reason, outcome.attempts, request.retries, now, to_record(request.forwarded))
        key = f"{self.number}.{self.ledger.dead_letters % DEAD_LETTERS_MAX}"
        self.ledger.dead_letters += 1
        return [Entry(dead_letter_topic(self._handler.name), key, dead_letter_to_bytes(letter))]

    def _answer(self, request: HandlerRequest, outcome: RequestOutcome, now: Instant) -> list[Entry]:
        forwarded = request.forwarded
        if outcome.end not in _ANSWER_STATUS or not may_be_answered(forwarded.message):
            return []
        status, body = _ANSWER_STATUS[outcome.end], outcome.body
        if status is AnswerStatus.REJECT:
            body = orjson.dumps({"reason": FAILED if outcome.end is RequestEnd.DEAD_LETTER else outcome.reason})
        number = next_number(self.ledger.number, now)
        try:
            topic = answer_topic_of(forwarded, self._site)
            sender = EdgeRef(self._site, sender_name_of(self._handler.name, self.number, is_remote=topic == CROSS_HUB))
            answer = answer_to(forwarded, status, body, sender=sender, number=number, now=now, is_json=outcome.is_json)
        except ValueError as fault:
            self._counts["unanswerable"] += 1
            self._logger.info_limited("request cannot be answered", handler=self._handler.name, reason=str(fault))
            return []
        self.ledger.number = number
        return [Entry(topic, "" if topic == CROSS_HUB else forwarded.message.source, to_record(answer))]

    def _on_gap(self, gap: LogLost) -> None:
        self._counts["gaps"] += 1
        self._logger.warning("requests lost", handler=self._handler.name, reason=str(gap))

    def _pause(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise Cancelled

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step that may be cancelled, or that the log may refuse."""
        try:
            if not self._cancelled.is_set():
                step()
        except (Cancelled, LogUnavailable):
            self._cancelled.set()  # it is claimed again when the log is available
        except LogRefused as fault:
            self._fail(str(fault))
        except Exception as fault:  # noqa: BLE001  # a bug in Milepost: continuing would skip the current request
            self._fail(describe_fault(fault))

    def _fail(self, reason: str) -> None:
        self.fault = reason
        self._cancelled.set()


_ANSWER_STATUS: Final = {
    RequestEnd.ACCEPTED: AnswerStatus.ACCEPT,
    RequestEnd.REJECTED: AnswerStatus.REJECT,
    RequestEnd.DEAD_LETTER: AnswerStatus.REJECT,
}
