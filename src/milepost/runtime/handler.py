"""`milepost handler run`: one process of a handler, from its file to a clean stop.

load ─▶ announce ─▶ join the group ─▶ assigned partitions, each claimed in the log ─▶ … SIGTERM ─▶ finish, leave

Several processes of one handler share its partitions. A partition that is lost to another process, or that the log refuses, is
claimed again within a second.
"""

import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Final

from milepost.config.errors import StartFault
from milepost.eventlog.log import Log, LogLost, LogRefused, LogUnavailable, Record
from milepost.handlers.administration import announce
from milepost.handlers.calls import End
from milepost.handlers.handler import Handler
from milepost.handlers.names import COMPACTED, dead_letter_topic, group_of, partition_topic
from milepost.handlers.partition import Partition
from milepost.listeners.event_loop import EventLoop
from milepost.model.instants import Instant
from milepost.model.sites import CROSS_HUB, publish_to
from milepost.runtime.logs import Log as Lines
from milepost.runtime.metrics import Family, Kind, gauge, labelled
from milepost.runtime.monitoring import Monitoring

if TYPE_CHECKING:
    from milepost.eventlog.log import Member

POLL_S: Final = 1.0
"""Interval of the check that the process serves the partitions assigned to it."""
PROGRESS_S: Final = 10.0
GOODBYE_S: Final = 5.0
"""Time for calls to finish when the process stops."""

_COUNTED: Final = ("received", *(end.value for end in End), "malformed", "doubles", "unanswerable", "gaps")


class HandlerService:
    """One process of a handler."""

    def __init__(self, handler: Handler, site: str, log: Log, lines: Lines) -> None:
        self._handler = handler
        self._site = site
        self._log = log
        self._lines = lines
        self._turns = EventLoop()
        self._topics = {partition_topic(handler.name, number): number for number in range(handler.partitions)}
        self._counts: dict[int, Counter[str]] = {number: Counter() for number in range(handler.partitions)}
        self._ours: frozenset[int] = frozenset()
        self._partitions: dict[int, Partition] = {}
        self._told: dict[str, int] = {}
        self._monitoring = Monitoring()
        self._monitoring.add_check("partitions", self._maybe_trouble)
        self._monitoring.add_metrics(self._families)
        self._fault: str | None = None
        self._crossed = 0
        """End of cross-hub at the start: a new handler does not handle earlier requests of other sites."""

    def run(self, http: str = "") -> int:
        """Serve until a signal; return the exit status."""
        turns, name = self._turns, self._handler.name
        address = self._monitoring.listen(turns, http)
        try:
            self._crossed = self._log.ends(CROSS_HUB)[1]
            announce(self._log, self._site, self._handler)
            self._log.make(dead_letter_topic(name), COMPACTED)
            member = self._join()
        except (LogUnavailable, LogRefused) as fault:
            raise StartFault(f"the log of site {self._site} does not take the handler {name}: {fault}") from None
        turns.every(POLL_S, self._look)
        turns.every(PROGRESS_S, self._tell_progress)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: turns.call_soon(self._begin_stop))
        filters = " ".join(route.filter for route in self._handler.routes)
        self._lines.info(
            "handler ready", name=name, site=self._site, partitions=self._handler.partitions, topics=filters, http=address
        )
        turns.run()
        self._ours = frozenset()
        self._arrange()
        member.close()
        self._monitoring.close()
        turns.close()
        self._tell_progress(Instant(time_ns()))
        if self._fault is not None:
            raise StartFault(f"the handler {name} cannot go on: {self._fault}")
        self._lines.info("handler stopped", name=name)
        return 0

    def _join(self) -> "Member":
        return self._log.join(group_of(self._handler.name), list(self._topics), _take_none, _lose_none, changed=self._on_changed)

    def _on_changed(self, topics: frozenset[str]) -> None:
        """Handle a changed assignment; called in a thread of the log."""
        ours = frozenset(self._topics[topic] for topic in topics)
        self._turns.call_soon(partial(self._take_over, ours))

    def _take_over(self, ours: frozenset[int], now: Instant) -> None:
        del now
        if not self._monitoring.is_stopping:
            self._ours = ours
            self._arrange()

    def _look(self, now: Instant) -> None:
        del now
        self._lines.tell_suppressed()
        for partition in self._partitions.values():
            partition.repair()
        self._arrange()

    def _arrange(self) -> None:
        """Serve exactly the assigned partitions."""
        for number, partition in list(self._partitions.items()):
            if partition.fault is not None and self._fault is None:
                self._fault = partition.fault
                self._turns.stop()
            if partition.is_over or number not in self._ours:
                partition.close(GOODBYE_S if self._monitoring.is_stopping else 0.0)
                del self._partitions[number]
                self._lines.info("partition left", handler=self._handler.name, partition=number)
        if self._fault is not None or self._monitoring.is_stopping:
            return
        for number in sorted(self._ours - self._partitions.keys()):
            counts = self._counts[number]
            partition = Partition(
                self._handler, number, self._site, self._log, self._lines, counts, time_ns, crossed=self._crossed
            )
            self._partitions[number] = partition
            partition.start()

    def _begin_stop(self, now: Instant) -> None:
        del now
        self._monitoring.is_stopping = True
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
        """Return the lag, in requests, of the slowest partition of this process."""
        topic = publish_to(self._handler.name)
        try:
            first, end = self._log.ends(topic)
        except LogUnavailable:
            return None
        positions = [partition.ledger.positions.get(topic, 0) for partition in self._partitions.values()]
        return max((end - max(first, position) for position in positions), default=0)

    def _maybe_trouble(self) -> str | None:
        return next((partition.ledger.trouble for partition in self._partitions.values() if partition.ledger.trouble), None)

    def _families(self) -> Iterator[Family]:
        yield gauge("milepost_handler_partitions", "Partitions that this process serves.", len(self._partitions))
        yield gauge("milepost_handler_behind", "Requests that wait in the log.", self._maybe_behind() or 0)
        counts = self._sums().items()
        what = "Requests, by what became of them."
        yield labelled("milepost_handler_requests_total", Kind.COUNTER, what, "end", counts)


def _take_none(records: Sequence[Record]) -> None:
    """Ignore records: the topics of the group serve only to assign partitions."""
    del records


def _lose_none(gap: LogLost) -> None:
    del gap
