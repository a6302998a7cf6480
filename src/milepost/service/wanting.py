"""Messages that a site's edges bring to its log, for whoever reads it there."""

from collections.abc import Iterable

from milepost.backbone.log import Entry, Log
from milepost.model.endpoints import EndpointId
from milepost.model.queries import OnTopic
from milepost.model.sites import SUBSCRIPTION_INFO, EdgeRef, Wanted, wanted_key
from milepost.model.subscriptions import Subscription
from milepost.model.telling import PIPELINES
from milepost.wire.records import to_record


def have_brought(log: Log, site: str, filters: Iterable[str]) -> None:
    """Have edges bring what passes topic filters: the same records whoever asks, so that several together ask once."""
    me, owner = EdgeRef(site, f"@{PIPELINES}"), EndpointId(f"@{PIPELINES}")
    wanted = {one: Wanted(me, Subscription(owner, OnTopic(one))) for one in filters}
    log.append([Entry(SUBSCRIPTION_INFO, wanted_key(me, owner, one), to_record(what)) for one, what in wanted.items()])
