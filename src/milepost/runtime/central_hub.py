"""`milepost hub run`: one process of the central hub, from its settings to its last append.

settings ─▶ logs of all sites ─▶ state read ─▶ share of the sites ─▶ ticks … SIGTERM ─▶ sites released ─▶ logs closed
"""

import signal
import threading
from collections import defaultdict
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Final

from milepost.config.errors import StartFault, UsageFault
from milepost.config.settings import Settings
from milepost.eventlog.log import Log as SiteLog
from milepost.eventlog.log import LogUnavailable
from milepost.federation.central_hub import CentralHub
from milepost.listeners.event_loop import EventLoop
from milepost.model.instants import Instant
from milepost.runtime.hub_logs import HubLink
from milepost.runtime.metrics import Family, MetricType, Sample, counter, gauge, labelled
from milepost.runtime.monitoring import Monitoring
from milepost.runtime.site_logs import RefusedRecords, open_log
from milepost.runtime.structured_log import StructuredLog


class HubMetrics:
    """Reads the counters of the hub and of its logs."""

    def __init__(self, link: HubLink) -> None:
        self._link = link

    def check(self) -> str | None:
        """Return why the hub cannot own sites yet, or None."""
        return None if self._link.is_ready else "reading the logs of the sites"

    def families(self) -> Iterator[Family]:
        """Return the metrics of the hub."""
        hub, outgoing = self._link.hub, self._link.outgoing
        counts, owned = hub.counts, sorted(hub.owned)
        yield gauge("milepost_hub_endpoints", "Endpoints in the registry.", len(hub.registry))
        yield gauge(
            "milepost_hub_endpoints_moving", "Endpoints that are registered at more than one site.", len(hub.registry.split)
        )
        yield _by_site("milepost_hub_owned", "1 for sites that this process serves.", [(one, 1.0) for one in owned])
        lags = [(one, float(max(0, hub.watched_up_to(one) - hub.position(one)))) for one in owned]
        yield _by_site("milepost_hub_lag_records", "Records of cross-hub that are not processed yet.", lags)
        subscriptions = [(site, float(count)) for site, count in hub.interest.by_site.items()]
        yield _by_site("milepost_hub_subscriptions", "Different subscriptions of a site.", subscriptions)
        yield gauge("milepost_hub_pending_records", "Records that wait to be appended to a log.", outgoing.waiting)
        copied = [Sample(count, (("from", one), ("to", other))) for (one, other), count in sorted(counts.copied.items())]
        what = "Messages and handover records forwarded between sites."
        yield Family("milepost_hub_forwarded_total", MetricType.COUNTER, what, copied)
        yield counter(
            "milepost_hub_duplicates_total", "Records that were not forwarded because the site had them.", counts.repeated
        )
        yield counter("milepost_hub_refused_total", "Records that a log refused for good.", outgoing.refused)
        yield counter("milepost_hub_handovers_started_total", "Handovers between sites that started.", counts.moves_started)
        yield counter("milepost_hub_handovers_finished_total", "Handovers between sites that completed.", counts.moves_finished)
        yield counter("milepost_hub_missed_messages_total", "Messages forwarded to endpoints that moved.", counts.missed_messages)
        yield counter(
            "milepost_hub_claim_notices_total", "Notices to edges that an endpoint is at another site.", counts.claim_notices
        )
        yield counter(
            "milepost_hub_prior_edge_answers_total",
            "Answers to edges about the prior edge of an endpoint.",
            counts.questions_answered,
        )
        dropped = [(why.name, float(count)) for why, count in counts.dropped.items()]
        yield labelled("milepost_hub_dropped_total", MetricType.COUNTER, "Records dropped, by reason.", "reason", dropped)


def _by_site(name: str, what: str, values: list[tuple[str, float]]) -> Family:
    return labelled(name, MetricType.GAUGE, what, "site", values)


TICK_S: Final = 0.1
BATCHES_MAX: Final = 4
"""Maximum batches of one reader that wait for the event loop."""
BATCH_WAIT_S: Final = 0.002
"""Pause after an append: records read meanwhile go in one batch, at less cost."""
SHUTDOWN_S: Final = 2.0
"""Time for the appends under way when the hub stops."""


def run(settings: Settings) -> int:
    """Join the sites until the process is stopped; return the exit status."""
    if len(settings.hub.sites) < 2:
        raise UsageFault("[[hub.sites]] names fewer than two sites: there is nothing to connect; see milepost.example.toml")
    log = StructuredLog(settings.log.level, settings.log.line_format)
    logs: dict[str, SiteLog] = {}
    event_loop = EventLoop()
    try:
        for site in settings.hub.sites:
            logs[site.log.name] = open_log(site.log, settings.storage.durability, settings.hub.name, RefusedRecords(log))
        HubService(settings, logs, event_loop, log).run()
    finally:
        for one in logs.values():
            one.close()
        event_loop.close()  # last: until the logs are closed, their threads may call into the loop
    return 0


class ReaderBackpressure:
    """Backpressure: blocks the reader threads of logs while too many of their batches are not handled."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._changed = threading.Condition()
        self._has_ended = False

    def enter(self, name: str) -> None:
        """Wait until fewer than `BATCHES_MAX` batches of this reader wait, or the process ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or self._waiting[name] < BATCHES_MAX)
            self._waiting[name] += 1

    def leave(self, name: str) -> None:
        """Note that a batch is handled."""
        with self._changed:
            self._waiting[name] -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let all threads continue, so that they can end."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()


class HubService:
    """The parts of a process of the central hub, joined."""

    def __init__(self, settings: Settings, logs: dict[str, SiteLog], event_loop: EventLoop, log: StructuredLog) -> None:
        self._settings = settings
        self._log = log
        self._event_loop = event_loop
        self._readers = ReaderBackpressure()
        hub = CentralHub(settings.hub.name, logs)
        self._link = HubLink(hub, logs, self._event_loop.call_soon, backpressure=self._readers, on_event=self._log_event)
        metrics = HubMetrics(self._link)
        self._monitoring = Monitoring()
        self._monitoring.add_check("logs", metrics.check)
        self._monitoring.add_metrics(metrics.families)
        self._handed_over = 0
        self._stops_at: float | None = None

    def run(self) -> None:
        """Run the event loop until the process is stopped."""
        event_loop, name = self._event_loop, self._settings.hub.name
        http = self._monitoring.listen(event_loop, self._settings.http.address)
        try:
            self._link.begin()
        except LogUnavailable as fault:
            raise StartFault(f"the log of a site cannot be read: {fault}") from None
        event_loop.call_every(TICK_S, self._tick)
        event_loop.at_end_of_tick(self._wait_for_more)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: event_loop.call_soon(self._begin_stop))
        self._log.info("hub ready", name=name, sites=" ".join(self._link.hub.sites), http=http)
        event_loop.run()
        self._monitoring.close()
        self._log.info("hub stopped", name=name, endpoints=len(self._link.hub.registry))

    def _tick(self, now: Instant) -> None:
        self._link.tick(now)
        self._log.log_suppressed()
        if self._stops_at is not None and (not self._link.outgoing.waiting or monotonic() > self._stops_at):
            self._readers.end()
            self._link.close()
            self._event_loop.stop()

    def _wait_for_more(self, now: Instant) -> bool:
        """Pause at the end of a tick with appends; it blocks only the logs, which have threads of their own."""
        del now
        if self._handed_over != self._link.outgoing.handed_over:
            self._handed_over = self._link.outgoing.handed_over
            sleep(BATCH_WAIT_S)
        return False

    def _begin_stop(self, now: Instant) -> None:
        """Route nothing more, finish the appends, and then release the sites to other processes."""
        del now
        if self._stops_at is not None:
            return
        self._log.info("hub stops", owned=" ".join(sorted(self._link.hub.owned)))
        self._stops_at = monotonic() + SHUTDOWN_S
        self._monitoring.is_stopping = self._link.is_stopping = True

    def _log_event(self, event: str, site: str, reason: str) -> None:
        self._log.info_limited(event, site=site, reason=reason)
