"""`milepost centre run`: one process of the central hub, from its settings to its last append.

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
from milepost.runtime.logs import Log
from milepost.runtime.metrics import Family, Kind, Sample, counter, gauge, labelled
from milepost.runtime.monitoring import Monitoring
from milepost.runtime.site_logs import open_log


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
        yield gauge("milepost_centre_endpoints", "Endpoints in the registry.", len(hub.registry))
        yield gauge("milepost_centre_endpoints_moving", "Endpoints that several sites have.", len(hub.registry.split))
        yield _by_site("milepost_centre_owned", "1 for sites that this process acts for.", [(one, 1.0) for one in owned])
        lags = [(one, float(max(0, hub.seen_up_to(one) - hub.position(one)))) for one in owned]
        yield _by_site("milepost_centre_lag_records", "Records of cross-hub that are still to be dealt with.", lags)
        wishes = [(site, float(count)) for site, count in hub.interest.by_site.items()]
        yield _by_site("milepost_centre_wishes", "Different subscriptions that a site has.", wishes)
        yield gauge("milepost_centre_waiting_records", "Records that wait for a log.", outgoing.waiting)
        copied = [Sample(count, (("from", one), ("to", other))) for (one, other), count in sorted(counts.copied.items())]
        what = "Messages and letters copied from one site to another."
        yield Family("milepost_centre_copied_total", Kind.COUNTER, what, copied)
        yield counter("milepost_centre_repeated_total", "Records that were there already.", counts.repeated)
        yield counter("milepost_centre_refused_total", "Records that a log will never take.", outgoing.refused)
        yield counter("milepost_centre_moves_started_total", "Handovers between sites.", counts.moves_started)
        yield counter("milepost_centre_moves_finished_total", "Handovers between sites that were taken.", counts.moves_finished)
        yield counter("milepost_centre_extras_total", "Messages sent after an endpoint on the move.", counts.extras)
        yield counter("milepost_centre_claims_told_total", "Edges told that an endpoint is elsewhere.", counts.claims_told)
        yield counter("milepost_centre_answers_total", "Edges told where an endpoint was.", counts.questions_answered)
        dropped = [(why.name, float(count)) for why, count in counts.dropped.items()]
        yield labelled("milepost_centre_dropped_total", Kind.COUNTER, "What was not dealt with, by reason.", "reason", dropped)


def _by_site(name: str, what: str, values: list[tuple[str, float]]) -> Family:
    return labelled(name, Kind.GAUGE, what, "site", values)


TICK_S: Final = 0.1
BATCHES_MAX: Final = 4
"""Maximum batches of one reader that wait for the event loop."""
GATHER_S: Final = 0.002
"""Pause after an append: records read meanwhile go in one batch, at less cost."""
GOODBYE_S: Final = 2.0
"""Time for the appends under way when the hub stops."""


def run(settings: Settings) -> int:
    """Join the sites until the process is stopped; return the exit status."""
    if len(settings.centre.sites) < 2:
        raise UsageFault("[[centre.sites]] names fewer than two sites: there is nothing to join; see milepost.example.toml")
    log = Log(settings.log.level, settings.log.line_format)
    logs: dict[str, SiteLog] = {}
    turns = EventLoop()
    try:
        for site in settings.centre.sites:
            logs[site.log.name] = open_log(site.log, settings.storage.durability, settings.centre.name)
        HubService(settings, logs, turns, log).run()
    finally:
        for one in logs.values():
            one.close()
        turns.close()  # last: until the logs are closed, their threads may call into the loop
    return 0


class Readers:
    """Backpressure: blocks the reader threads of logs while too many of their batches are not handled."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._changed = threading.Condition()
        self._is_over = False

    def enter(self, name: str) -> None:
        """Wait until fewer than `BATCHES_MAX` batches of this reader wait, or the process ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._waiting[name] < BATCHES_MAX)
            self._waiting[name] += 1

    def leave(self, name: str) -> None:
        """Note that a batch is handled."""
        with self._changed:
            self._waiting[name] -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let all threads continue, so that they can end."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class HubService:
    """The parts of a process of the central hub, joined."""

    def __init__(self, settings: Settings, logs: dict[str, SiteLog], turns: EventLoop, log: Log) -> None:
        self._settings = settings
        self._log = log
        self._turns = turns
        self._readers = Readers()
        hub = CentralHub(settings.centre.name, logs)
        self._link = HubLink(hub, logs, self._turns.call_soon, pace=self._readers, tell=self._tell)
        metrics = HubMetrics(self._link)
        self._monitoring = Monitoring()
        self._monitoring.add_check("logs", metrics.check)
        self._monitoring.add_metrics(metrics.families)
        self._handed_over = 0
        self._stops_at: float | None = None

    def run(self) -> None:
        """Run the event loop until the process is stopped."""
        turns, name = self._turns, self._settings.centre.name
        http = self._monitoring.listen(turns, self._settings.http.address)
        try:
            self._link.begin()
        except LogUnavailable as fault:
            raise StartFault(f"the log of a site cannot be read: {fault}") from None
        turns.every(TICK_S, self._tick)
        turns.settle_with(self._gather)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: turns.call_soon(self._begin_stop))
        self._log.info("centre ready", name=name, sites=" ".join(self._link.hub.sites), http=http)
        turns.run()
        self._monitoring.close()
        self._log.info("centre stopped", name=name, endpoints=len(self._link.hub.registry))

    def _tick(self, now: Instant) -> None:
        self._link.tick(now)
        self._log.tell_suppressed()
        if self._stops_at is not None and (not self._link.outgoing.waiting or monotonic() > self._stops_at):
            self._readers.end()
            self._link.close()
            self._turns.stop()

    def _gather(self, now: Instant) -> bool:
        """Pause at the end of a tick with appends; it blocks only the logs, which have threads of their own."""
        del now
        if self._handed_over != self._link.outgoing.handed_over:
            self._handed_over = self._link.outgoing.handed_over
            sleep(GATHER_S)
        return False

    def _begin_stop(self, now: Instant) -> None:
        """Route nothing more, finish the appends, and then release the sites to other processes."""
        del now
        if self._stops_at is not None:
            return
        self._log.info("centre stops", owned=" ".join(sorted(self._link.hub.owned)))
        self._stops_at = monotonic() + GOODBYE_S
        self._monitoring.is_stopping = self._link.is_stopping = True

    def _tell(self, event: str, site: str, reason: str) -> None:
        self._log.seldom(event, site=site, reason=reason)
