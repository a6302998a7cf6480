"""The log of a site: opened by the settings, and subscriptions of processes that are not edges."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.config.errors import StartFault, missing_extra
from milepost.config.site_settings import LogType, SiteLog
from milepost.eventlog.log import Entry, LogRefused, LogUnavailable
from milepost.model.durability import Durability
from milepost.model.endpoints import endpoint_id
from milepost.model.queries import OnTopic
from milepost.model.site_records import SUBSCRIPTION_INFO, EdgeRef, Interest, interest_key, service_sender
from milepost.model.subscriptions import Subscription
from milepost.wire.records import to_record

if TYPE_CHECKING:
    from milepost.eventlog.log import Log


def open_log(site: SiteLog, durability: Durability, client_id: str) -> "Log":
    """Open the log of a site; raise a `StartFault` that says what to do."""
    try:
        if site.log_type is LogType.EMBEDDED:
            from milepost.eventlog.embedded import EmbeddedLog  # noqa: PLC0415  # loads only the log in use

            return EmbeddedLog(Path(site.folder), durability)
        from milepost.eventlog.kafka import KafkaLog  # noqa: PLC0415  # an optional dependency

        options = dict(one.split("=", 1) for one in site.options)
        return KafkaLog(site.address, durability, prefix=site.prefix, client_id=client_id, options=options)
    except (LogUnavailable, LogRefused) as fault:
        raise StartFault(f"the log of site {site.name} cannot be opened: {fault}") from None
    except ModuleNotFoundError:
        raise missing_extra(f'log = "kafka" of site {site.name}', "kafka") from None


def request_messages(log: "Log", site: str, process: str, filters: Iterable[str]) -> None:
    """Subscribe a process to topic filters: edges of the site then append matching messages to the log.

    The records depend on the name only, so that several processes of one name subscribe once.
    """
    me, owner = EdgeRef(site, service_sender(process)), endpoint_id(process)
    interests = {one: Interest(me, Subscription(owner, OnTopic(one))) for one in filters}
    log.append(
        [Entry(SUBSCRIPTION_INFO, interest_key(me, me.edge, one), to_record(interest)) for one, interest in interests.items()]
    )
