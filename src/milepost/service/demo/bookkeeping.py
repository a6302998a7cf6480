"""From what the fleet tells to the books; and the counts that are shown while it runs."""

import threading
from collections import deque
from collections.abc import Sequence
from math import nan
from typing import IO, Any, Final

from milepost.model.instants import Instant
from milepost.service.demo import words
from milepost.simulator.books import AlertKey, Books, Fix, Heard, Move, Sighting, Stay
from milepost.simulator.traffic import Cars

FAULTS_MAX: Final = 1_000


class Bookkeeper:
    """Keeps the books, on the one thread that asks it to."""

    def __init__(self) -> None:
        self.books = Books()
        self.reports = 0
        self.faults: deque[str] = deque(maxlen=FAULTS_MAX)
        self._lock = threading.Lock()
        self._waiting: list[list[Any]] = []

    def listen(self, pipe: IO[bytes]) -> threading.Thread:
        """Take lines from the fleet, in a thread that ends when the fleet does."""

        def read() -> None:
            for line in pipe:
                events = words.value_of(line)
                with self._lock:
                    self._waiting += events

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    def catch_up(self) -> None:
        """Enter what came."""
        with self._lock:
            events, self._waiting = self._waiting, []
        for event in events:
            self._enter(event[0], event[1:])

    def note_truth(self, cars: Cars, at: Instant) -> None:
        """Where everybody truly is."""
        columns = (cars.latitudes, cars.longitudes, cars.headings_deg, cars.speeds_mps)
        for name, *row in zip(cars.names, *(column.tolist() for column in columns), strict=True):
            self.books.truths[name].append(Fix(at, *row))

    def _enter(self, kind: str, row: Sequence[Any]) -> None:
        books = self.books
        match kind:
            case words.JOINED:
                books.stays[row[0]] = Stay(row[2], row[1])
            case words.LEFT:
                if row[0] in books.stays:
                    books.stays[row[0]].left_at = row[1]
            case words.REPORTED:
                self.reports += 1
                books.reports[row[0]].append(Fix(*row[1:4], *(nan if one is None else one for one in row[4:])))
            case words.ALERTED:
                vehicle, at, incident, phase, seen_at, is_again = row
                books.hear_alert(vehicle, AlertKey(incident, phase, seen_at), Heard(at, is_again))
            case words.NUMBERED:
                vehicle, at, number, is_again = row
                books.numbers[vehicle][number].append(Heard(at, is_again))
            case words.SAID:
                books.said[row[0]] = row[1]
            case words.SIGHTED:
                books.sightings.append(Sighting(*row))
            case words.MOVED:
                books.moves.append(Move(*row))
            case words.FAULT:
                self.faults.append(f"{row[0]}: {row[1]}")
            case _:
                raise AssertionError(f"the fleet said {kind!r}")
