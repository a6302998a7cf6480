"""Books: independent records of positions and received messages, by which the system is judged.

Times are by one clock, in nanoseconds. The time of a report is when its vehicle began to send it.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from milepost.model.areas import Area
from milepost.model.instants import Instant
from milepost.model.places import Place


class Fix(NamedTuple):
    """A position of a vehicle, reported or true; heading and speed are NaN if not reported."""

    at: Instant
    latitude: float
    longitude: float
    heading_deg: float
    speed_mps: float


class AlertKey(NamedTuple):
    """The identity of an alert, the same over every protocol."""

    incident: str
    phase: str
    seen_at: Instant


@dataclass(frozen=True, slots=True)
class AlertSaid:
    """An alert as published, with the time of its append to the log."""

    key: AlertKey
    said_at: Instant
    valid_until: Instant
    place: Place
    area: Area | None
    """The addressed area; `None`: an all-clear, to all endpoints notified of the incidents in `calls_off`."""
    calls_off: tuple[str, ...] = ()
    """The incidents that are over."""


class Heard(NamedTuple):
    """The receipt of a message by a vehicle."""

    at: Instant
    is_again: bool
    """Whether the message was marked as a possible duplicate."""


class Sighting(NamedTuple):
    """An event that a vehicle reported."""

    vehicle: str
    at: Instant


class Move(NamedTuple):
    """A vehicle's move to another edge."""

    vehicle: str
    at: Instant
    edge: str
    took_s: float


@dataclass(slots=True)
class Stay:
    """The time in which a vehicle was a client."""

    carrier: str
    joined_at: Instant
    left_at: Instant | None = None


@dataclass(slots=True)
class Books:
    """All records of a run."""

    stays: dict[str, Stay] = field(default_factory=dict)
    reports: defaultdict[str, list[Fix]] = field(default_factory=lambda: defaultdict(list))
    truths: defaultdict[str, list[Fix]] = field(default_factory=lambda: defaultdict(list))
    alerts: dict[AlertKey, AlertSaid] = field(default_factory=dict)
    heard: defaultdict[AlertKey, dict[str, Heard]] = field(default_factory=lambda: defaultdict(dict))
    """The first copy received by each vehicle."""
    doubles: defaultdict[AlertKey, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Vehicles that received an unmarked duplicate."""
    said: dict[int, Instant] = field(default_factory=dict)
    """Numbers of the control stream, with the time of their publication."""
    numbers: defaultdict[str, dict[int, list[Heard]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    sightings: list[Sighting] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    def hear_alert(self, vehicle: str, key: AlertKey, heard: Heard) -> None:
        """Record the receipt of an alert."""
        if vehicle not in self.heard[key]:
            self.heard[key][vehicle] = heard
        elif not heard.is_again:
            self.doubles[key].append(vehicle)

    def forget(self, before: Instant) -> None:
        """Drop older records, to bound the memory of a long run; reports that later alerts need stay."""
        gone = {name for name, stay in self.stays.items() if stay.left_at is not None and stay.left_at < before}
        for name in gone:
            del self.stays[name]
            self.reports.pop(name, None)
            self.truths.pop(name, None)
            self.numbers.pop(name, None)
        for rows in (*self.reports.values(), *self.truths.values()):
            del rows[: max(0, bisect_right(rows, before, key=lambda one: one.at) - 1)]
        for key in [key for key, alert in self.alerts.items() if alert.said_at < before]:
            del self.alerts[key]
            self.heard.pop(key, None)
            self.doubles.pop(key, None)
        self.said = {number: at for number, at in self.said.items() if at >= before}
        for numbers in self.numbers.values():
            for number in [number for number in numbers if number not in self.said]:
                del numbers[number]
        self.sightings = [one for one in self.sightings if one.at >= before]
