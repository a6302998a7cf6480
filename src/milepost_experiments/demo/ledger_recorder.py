"""The recorder: records the fleet's events in the ledger, and counts them for the progress line."""

import threading
from collections import deque
from collections.abc import Sequence
from math import nan
from typing import IO, Any, Final

from milepost.model.instants import Instant
from milepost_experiments.demo import fleet_protocol
from milepost_experiments.simulator.ledger import AlertKey, ClientPeriod, Fix, Move, Receipt, RunLedger, Sighting
from milepost_experiments.simulator.traffic import Cars

FAULTS_MAX: Final = 1_000


class LedgerRecorder:
    """Owner of the ledger; all methods must be called by one thread."""

    def __init__(self) -> None:
        self.ledger = RunLedger()
        self.reports = 0
        self.faults: deque[str] = deque(maxlen=FAULTS_MAX)
        self._lock = threading.Lock()
        self._pending: list[list[Any]] = []

    def listen(self, pipe: IO[bytes]) -> threading.Thread:
        """Read the fleet's events in a thread, which ends with the fleet."""

        def read() -> None:
            for line in pipe:
                events = fleet_protocol.value_of(line)
                with self._lock:
                    self._pending += events

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def record_pending(self) -> None:
        """Record the events read since the last call."""
        with self._lock:
            events, self._pending = self._pending, []
        for event in events:
            self._record(event[0], event[1:])

    def record_true_positions(self, cars: Cars, at: Instant) -> None:
        """Record the true positions of all vehicles."""
        columns = (cars.latitudes, cars.longitudes, cars.headings_deg, cars.speeds_mps)
        for name, *row in zip(cars.names, *(column.tolist() for column in columns), strict=True):
            self.ledger.true_positions[name].append(Fix(at, *row))

    def _record(self, kind: str, row: Sequence[Any]) -> None:
        ledger = self.ledger
        match kind:
            case fleet_protocol.JOINED:
                ledger.clients[row[0]] = ClientPeriod(row[2], row[1])
            case fleet_protocol.LEFT:
                if row[0] in ledger.clients:
                    ledger.clients[row[0]].left_at = row[1]
            case fleet_protocol.REPORTED:
                self.reports += 1
                ledger.reports[row[0]].append(Fix(*row[1:4], *(nan if one is None else one for one in row[4:])))
            case fleet_protocol.ALERTED:
                vehicle, at, incident, phase, seen_at, is_duplicate = row
                ledger.record_receipt(vehicle, AlertKey(incident, phase, seen_at), Receipt(at, is_duplicate))
            case fleet_protocol.NUMBERED:
                vehicle, at, number, is_duplicate = row
                ledger.received_numbers[vehicle][number].append(Receipt(at, is_duplicate))
            case fleet_protocol.PUBLISHED:
                ledger.published_numbers[row[0]] = row[1]
            case fleet_protocol.SIGHTED:
                ledger.sightings.append(Sighting(*row))
            case fleet_protocol.MOVED:
                ledger.moves.append(Move(*row))
            case fleet_protocol.FAULT:
                self.faults.append(f"{row[0]}: {row[1]}")
            case _:
                raise AssertionError(f"unknown event of the fleet: {kind!r}")
