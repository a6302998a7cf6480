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
from milepost.handlers.calls import RequestEnd
from milepost.handlers.handler import Handler
from milepost.handlers.partition import Partition
from milepost.handlers.topic_names import COMPACTED, dead_letter_topic, group_of, partition_topic
from milepost.listeners.event_loop import EventLoop
from milepost.model.instants import Instant
from milepost.model.site_records import CROSS_HUB, handler_topic
from milepost.runtime.metrics import Family, MetricType, gauge, labelled
from milepost.runtime.monitoring import Monitoring
from milepost.runtime.structured_log import StructuredLog

if TYPE_CHECKING:
    from milepost.eventlog.log import Member

POLL_S: Final = 1.0
"""Interval of the check that the process serves the partitions assigned to it."""
PROGRESS_S: Final = 10.0
SHUTDOWN_S: Final = 5.0
"""Time for calls to finish when the process stops."""

_COUNTED: Final = ("received", *(end.value for end in RequestEnd), "malformed", "duplicates", "unanswerable", "gaps")


class HandlerService:
    """One process of a handler."""

    def __init__(self, handler: Handler, site: str, log: Log, logger: StructuredLog) -> None:
        self._handler = handler
        self._site = site
        self._log = log
        self._logger = logger
        self._event_loop = EventLoop()
        self._topics = {partition_topic(handler.name, number): number for number in range(handler.partitions)}
        self._counts: dict[int, Counter[str]] = {number: Counter() for number in range(handler.partitions)}
        self._assigned: frozenset[int] = frozenset()
        self._partitions: dict[int, Partition] = {}
        self._logged: dict[str, int] = {}
        self._monitoring = Monitoring()
        self._monitoring.add_check("partitions", self._find_problem)
        self._monitoring.add_metrics(self._families)
        self._fault: str | None = None
        self._cross_hub_end = 0
        """End of cross-hub at the start: a new handler does not handle earlier requests of other sites."""

    def run(self, http: str = "") -> int:
        """Serve until a signal; return the exit status."""
        event_loop, name = self._event_loop, self._handler.name
        address = self._monitoring.listen(event_loop, http)
        try:
            self._cross_hub_end = self._log.ends(CROSS_HUB)[1]
            announce(self._log, self._site, self._handler)
            self._log.make(dead_letter_topic(name), COMPACTED)
            member = self._join()
        except (LogUnavailable, LogRefused) as fault:
            raise StartFault(f"the handler {name} cannot be registered in the log of site {self._site}: {fault}") from None
        event_loop.call_every(POLL_S, self._check)
        event_loop.call_every(PROGRESS_S, self._log_progress)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: event_loop.call_soon(self._begin_stop))
        filters = " ".join(route.filter for route in self._handler.routes)
        self._logger.info(
            "handler ready", name=name, site=self._site, partitions=self._handler.partitions, topics=filters, http=address
        )
        event_loop.run()
        self._assigned = frozenset()
        self._apply_assignment()
        member.close()
        self._monitoring.close()
        event_loop.close()
        self._log_progress(Instant(time_ns()))
        if self._fault is not None:
            raise StartFault(f"the handler {name} has stopped: {self._fault}")
        self._logger.info("handler stopped", name=name)
        return 0

    def _join(self) -> "Member":
        return self._log.join(group_of(self._handler.name), list(self._topics), _take_none, _lose_none, changed=self._on_changed)

    def _on_changed(self, topics: frozenset[str]) -> None:
        """Handle a changed assignment; called in a thread of the log."""
        assigned = frozenset(self._topics[topic] for topic in topics)
        self._event_loop.call_soon(partial(self._on_assigned, assigned))

    def _on_assigned(self, assigned: frozenset[int], now: Instant) -> None:
        del now
        if not self._monitoring.is_stopping:
            self._assigned = assigned
            self._apply_assignment()

    def _check(self, now: Instant) -> None:
        del now
        self._logger.log_suppressed()
        for partition in self._partitions.values():
            partition.repair()
        self._apply_assignment()

    def _apply_assignment(self) -> None:
        """Serve exactly the assigned partitions."""
        for number, partition in list(self._partitions.items()):
            if partition.fault is not None and self._fault is None:
                self._fault = partition.fault
                self._event_loop.stop()
            if partition.has_ended or number not in self._assigned:
                partition.close(SHUTDOWN_S if self._monitoring.is_stopping else 0.0)
                del self._partitions[number]
                self._logger.info("partition released", handler=self._handler.name, partition=number)
        if self._fault is not None or self._monitoring.is_stopping:
            return
        for number in sorted(self._assigned - self._partitions.keys()):
            counts = self._counts[number]
            partition = Partition(
                self._handler, number, self._site, self._log, self._logger, counts, time_ns, cross_hub_start=self._cross_hub_end
            )
            self._partitions[number] = partition
            partition.start()

    def _begin_stop(self, now: Instant) -> None:
        del now
        self._monitoring.is_stopping = True
        self._event_loop.stop()

    def _log_progress(self, now: Instant) -> None:
        del now
        counts = self._sums()
        if counts != self._logged:
            self._logged = counts
            counted = {name: count for name, count in counts.items() if count}
            self._logger.info("handler progress", name=self._handler.name, lag=self._find_lag(), **counted)

    def _sums(self) -> dict[str, int]:
        return {name: sum(counts[name] for counts in self._counts.values()) for name in _COUNTED}

    def _find_lag(self) -> int | None:
        """Return the lag, in requests, of the slowest partition of this process."""
        topic = handler_topic(self._handler.name)
        try:
            first, end = self._log.ends(topic)
        except LogUnavailable:
            return None
        positions = [partition.ledger.positions.get(topic, 0) for partition in self._partitions.values()]
        return max((end - max(first, position) for position in positions), default=0)

    def _find_problem(self) -> str | None:
        return next((partition.ledger.log_fault for partition in self._partitions.values() if partition.ledger.log_fault), None)

    def _families(self) -> Iterator[Family]:
        yield gauge("milepost_handler_partitions", "Partitions served by this process.", len(self._partitions))
        yield gauge("milepost_handler_lag_requests", "Requests that wait in the log.", self._find_lag() or 0)
        counts = self._sums().items()
        yield labelled("milepost_handler_requests_total", MetricType.COUNTER, "Requests, by outcome.", "outcome", counts)


def _take_none(records: Sequence[Record]) -> None:
    """Ignore records: the topics of the group serve only to assign partitions."""
    del records


def _lose_none(gap: LogLost) -> None:
    del gap
