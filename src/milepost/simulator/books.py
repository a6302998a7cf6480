"""Books: who was where, who heard what and when. Kept beside the system and not by it, so that it can be judged.

Times are by one clock, in nanoseconds. A report stands here under the time at which its vehicle began to say it.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from milepost.model.areas import Area
from milepost.model.instants import Instant
from milepost.model.places import Place


class Fix(NamedTuple):
    """Where somebody was, as reported or as true; heading and speed may be NaN: not said."""

    at: Instant
    latitude: float
    longitude: float
    heading_deg: float
    speed_mps: float


class AlertKey(NamedTuple):
    """How an alert is known to whoever gets it, over whatever protocol."""

    incident: str
    phase: str
    seen_at: Instant


@dataclass(frozen=True, slots=True)
class AlertSaid:
    """An alert as the system said it, with when it stood in the log."""

    key: AlertKey
    said_at: Instant
    valid_until: Instant
    place: Place
    area: Area | None
    """To whom; nothing: to all who were told of what it calls off."""
    calls_off: tuple[str, ...] = ()
    """The incidents that are over."""


class Heard(NamedTuple):
    """Something that came to a vehicle."""

    at: Instant
    is_again: bool
    """The edge says itself that it may be a second copy."""


class Sighting(NamedTuple):
    """An event that a vehicle reported."""

    vehicle: str
    at: Instant


class Move(NamedTuple):
    """Somebody went from one edge to another."""

    vehicle: str
    at: Instant
    edge: str
    took_s: float


@dataclass(slots=True)
class Stay:
    """From when to when a vehicle was a client."""

    carrier: str
    joined_at: Instant
    left_at: Instant | None = None


@dataclass(slots=True)
class Books:
    """All of it."""

    stays: dict[str, Stay] = field(default_factory=dict)
    reports: defaultdict[str, list[Fix]] = field(default_factory=lambda: defaultdict(list))
    truths: defaultdict[str, list[Fix]] = field(default_factory=lambda: defaultdict(list))
    alerts: dict[AlertKey, AlertSaid] = field(default_factory=dict)
    heard: defaultdict[AlertKey, dict[str, Heard]] = field(default_factory=lambda: defaultdict(dict))
    """The first copy that each vehicle got."""
    doubles: defaultdict[AlertKey, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Who got a second copy that was not marked as one."""
    said: dict[int, Instant] = field(default_factory=dict)
    """Numbers of the control stream, each with when its edge had it."""
    numbers: defaultdict[str, dict[int, list[Heard]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    sightings: list[Sighting] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    def hear_alert(self, vehicle: str, key: AlertKey, heard: Heard) -> None:
        """Somebody got an alert."""
        if vehicle not in self.heard[key]:
            self.heard[key][vehicle] = heard
        elif not heard.is_again:
            self.doubles[key].append(vehicle)

    def forget(self, before: Instant) -> None:
        """Drop what is older, so that a long run does not fill the memory; alerts that were said since keep their reports."""
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
