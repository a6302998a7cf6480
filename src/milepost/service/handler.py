"""`milepost handler run`: one process of a handler, from its file to a clean stop.

load ─▶ announce ─▶ join the group ─▶ the parts it is given, each claimed in the log ─▶ … SIGTERM ─▶ finish, leave

Several processes of one handler share its parts. A part that is lost to another process, or that the log does not allow, is
looked at again every second.
"""

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from http import HTTPStatus
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final

from milepost.backbone.log import Log, LogLost, LogRefused, LogUnavailable, Record
from milepost.doors.asking import HttpEntrance
from milepost.doors.listening import Listener, listen_at
from milepost.doors.turns import Turns
from milepost.handlers.announcing import announce
from milepost.handlers.handler import Handler
from milepost.handlers.names import COMPACTED, group_of, parked_topic, part_topic
from milepost.handlers.part import Part
from milepost.handlers.serving import End
from milepost.model.instants import Instant
from milepost.model.sites import CROSS_HUB, publish_to
from milepost.service.addresses import host_and_port
from milepost.service.faults import StartFault, cannot_listen
from milepost.service.logs import Log as Lines
from milepost.service.metrics import CONTENT_TYPE, Family, Kind, exposition, gauge, labelled

if TYPE_CHECKING:
    from milepost.backbone.log import Member

LOOK_S: Final = 1.0
"""So often it is seen to that the parts which are ours are served."""
PROGRESS_S: Final = 10.0
GOODBYE_S: Final = 5.0
"""So long a call may take to come to its end when the process stops."""

_TEXT: Final = "text/plain; charset=utf-8"
_COUNTED: Final = ("received", *(end.value for end in End), "malformed", "doubles", "unanswerable", "gaps")


class HandlerService:
    """One process of a handler."""

    def __init__(self, handler: Handler, site: str, log: Log, lines: Lines) -> None:
        self._handler = handler
        self._site = site
        self._log = log
        self._lines = lines
        self._turns = Turns()
        self._topics = {part_topic(handler.name, number): number for number in range(handler.parts)}
        self._counts: dict[int, Counter[str]] = {number: Counter() for number in range(handler.parts)}
        self._ours: frozenset[int] = frozenset()
        self._parts: dict[int, Part] = {}
        self._told: dict[str, int] = {}
        self._started_at = monotonic()
        self._is_stopping = False
        self._fault: str | None = None
        self._crossed = 0
        """What other sites said before is not for a handler that is new."""

    def run(self, http: str | None = None) -> int:
        """Serve until told to stop; gives the exit status."""
        turns, name = self._turns, self._handler.name
        address = self._listen(http) if http else None
        try:
            self._crossed = self._log.ends(CROSS_HUB)[1]
            announce(self._log, self._site, self._handler)
            self._log.make(parked_topic(name), COMPACTED)
            member = self._join()
        except (LogUnavailable, LogRefused) as fault:
            raise StartFault(f"the log of site {self._site} does not take the handler {name}: {fault}") from None
        turns.every(LOOK_S, self._look)
        turns.every(PROGRESS_S, self._tell_progress)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: turns.call_soon(self._begin_stop))
        filters = " ".join(route.filter for route in self._handler.routes)
        self._lines.info("handler ready", name=name, site=self._site, parts=self._handler.parts, topics=filters, http=address)
        turns.run()
        self._ours = frozenset()
        self._arrange()
        member.close()
        turns.close()
        self._tell_progress(Instant(time_ns()))
        if self._fault is not None:
            raise StartFault(f"the handler {name} cannot go on: {self._fault}")
        self._lines.info("handler stopped", name=name)
        return 0

    def _join(self) -> "Member":
        return self._log.join(group_of(self._handler.name), list(self._topics), _take_none, _lose_none, changed=self._on_changed)

    def _on_changed(self, topics: frozenset[str]) -> None:
        """From a thread of the log: other parts are ours now."""
        ours = frozenset(self._topics[topic] for topic in topics)
        self._turns.call_soon(partial(self._take_over, ours))

    def _take_over(self, ours: frozenset[int], now: Instant) -> None:
        del now
        if not self._is_stopping:
            self._ours = ours
            self._arrange()

    def _look(self, now: Instant) -> None:
        del now
        self._lines.tell_suppressed()
        for part in self._parts.values():
            part.mend()
        self._arrange()

    def _arrange(self) -> None:
        """Serve the parts that are ours, and no others."""
        for number, part in list(self._parts.items()):
            if part.fault is not None and self._fault is None:
                self._fault = part.fault
                self._turns.stop()
            if part.is_over or number not in self._ours:
                part.close(GOODBYE_S if self._is_stopping else 0.0)
                del self._parts[number]
                self._lines.info("part left", handler=self._handler.name, part=number)
        if self._fault is not None or self._is_stopping:
            return
        for number in sorted(self._ours - self._parts.keys()):
            counts = self._counts[number]
            part = Part(self._handler, number, self._site, self._log, self._lines, counts, time_ns, crossed=self._crossed)
            self._parts[number] = part
            part.start()

    def _begin_stop(self, now: Instant) -> None:
        del now
        self._is_stopping = True
        self._turns.stop()

    def _tell_progress(self, now: Instant) -> None:
        del now
        counts = self._sums()
        if counts != self._told:
            self._told = counts
            said = {name: count for name, count in counts.items() if count}
            self._lines.info("handler progress", name=self._handler.name, behind=self._maybe_behind(), **said)

    def _sums(self) -> dict[str, int]:
        return {name: sum(counts[name] for counts in self._counts.values()) for name in _COUNTED}

    def _maybe_behind(self) -> int | None:
        """Requests in the log that the slowest of our parts has not dealt with."""
        topic = publish_to(self._handler.name)
        try:
            first, end = self._log.ends(topic)
        except LogUnavailable:
            return None
        positions = [part.ledger.positions.get(topic, 0) for part in self._parts.values()]
        return max((end - max(first, position) for position in positions), default=0)

    def _listen(self, address: str) -> str:
        host, port = host_and_port(address)
        asking = HttpEntrance(self._turns, self._answer)
        self._turns.every(1.0, asking.tick)
        try:
            return Listener(self._turns, listen_at(host, port), asking.take).address
        except OSError as error:
            raise cannot_listen(address, error) from None

    def _answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """What is asked for over HTTP."""
        del method
        trouble = next((part.ledger.trouble for part in self._parts.values() if part.ledger.trouble), None)
        match path:
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, exposition(self._families())
            case "/health":
                return HTTPStatus.OK, _TEXT, b"alive\n"
            case "/ready" if trouble is None:
                return HTTPStatus.OK, _TEXT, b"ready\n"
            case "/ready":
                return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"not ready: {trouble}\n".encode()
            case _:
                return HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics, /health and /ready\n"

    def _families(self) -> Iterator[Family]:
        yield gauge("milepost_handler_up_seconds", "Seconds since the start.", monotonic() - self._started_at)
        yield gauge("milepost_handler_parts", "Parts that this process serves.", len(self._parts))
        yield gauge("milepost_handler_behind", "Requests that wait in the log.", self._maybe_behind() or 0)
        counts = self._sums().items()
        what = "Requests, by what became of them."
        yield labelled("milepost_handler_requests_total", Kind.COUNTER, what, "end", counts)


def _take_none(records: Sequence[Record]) -> None:
    """The topics that a group divides have no records."""
    del records


def _lose_none(gap: LogLost) -> None:
    del gap
