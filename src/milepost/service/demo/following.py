"""What the system said, read from the log of its site: alerts for the books, and whether cells are made at all."""

import threading
from collections.abc import Sequence
from functools import partial

from milepost.backbone.log import Edge, Following, Log, LogLost, Record, Start
from milepost.hub.incidents.desk import CELLS
from milepost.model.addresses import ToArea, ToTold
from milepost.model.reasons import Malformed
from milepost.model.sites import Said, publish_to
from milepost.model.telling import PIPELINES
from milepost.simulator.books import AlertKey, AlertSaid
from milepost.wire.records import from_record

SAID = publish_to(PIPELINES)


class Listener:
    """Follows a site's log; called from the log's threads, asked from ours."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._lock = threading.Lock()
        self._alerts: list[AlertSaid] = []
        self._has_cells: set[int] = set()
        self.lost: list[str] = []
        starts: dict[str, Start] = {SAID: Edge.BEGINNING, CELLS: Edge.BEGINNING}
        self._followings: list[Following] = [
            log.follow(starts, partial(self._take, at), self._on_lost) for at, log in enumerate(logs)
        ]

    @property
    def sites_with_cells(self) -> int:
        """In how many sites Spark has made cells."""
        return len(self._has_cells)

    def take_alerts(self) -> list[AlertSaid]:
        """Those that came since it was asked last."""
        with self._lock:
            found, self._alerts = self._alerts, []
        return found

    def close(self) -> None:
        """Listen no longer."""
        for following in self._followings:
            following.close()

    def _take(self, site: int, records: Sequence[Record]) -> None:
        for record in records:
            if record.topic == CELLS:
                self._has_cells.add(site)
            elif (alert := _maybe_alert(record)) is not None:
                with self._lock:
                    self._alerts.append(alert)

    def _on_lost(self, lost: LogLost) -> None:
        self.lost.append(str(lost))


def _maybe_alert(record: Record) -> AlertSaid | None:
    try:
        said = from_record(record.value or b"")
    except Malformed:
        return None
    if not isinstance(said, Said):
        return None
    message, address = said.message, said.message.address
    incident, phase = message.fields.get("incident"), message.fields.get("phase")
    if not isinstance(address, ToArea | ToTold) or message.place is None or incident is None:
        return None
    key = AlertKey(str(incident), str(phase), message.seen_at)
    area, calls_off = (address.area, ()) if isinstance(address, ToArea) else (None, address.incidents)
    return AlertSaid(key, record.appended_at, message.valid_until, message.place, area, calls_off)
