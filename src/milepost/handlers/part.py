"""A part of a handler at work: it reads requests in their order, has them served, and writes down what became of them.

publish topic ─▶ take ─▶ mine? ─▶ serve ─▶ ledger: changes, answer or parked ─▶ commit at the end of what was at hand
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

import orjson

from milepost.backbone.log import Edge, Entry, Following, Log, LogLost, LogRefused, LogUnavailable, Record, Start
from milepost.doors.log import Log as Lines
from milepost.handlers.appending import CalledOff
from milepost.handlers.calls import HUNG_MAX, Caller
from milepost.handlers.handler import Handler
from milepost.handlers.ledger import Ledger
from milepost.handlers.names import parked_topic
from milepost.handlers.notes import Parked, Request, parked_to_bytes, request_from
from milepost.handlers.serving import End, Outcome, Server, described
from milepost.hub.handling import FAILED, Verdict, answer_to, may_be_answered, next_number, part_of, voice_of, way_back
from milepost.model.addresses import ToContent
from milepost.model.instants import Instant
from milepost.model.sites import CROSS_HUB, EdgeRef, Said, publish_to
from milepost.wire.records import to_record

REQUEST_BYTES_MAX: Final = 400_000
"""A larger record is refused: it could not be set aside whole."""

PARKED_MAX: Final = 10_000
"""So many are kept aside for each part; then the oldest go."""


class Part:
    """One part, from its claim until it is over; `fault` says why if it must not be tried again."""

    def __init__(
        self,
        handler: Handler,
        number: int,
        site: str,
        log: Log,
        lines: Lines,
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
        """Where to begin with what other sites say, if the part was never served."""
        self._own_site = b'{"type":"said","from":"%s/' % site.encode()
        self._over = threading.Event()
        self._stopping = threading.Event()
        self._busy = threading.Lock()
        self.ledger = Ledger(log, handler.name, number, handler.parts, self._over)
        self._caller = Caller(handler.timeout_s, self._over)
        self._server = Server(handler, self._caller.call, self._pause)
        self._following: Following | None = None
        self.fault: str | None = None
        self._thread = threading.Thread(target=self._begin, name=f"handler-part-{number}", daemon=True)

    @property
    def is_over(self) -> bool:
        """Whether it serves nobody any more."""
        return self._over.is_set()

    def start(self) -> None:
        """Claim the part and begin to serve."""
        self._thread.start()

    def mend(self) -> None:
        """Write the book again where others have spoiled it; to be called now and then."""
        if self._busy.acquire(blocking=False):
            try:
                if self._following is not None and not self._over.is_set() and self.ledger.has_news:
                    self._guarded(self._write_down)
            finally:
                self._busy.release()

    def close(self, patience_s: float) -> None:
        """Finish what is being served, if that takes no longer than so; then end."""
        self._stopping.set()
        closing = threading.Thread(target=self._end, name=f"handler-end-{self.number}", daemon=True)
        closing.start()
        closing.join(patience_s)
        self._over.set()
        closing.join()

    def _end(self) -> None:
        self._thread.join()
        if self._following is not None:
            self._following.close()
        if self.ledger.has_moved:
            self._guarded(self._write_down)
        self.ledger.close()
        self._caller.close()

    def _begin(self) -> None:
        self._guarded(self._claim)

    def _claim(self) -> None:
        self.ledger.claim()
        before = self.ledger.parts_before
        if before not in (0, self._handler.parts):
            self._fail(f"it was run with parts={before} before, and its store is divided so; `milepost handler forget` it first")
            return
        positions = self.ledger.positions
        if CROSS_HUB not in positions:
            positions[CROSS_HUB] = self._crossed
            self._write_down()
        starts: dict[str, Start] = {self._topic: positions.get(self._topic, Edge.BEGINNING), CROSS_HUB: positions[CROSS_HUB]}
        self._following = self._log.follow(starts, self._take, self._on_gap)
        self._lines.info("part served", handler=self._handler.name, part=self.number, position=positions.get(self._topic))

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
                self._write_down()
                self._fail(f"{HUNG_MAX} calls took too long and hang: look at what they wait for, and start anew")
                return
        if self.ledger.has_news:
            self.ledger.commit()
        self.ledger.settle()

    def _write_down(self) -> None:
        self.ledger.commit()
        self.ledger.settle()

    def _serve(self, record: Record) -> None:
        topic, position = record.topic, record.offset + 1
        request = self._maybe_request(record)
        if request is None:
            self.ledger.pass_by(topic, position)
            return
        said = request.said
        self._counts["received"] += 1
        if not request.times:
            if not self.ledger.is_new(said.sender, said.number):
                self._counts["doubles"] += 1
                self.ledger.pass_by(topic, position)
                return
            self.ledger.mark(said.sender, said.number)
        now = Instant(self._clock())
        size = len(record.value or b"")
        if size > REQUEST_BYTES_MAX:
            outcome = Outcome(End.REJECTED, reason=f"a request of {size} bytes, {REQUEST_BYTES_MAX} are allowed")
        else:
            outcome = self._server.serve(request, self.ledger.shelf, now)
        self._counts[outcome.end.value] += 1
        follows = [*self._aside(request, outcome, now), *self._answer(request, outcome, now)]
        self.ledger.add(topic, position, outcome.changes, follows)

    def _maybe_request(self, record: Record) -> Request | None:
        """What is to be dealt with here; nothing: it is another part's, or nobody's."""
        is_far = record.topic == CROSS_HUB
        if record.value is None or (is_far and (record.key or record.value.startswith(self._own_site))):
            return None  # what edges of this site say for a handler stands in its own topic
        if not is_far and not self._is_mine(record.key):
            return None
        try:
            request = request_from(record.value)
        except ValueError as fault:
            self._counts["malformed"] += 1
            self._lines.seldom("request unreadable", handler=self._handler.name, offset=record.offset, reason=str(fault))
            return None
        return request if not is_far or self._is_wanted_from_afar(request.said) else None

    def _is_wanted_from_afar(self, said: Said) -> bool:
        """Whether what the centre has brought is for this part."""
        message = said.message
        is_for_all = said.sender.site != self._site and isinstance(message.address, ToContent)
        return is_for_all and self._is_mine(message.source) and self._handler.maybe_route(message.topic) is not None

    def _is_mine(self, source: str) -> bool:
        return part_of(source, self._handler.parts) == self.number

    def _aside(self, request: Request, outcome: Outcome, now: Instant) -> list[Entry]:
        if outcome.end is not End.PARKED:
            return []
        self._lines.seldom(
            "request parked",
            handler=self._handler.name,
            source=request.said.message.source,
            topic=request.said.message.topic,
            tries=outcome.tries,
            reason=outcome.reason,
        )
        parked = Parked(outcome.reason, outcome.tries, request.times, now, to_record(request.said))
        key = f"{self.number}.{self.ledger.parked % PARKED_MAX}"
        self.ledger.parked += 1
        return [Entry(parked_topic(self._handler.name), key, parked_to_bytes(parked))]

    def _answer(self, request: Request, outcome: Outcome, now: Instant) -> list[Entry]:
        said = request.said
        if outcome.end not in _VERDICTS or not may_be_answered(said.message):
            return []
        verdict, body = _VERDICTS[outcome.end], outcome.body
        if verdict is Verdict.REJECT:
            body = orjson.dumps({"reason": FAILED if outcome.end is End.PARKED else outcome.reason})
        number = next_number(self.ledger.number, now)
        try:
            topic = way_back(said, self._site)
            sender = EdgeRef(self._site, voice_of(self._handler.name, self.number, is_far=topic == CROSS_HUB))
            answer = answer_to(said, verdict, body, sender=sender, number=number, now=now, is_json=outcome.is_json)
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
            raise CalledOff

    def _guarded(self, step: Callable[[], None]) -> None:
        """Do something that may be called off, or that the log may not allow."""
        try:
            if not self._over.is_set():
                step()
        except (CalledOff, LogUnavailable):
            self._over.set()  # it is claimed again when the log is back
        except LogRefused as fault:
            self._fail(str(fault))
        except Exception as fault:  # noqa: BLE001  # ours: going on would pass over what was being dealt with
            self._fail(described(fault))

    def _fail(self, why: str) -> None:
        self.fault = why
        self._over.set()


_VERDICTS: Final = {End.ACCEPTED: Verdict.ACCEPT, End.REJECTED: Verdict.REJECT, End.PARKED: Verdict.REJECT}
