"""The bookkeeper: enters the fleet's events into the books, and counts for the progress line."""

import threading
from collections import deque
from collections.abc import Sequence
from math import nan
from typing import IO, Any, Final

from milepost.model.instants import Instant
from milepost_experiments.demo import fleet_protocol
from milepost_experiments.simulator.ledger import AlertKey, Books, Fix, Heard, Move, Sighting, Stay
from milepost_experiments.simulator.traffic import Cars

FAULTS_MAX: Final = 1_000


class Bookkeeper:
    """Owner of the books; all methods are for one thread."""

    def __init__(self) -> None:
        self.books = Books()
        self.reports = 0
        self.faults: deque[str] = deque(maxlen=FAULTS_MAX)
        self._lock = threading.Lock()
        self._waiting: list[list[Any]] = []

    def listen(self, pipe: IO[bytes]) -> threading.Thread:
        """Read the fleet's events in a thread, which ends with the fleet."""

        def read() -> None:
            for line in pipe:
                events = fleet_protocol.value_of(line)
                with self._lock:
                    self._waiting += events

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def catch_up(self) -> None:
        """Enter the events read since the last call."""
        with self._lock:
            events, self._waiting = self._waiting, []
        for event in events:
            self._enter(event[0], event[1:])

    def note_truth(self, cars: Cars, at: Instant) -> None:
        """Record the true positions of all vehicles."""
        columns = (cars.latitudes, cars.longitudes, cars.headings_deg, cars.speeds_mps)
        for name, *row in zip(cars.names, *(column.tolist() for column in columns), strict=True):
            self.books.truths[name].append(Fix(at, *row))

    def _enter(self, kind: str, row: Sequence[Any]) -> None:
        books = self.books
        match kind:
            case fleet_protocol.JOINED:
                books.stays[row[0]] = Stay(row[2], row[1])
            case fleet_protocol.LEFT:
                if row[0] in books.stays:
                    books.stays[row[0]].left_at = row[1]
            case fleet_protocol.REPORTED:
                self.reports += 1
                books.reports[row[0]].append(Fix(*row[1:4], *(nan if one is None else one for one in row[4:])))
            case fleet_protocol.ALERTED:
                vehicle, at, incident, phase, seen_at, is_again = row
                books.hear_alert(vehicle, AlertKey(incident, phase, seen_at), Heard(at, is_again))
            case fleet_protocol.NUMBERED:
                vehicle, at, number, is_again = row
                books.numbers[vehicle][number].append(Heard(at, is_again))
            case fleet_protocol.SAID:
                books.said[row[0]] = row[1]
            case fleet_protocol.SIGHTED:
                books.sightings.append(Sighting(*row))
            case fleet_protocol.MOVED:
                books.moves.append(Move(*row))
            case fleet_protocol.FAULT:
                self.faults.append(f"{row[0]}: {row[1]}")
            case _:
                raise AssertionError(f"the fleet said {kind!r}")
