"""A look at sites from outside: what their logs say now of who is where, which edges there are, and who acts for them."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from milepost.backbone.log import BATCH_RECORDS_MAX, Log, LogLost, LogUnavailable, Record
from milepost.hub.actions import Incoming
from milepost.hub.centre import Centre
from milepost.model.instants import Instant
from milepost.model.sites import CROSS_HUB, EdgeRef
from milepost.service.centre import GROUP, STATE
from milepost.service.faults import StartFault, UsageFault
from milepost.service.settings import Settings
from milepost.service.site_logs import open_log
from milepost.service.site_settings import Backbone, SiteLog


@dataclass(frozen=True, slots=True)
class View:
    """The logs of sites, and the state that stands in them, read as a process of the centre reads it."""

    logs: Mapping[str, Log]
    centre: Centre

    def lag(self, site: str) -> int | None:
        """How many records of the site's cross-hub no centre has dealt with; nothing if none ever did."""
        position = self.logs[site].committed(GROUP).get(CROSS_HUB)
        return None if position is None else max(0, self.logs[site].ends(CROSS_HUB)[1] - position)

    def endpoints_by_edge(self) -> Counter[EdgeRef]:
        """How many endpoints are at each edge."""
        latest = (self.centre.register.latest(endpoint) for endpoint in self.centre.register)
        return Counter(claim.edge for claim in latest if claim is not None)


@contextmanager
def viewed(settings: Settings, now: Instant) -> Iterator[View]:
    """What stands in the logs of the sites that the settings name."""
    with opened(settings) as logs:
        centre = Centre("viewer", logs)
        for site, log in logs.items():
            for topic in STATE:
                for records in pages(log, topic):
                    centre.on_records(site, topic, [Incoming(*record[1:]) for record in records], now)
        yield View(logs, centre)


@contextmanager
def opened(settings: Settings) -> Iterator[dict[str, Log]]:
    """The logs of the sites that the settings name: those of the centre, or the one of an edge."""
    sites = [site.log for site in settings.centre.sites]
    if settings.site.log.name and settings.site.log.name not in [site.name for site in sites]:
        sites.append(settings.site.log)
    if not sites:
        raise UsageFault("the file names no site: it needs [[centre.sites]], or [site] with a name")
    logs: dict[str, Log] = {}
    try:
        for site in sites:
            _check_there(site)
            logs[site.name] = open_log(site, settings.keep.survives, "viewer")
        yield logs
    except LogUnavailable as fault:
        raise StartFault(f"the log of a site cannot be read: {fault}") from None
    finally:
        for log in logs.values():
            log.close()


def pages(log: Log, topic: str) -> Iterator[list[Record]]:
    """All that stands in a topic now, page by page."""
    position, end = log.ends(topic)
    while position < end:
        try:
            records = log.read(topic, position, BATCH_RECORDS_MAX)
        except LogLost:  # cleaned in between
            position = max(log.ends(topic)[0], position + 1)
            continue
        if not records:
            return
        yield records
        position = records[-1].offset + 1


def _check_there(site: SiteLog) -> None:
    """To look at something makes nothing."""
    if site.backbone is Backbone.EMBEDDED and not Path(site.folder).is_dir():
        raise StartFault(f"{site.folder} is not there: no process of site {site.name} has run with it; correct `folder`")
