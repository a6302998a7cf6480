"""The incident engine on a log that fails late: no alert is missing, and none has two numbers (M24)."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from milepost.config.settings import read_settings
from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.log import Done, Entry, LogUnavailable, read_to_end
from milepost.incidents.engine import CELLS, STATE
from milepost.model.durability import Durability
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.runtime.incidents import IncidentService
from milepost.runtime.structured_log import StructuredLog
from milepost.wire.incidents import cell_key, cell_to_json
from milepost.wire.records import from_record
from unit.incidents.events import HOME, Event, cells_of

KIND = EventKind("Collision", "Collision", "reports >= 1", "Alert/Collision", interval_s=1.0, slots=3)
SETTINGS = """
[site]
name = "north"
folder = "{folder}"
[incidents]
allowed_lateness_s = 0.2
[[incidents.kinds]]
name = "Collision"
topic = "Collision"
alert = "Alert/Collision"
predicate = "reports >= 1"
interval_s = 1.0
slots = 3
clear_after_s = 2.0
"""
WAIT_S = 30.0


class LateFailingLog(EmbeddedLog):
    """A log that reports the failure of the first appends of alerts after it has accepted them."""

    def __init__(self, folder: Path, failures: int) -> None:
        super().__init__(folder, Durability.PROCESS_CRASH)
        self.failures = failures
        self.states_before_alerts = 0

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        is_alert = any(entry.topic == CROSS_HUB for entry in entries)
        if is_alert and self.failures:
            self.failures -= 1
            assert done is not None
            done(LogUnavailable("the producer was purged"))
            return
        if self.failures:
            self.states_before_alerts += sum(entry.topic == STATE for entry in entries)
        super().append(entries, done)


def alerts_in(log: EmbeddedLog) -> list[ForwardedMessage]:
    values = [from_record(record.value or b"") for records in read_to_end(log, CROSS_HUB) for record in records]
    return [value for value in values if isinstance(value, ForwardedMessage)]


def stop_after_alerts(log: EmbeddedLog, phases: frozenset[str]) -> None:
    give_up_at = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_at and not {alert.message.fields["phase"] for alert in alerts_in(log)} >= phases:
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)


def test_alerts_whose_append_failed_late_are_published_after_a_restart_from_the_last_state(tmp_path: Path) -> None:
    path = tmp_path / "milepost.toml"
    path.write_text(SETTINGS.format(folder=tmp_path / "log"))
    log = LateFailingLog(tmp_path / "log", failures=2)
    found = [Event(f"car-{number}", HOME, Instant(time.time_ns())) for number in range(5)]
    log.append([Entry(CELLS, cell_key(cell), cell_to_json(cell)) for cell in cells_of(KIND, found)])
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    stopping = threading.Thread(target=stop_after_alerts, args=(log, frozenset(("cleared",))))
    stopping.start()
    try:
        IncidentService(read_settings(path), log, StructuredLog()).run()
    finally:
        stopping.join()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    alerts = alerts_in(log)
    log.close()
    assert not log.failures
    assert log.states_before_alerts == 0, "a state before would record alerts as published that are not"
    first, last = (alert.message.fields["phase"] for alert in alerts)
    assert first in ("early", "raised"), "early, if the restart comes before the slot has ended"
    assert last == "cleared"
