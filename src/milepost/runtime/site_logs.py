"""The log of a site: opened by the settings, and subscriptions of processes that are not edges."""

from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from milepost.config.errors import StartFault, missing_extra
from milepost.config.site_settings import LogType, SiteLog
from milepost.eventlog.log import Entry, LogRefused, LogUnavailable, Record
from milepost.listeners.diagnostic_log import DiagnosticLog
from milepost.model.durability import Durability
from milepost.model.endpoints import endpoint_id
from milepost.model.queries import OnTopic
from milepost.model.site_records import SUBSCRIPTION_INFO, EdgeRef, Interest, interest_key, service_sender
from milepost.model.subscriptions import Subscription
from milepost.wire.records import to_record

if TYPE_CHECKING:
    from milepost.eventlog.log import Log


class RefusedRecords:
    """The records of a site's log without a valid code of its key: counted, and logged at a limited rate; thread-safe."""

    def __init__(self, logger: DiagnosticLog | None = None) -> None:
        self._logger = logger
        self._lock = Lock()
        self.count = 0

    def __call__(self, record: Record, why: str) -> None:
        """Count and log a record."""
        with self._lock:
            self.count += 1
            if self._logger is not None:
                self._logger.info_limited(
                    "record of the log refused", topic=record.topic, offset=record.offset, key=record.key, reason=why
                )


def open_log(site: SiteLog, durability: Durability, client_id: str, refused: RefusedRecords | None = None) -> "Log":
    """Open the log of a site, authenticated if it has a key; raise a `StartFault` that says what to do.

    Every process that reads or writes a site's log gets it here, except for Spark's tasks (`pipelines.sources`).
    """
    key = read_key_of(site)
    log = _open_plain_log(site, durability, client_id)
    if not key:
        return log
    from milepost.eventlog.authenticated import AuthenticatedLog  # noqa: PLC0415

    return AuthenticatedLog(log, key, refused)


def read_key_of(site: SiteLog) -> bytes:
    """Read the key of a site's log; empty if it has none."""
    if not site.key:
        return b""
    from milepost.runtime.trust_files import read_site_key  # noqa: PLC0415  # imports OpenSSL

    return read_site_key(Path(site.key))


def _open_plain_log(site: SiteLog, durability: Durability, client_id: str) -> "Log":
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
