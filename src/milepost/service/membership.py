"""The membership of an edge in a site: its member, the log, the thread between them, and what is told of it all."""

from collections.abc import Iterator

from milepost.backbone.log import LogUnavailable
from milepost.doors.log import Log as Told
from milepost.doors.turns import Turns
from milepost.edge.corridor import Corridor
from milepost.edge.keeping import Kept
from milepost.edge.site.member import SiteMember
from milepost.model.instants import Instant
from milepost.model.sites import CROSS_HUB, EdgeRef
from milepost.service.faults import StartFault
from milepost.service.metrics import Family, Kind, counter, gauge, labelled
from milepost.service.settings import Settings
from milepost.service.site import SiteLink
from milepost.service.site_logs import open_log


class Membership:
    """An edge's part in its site, from its settings to its end."""

    def __init__(self, settings: Settings, corridor: Corridor, turns: Turns, told: Told) -> None:
        site, survives, name = settings.site, settings.keep.survives, settings.edge.name
        self._turns = turns
        self._member = SiteMember(corridor, EdgeRef(site.log.name, name), site.limits, address=site.advertise)
        self._log = open_log(site.log, survives, name)
        neighbours = {one.log.name: open_log(one.log, survives, name) for one in site.neighbours}
        self._link = SiteLink(self._member, self._log, turns.call_soon, told, neighbours, be_back=turns.be_back_within)

    def restore(self, kept: Kept, now: Instant) -> None:
        """Make the edge what it was."""
        self._member.restore(kept, now)

    def start(self) -> None:
        """Read the log from now on, and append to it after each turn: to be called after what keeps the turn."""
        try:
            self._link.start()
        except LogUnavailable as fault:
            raise StartFault(f"the log of the site cannot be read: {fault}") from None
        self._turns.settle_with(self._link.flush)

    def tick(self, now: Instant) -> None:
        """Do what is due."""
        self._member.tick(now)

    def close(self) -> None:
        """Finish what was appended, and read no more."""
        self._link.close()

    def families(self) -> Iterator[Family]:
        """Figures of the site."""
        state, roaming = self._member.state, self._member.roaming
        yield gauge("milepost_site_lag_records", "Records of cross-hub that are there and not read; -1: not known.", self._lag())
        yield gauge("milepost_site_spool_messages", "Records that wait for the log.", state.outbox.waiting)
        yield gauge("milepost_site_spool_bytes", "Bytes of records that wait for the log.", state.outbox.waiting_bytes)
        yield counter("milepost_site_appended_total", "Records that the log has taken.", state.outbox.appended)
        yield gauge("milepost_site_edges", "Other edges that are known, of all sites.", len(state.edges))
        yield gauge("milepost_site_register", "Endpoints of the site whose edge is known.", len(state.register))
        known = len(self._member.scores.known)
        yield gauge("milepost_site_reputations", "Endpoints that are believed less than others.", known)
        yield gauge("milepost_site_interest", "Subscriptions elsewhere that are known.", len(state.interest))
        yield gauge("milepost_site_young", "Endpoints that have come and are served from the log.", len(roaming.youth))
        yield gauge("milepost_site_leaving", "Endpoints that left and are not taken yet.", len(roaming.departures.leaving))
        events = sorted(state.counts.items())
        what = "What happened between this edge and its site, by kind."
        yield labelled("milepost_site_events_total", Kind.COUNTER, what, "event", events)

    def _lag(self) -> int:
        try:
            return max(0, self._log.ends(CROSS_HUB)[1] - self._member.state.offsets.get(CROSS_HUB, 0))
        except LogUnavailable:
            return -1
