"""A read-only view of sites: endpoints, edges and central hubs, from their logs."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from milepost.config.errors import StartFault, UsageFault
from milepost.config.settings import Settings
from milepost.config.site_settings import LogType, SiteLog
from milepost.eventlog.log import Log, LogUnavailable, read_to_end
from milepost.federation.central_hub import CentralHub
from milepost.model.instants import Instant
from milepost.model.site_records import CROSS_HUB, EdgeRef, LoggedRecord
from milepost.runtime.hub_logs import GROUP, STATE
from milepost.runtime.site_logs import RefusedRecords, open_log


@dataclass(frozen=True, slots=True)
class SitesView:
    """The logs of sites, and their state as a process of the central hub reads it."""

    logs: Mapping[str, Log]
    hub: CentralHub

    def lag(self, site: str) -> int | None:
        """Return the number of records of the site's cross-hub that no hub has handled; None if no hub ever ran."""
        position = self.logs[site].committed(GROUP).get(CROSS_HUB)
        return None if position is None else max(0, self.logs[site].ends(CROSS_HUB)[1] - position)

    def endpoints_by_edge(self) -> Counter[EdgeRef]:
        """Return the number of endpoints at each edge."""
        winners = (self.hub.registry.winner(endpoint) for endpoint in self.hub.registry)
        return Counter(claim.edge for claim in winners if claim is not None)


@contextmanager
def view_sites(settings: Settings, now: Instant) -> Iterator[SitesView]:
    """Read the logs of the sites that the settings name."""
    with open_site_logs(settings) as logs:
        hub = CentralHub("viewer", logs)
        for site, log in logs.items():
            for topic in STATE:
                for records in read_to_end(log, topic):
                    hub.on_records(site, topic, [LoggedRecord(*record[1:]) for record in records], now)
        yield SitesView(logs, hub)


@contextmanager
def open_site_logs(settings: Settings, refused: RefusedRecords | None = None) -> Iterator[dict[str, Log]]:
    """Open the logs of the sites that the settings name: those of the central hub, or the one of an edge."""
    sites = [site.log for site in settings.hub.sites]
    if settings.site.log.name and settings.site.log.name not in [site.name for site in sites]:
        sites.append(settings.site.log)
    if not sites:
        raise UsageFault("the settings name no site: add [[hub.sites]], or a name to [site]")
    logs: dict[str, Log] = {}
    try:
        for site in sites:
            _check_there(site)
            logs[site.name] = open_log(site, settings.storage.durability, "viewer", refused)
        yield logs
    except LogUnavailable as fault:
        raise StartFault(f"the log of a site cannot be read: {fault}") from None
    finally:
        for log in logs.values():
            log.close()


def _check_there(site: SiteLog) -> None:
    """Refuse a folder that does not exist: a view creates nothing."""
    if site.log_type is LogType.EMBEDDED and not Path(site.folder).is_dir():
        raise StartFault(f"{site.folder} does not exist: no process of site {site.name} has created it; correct `folder`")
