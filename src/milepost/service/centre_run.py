"""`milepost centre run`: one process of the centre, from its settings to its last append.

settings ─▶ logs of all sites ─▶ state read ─▶ share of the sites ─▶ turns … SIGTERM ─▶ sites let go ─▶ logs closed
"""

import signal
import threading
from collections import defaultdict
from time import monotonic, sleep
from typing import Final

from milepost.backbone.log import Log as SiteLog
from milepost.backbone.log import LogUnavailable
from milepost.doors.asking import HttpEntrance
from milepost.doors.listening import Listener, listen_at
from milepost.doors.turns import Turns
from milepost.hub.centre import Centre
from milepost.model.instants import Instant
from milepost.service.addresses import host_and_port
from milepost.service.centre import CentreLink
from milepost.service.centre_figures import CentreFigures
from milepost.service.faults import StartFault, UsageFault, cannot_listen
from milepost.service.logs import Log
from milepost.service.settings import Settings
from milepost.service.site_logs import open_log

TICK_S: Final = 0.1
BATCHES_MAX: Final = 4
"""So many batches of one reader wait to be dealt with."""
GATHER_S: Final = 0.002
"""So long after something was appended the next turn waits: what is read meanwhile goes together, at less cost."""
GOODBYE_S: Final = 2.0
"""So long what is on its way to the logs may take when the centre stops."""


def run(settings: Settings) -> int:
    """Join the sites until told to stop; gives the exit status."""
    if len(settings.centre.sites) < 2:
        raise UsageFault("[[centre.sites]] names fewer than two sites: there is nothing to join; see milepost.example.toml")
    log = Log(settings.log.level, settings.log.line_format)
    logs: dict[str, SiteLog] = {}
    turns = Turns()
    try:
        for site in settings.centre.sites:
            logs[site.log.name] = open_log(site.log, settings.keep.survives, settings.centre.name)
        CentreService(settings, logs, turns, log).run()
    finally:
        for one in logs.values():
            one.close()
        turns.close()  # not before: until then threads of the logs may hand something over
    return 0


class Readers:
    """Lets the threads of logs wait while so many batches of theirs are not dealt with."""

    def __init__(self) -> None:
        self._waiting: defaultdict[str, int] = defaultdict(int)
        self._changed = threading.Condition()
        self._is_over = False

    def enter(self, name: str) -> None:
        """Wait until fewer are waiting, or all is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._waiting[name] < BATCHES_MAX)
            self._waiting[name] += 1

    def leave(self, name: str) -> None:
        """One is dealt with."""
        with self._changed:
            self._waiting[name] -= 1
            self._changed.notify_all()

    def end(self) -> None:
        """Let all go on, so that they can end."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class CentreService:
    """The parts of a process of the centre, joined."""

    def __init__(self, settings: Settings, logs: dict[str, SiteLog], turns: Turns, log: Log) -> None:
        self._settings = settings
        self._log = log
        self._turns = turns
        self._readers = Readers()
        centre = Centre(settings.centre.name, logs)
        self._link = CentreLink(centre, logs, self._turns.call_soon, pace=self._readers, tell=self._tell)
        self._figures = CentreFigures(self._link)
        self._handed_over = 0
        self._stops_at: float | None = None

    def run(self) -> None:
        """Take turns until told to stop."""
        turns, name = self._turns, self._settings.centre.name
        http = self._listen_for_questions()
        try:
            self._link.begin()
        except LogUnavailable as fault:
            raise StartFault(f"the log of a site cannot be read: {fault}") from None
        turns.every(TICK_S, self._tick)
        turns.settle_with(self._gather)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: turns.call_soon(self._begin_stop))
        self._log.info("centre ready", name=name, sites=" ".join(self._link.centre.sites), http=http)
        turns.run()
        self._log.info("centre stopped", name=name, endpoints=len(self._link.centre.register))

    def _listen_for_questions(self) -> str | None:
        address = self._settings.http.address
        if not address:
            return None
        asking = HttpEntrance(self._turns, self._figures.answer)
        self._turns.every(1.0, asking.tick)
        try:
            return Listener(self._turns, listen_at(*host_and_port(address)), asking.take).address
        except OSError as error:
            raise cannot_listen(address, error) from None

    def _tick(self, now: Instant) -> None:
        self._link.tick(now)
        self._log.tell_suppressed()
        if self._stops_at is not None and (not self._link.outgoing.waiting or monotonic() > self._stops_at):
            self._readers.end()
            self._link.close()
            self._turns.stop()

    def _gather(self, now: Instant) -> bool:
        """At the end of a turn; nobody but logs waits for this process, and they have threads of their own."""
        del now
        if self._handed_over != self._link.outgoing.handed_over:
            self._handed_over = self._link.outgoing.handed_over
            sleep(GATHER_S)
        return False

    def _begin_stop(self, now: Instant) -> None:
        """Take nothing new, finish what was begun, and then let others have the sites."""
        del now
        if self._stops_at is not None:
            return
        self._log.info("centre stops", owned=" ".join(sorted(self._link.centre.owned)))
        self._stops_at = monotonic() + GOODBYE_S
        self._figures.is_stopping = self._link.is_stopping = True

    def _tell(self, event: str, site: str, reason: str) -> None:
        self._log.seldom(event, site=site, reason=reason)
