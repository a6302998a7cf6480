"""One running partition of a handler: it reads requests in order, serves them, and records the outcomes in its ledger.

publish topic ─▶ take ─▶ own partition? ─▶ serve ─▶ ledger: changes, answer or dead letter ─▶ commit at the end of a batch
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import orjson

from milepost.eventlog.log import Edge, Entry, Following, Log, LogLost, LogRefused, LogUnavailable, Record, Start
from milepost.handlers.answers import FAILED, AnswerStatus, answer_to, answer_topic_of, may_be_answered, next_number
from milepost.handlers.calls import HUNG_MAX, Caller, End, Outcome, Server
from milepost.handlers.handler import Handler, described
from milepost.handlers.ledger import Cancelled, Ledger
from milepost.handlers.names import dead_letter_topic, partition_of, sender_name_of
from milepost.handlers.records import DeadLetter, Request, dead_letter_to_bytes, request_from
from milepost.model.addresses import ToContent
from milepost.model.instants import Instant
from milepost.model.sites import CROSS_HUB, EdgeRef, ForwardedMessage, publish_to
from milepost.wire.records import record_prefix, to_record

REQUEST_BYTES_MAX: Final = 400_000
"""Maximum size of a request: a larger one would not fit into a dead letter."""

DEAD_LETTERS_MAX: Final = 10_000
"""Maximum dead letters per partition; then the oldest are dropped."""


class PartitionLog(Protocol):
    """Logger of events with their facts."""

    def info(self, event: str, **facts: str | int | None) -> None:
        """Log a line."""

    def seldom(self, event: str, **facts: str | int | None) -> None:
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
        lines: PartitionLog,
        counts: Counter[str],
        clock: Callable[[], int],
        *,
        crossed: int = 0,
    ) -> None:
        self._handler = handler
        self.number = number
        self._site = site
        self._log = log
        self._lines = lines
        self._counts = counts
        self._clock = clock
        self._topic = publish_to(handler.name)
        self._crossed = crossed
        """First offset of other sites' messages, used if the partition was never served."""
        self._own_site = record_prefix("said") + b',"from":"%s/' % site.encode()
        self._over = threading.Event()
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self.ledger = Ledger(log, handler.name, number, handler.partitions, self._over)
        self._caller = Caller(handler.timeout_s, self._over)
        self._server = Server(handler, self._caller.call, self._pause)
        self._following: Following | None = None
        self.fault: str | None = None
        self._thread = threading.Thread(target=self._begin, name=f"handler-partition-{number}", daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether the partition has ended."""
        return self._over.is_set()

    def start(self) -> None:
        """Claim the partition and start serving."""
        self._thread.start()

    def repair(self) -> None:
        """Rewrite records that a former owner overwrote; call this periodically."""
        if self._busy.acquire(blocking=False):
            try:
                if self._following is not None and not self._over.is_set() and self.ledger.has_news:
                    self._guarded(self._commit)
            finally:
                self._busy.release()

    def close(self, within_s: float) -> None:
        """Finish the current request within *within_s*, then end."""
        self._stopping.set()
        closing = threading.Thread(target=self._end, name=f"handler-end-{self.number}", daemon=True)
        closing.start()
        closing.join(within_s)
        self._over.set()
        closing.join()

    def _end(self) -> None:
        self._thread.join()
        if self._following is not None:
            self._following.close()
        if self.ledger.has_moved:
            self._guarded(self._commit)
        self.ledger.close()
        self._caller.close()

    def _begin(self) -> None:
        self._guarded(self._claim)

    def _claim(self) -> None:
        self.ledger.claim()
        before = self.ledger.partitions_before
        if before not in (0, self._handler.partitions):
            self._fail(
                f"it was run with partitions={before} before, and its store is divided so; `milepost handler forget` it first"
            )
            return
        positions = self.ledger.positions
        if CROSS_HUB not in positions:
            positions[CROSS_HUB] = self._crossed
            self._commit()
        starts: dict[str, Start] = {self._topic: positions.get(self._topic, Edge.BEGINNING), CROSS_HUB: positions[CROSS_HUB]}
        self._following = self._log.follow(starts, self._take, self._on_gap)
        self._lines.info(
            "partition served", handler=self._handler.name, partition=self.number, position=positions.get(self._topic)
        )

    def _take(self, records: Sequence[Record]) -> None:
        with self._busy:
            self._guarded(lambda: self._serve_all(records))

    def _serve_all(self, records: Sequence[Record]) -> None:
        for record in records:
            if self._stopping.is_set() or self._over.is_set():
                break
            self._serve(record)
            if self.ledger.is_full:
                self.ledger.commit()
            if self._caller.hung >= HUNG_MAX:
                self._commit()
                self._fail(f"{HUNG_MAX} calls took too long and hang: look at what they wait for, and start anew")
                return
        if self.ledger.has_news:
            self.ledger.commit()
        self.ledger.settle()

    def _commit(self) -> None:
        self.ledger.commit()
        self.ledger.settle()

    def _serve(self, record: Record) -> None:
        topic, position = record.topic, record.offset + 1
        request = self._maybe_request(record)
        if request is None:
            self.ledger.skip(topic, position)
            return
        said = request.said
        self._counts["received"] += 1
        if not request.times:
            if not self.ledger.is_new(said.sender, said.number):
                self._counts["doubles"] += 1
                self.ledger.skip(topic, position)
                return
            self.ledger.mark(said.sender, said.number)
        now = Instant(self._clock())
        size = len(record.value or b"")
        if size > REQUEST_BYTES_MAX:
            outcome = Outcome(End.REJECTED, reason=f"a request of {size} bytes, {REQUEST_BYTES_MAX} are allowed")
        else:
            outcome = self._server.serve(request, self.ledger.store, now)
        self._counts[outcome.end.value] += 1
        follows = [*self._dead_letter(request, outcome, now), *self._answer(request, outcome, now)]
        self.ledger.add(topic, position, outcome.changes, follows)

    def _maybe_request(self, record: Record) -> Request | None:
        """Return the request in a record, or None if it belongs to another partition or to none."""
        is_far = record.topic == CROSS_HUB
        if record.value is None or (is_far and (record.key or record.value.startswith(self._own_site))):
            return None  # messages from this site arrive on the handler's own topic
        if not is_far and not self._is_mine(record.key):
            return None
        try:
            request = request_from(record.value)
        except ValueError as fault:
            self._counts["malformed"] += 1
            self._lines.seldom("request unreadable", handler=self._handler.name, offset=record.offset, reason=str(fault))
            return None
        return request if not is_far or self._is_wanted_from_afar(request.said) else None

    def _is_wanted_from_afar(self, said: ForwardedMessage) -> bool:
        """Return whether a message from the central hub is for this partition."""
        message = said.message
        is_for_all = said.sender.site != self._site and isinstance(message.address, ToContent)
        return is_for_all and self._is_mine(message.source) and self._handler.maybe_route(message.topic) is not None

    def _is_mine(self, source: str) -> bool:
        return partition_of(source, self._handler.partitions) == self.number

    def _dead_letter(self, request: Request, outcome: Outcome, now: Instant) -> list[Entry]:
        if outcome.end is not End.DEAD_LETTER:
            return []
        self._lines.seldom(
            "dead letter",
            handler=self._handler.name,
            source=request.said.message.source,
            topic=request.said.message.topic,
            tries=outcome.tries,
            reason=outcome.reason,
        )
        letter = DeadLetter(outcome.reason, outcome.tries, request.times, now, to_record(request.said))
        key = f"{self.number}.{self.ledger.dead_letters % DEAD_LETTERS_MAX}"
        self.ledger.dead_letters += 1
        return [Entry(dead_letter_topic(self._handler.name), key, dead_letter_to_bytes(letter))]

    def _answer(self, request: Request, outcome: Outcome, now: Instant) -> list[Entry]:
        said = request.said
        if outcome.end not in _ANSWER_STATUS or not may_be_answered(said.message):
            return []
        status, body = _ANSWER_STATUS[outcome.end], outcome.body
        if status is AnswerStatus.REJECT:
            body = orjson.dumps({"reason": FAILED if outcome.end is End.DEAD_LETTER else outcome.reason})
        number = next_number(self.ledger.number, now)
        try:
            topic = answer_topic_of(said, self._site)
            sender = EdgeRef(self._site, sender_name_of(self._handler.name, self.number, is_far=topic == CROSS_HUB))
            answer = answer_to(said, status, body, sender=sender, number=number, now=now, is_json=outcome.is_json)
        except ValueError as fault:
            self._counts["unanswerable"] += 1
            self._lines.seldom("request cannot be answered", handler=self._handler.name, reason=str(fault))
            return []
        self.ledger.number = number
        return [Entry(topic, "" if topic == CROSS_HUB else said.message.source, to_record(answer))]

    def _on_gap(self, gap: LogLost) -> None:
        self._counts["gaps"] += 1
        self._lines.warning("requests are lost", handler=self._handler.name, reason=str(gap))

    def _pause(self, seconds: float) -> None:
        if self._over.wait(seconds):
            raise Cancelled

    def _guarded(self, step: Callable[[], None]) -> None:
        """Run a step that may be cancelled, or that the log may refuse."""
        try:
            if not self._over.is_set():
                step()
        except (Cancelled, LogUnavailable):
            self._over.set()  # it is claimed again when the log is available
        except LogRefused as fault:
            self._fail(str(fault))
        except Exception as fault:  # noqa: BLE001  # a bug in Milepost: continuing would skip the current request
            self._fail(described(fault))

    def _fail(self, why: str) -> None:
        self.fault = why
        self._over.set()


_ANSWER_STATUS: Final = {
    End.ACCEPTED: AnswerStatus.ACCEPT,
    End.REJECTED: AnswerStatus.REJECT,
    End.DEAD_LETTER: AnswerStatus.REJECT,
}
