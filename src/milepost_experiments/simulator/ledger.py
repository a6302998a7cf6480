"""The ledger of a run: independent records of positions and received messages, from which the system is evaluated.

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
class PublishedAlert:
    """An alert as published, with the time of its append to the log."""

    key: AlertKey
    published_at: Instant
    valid_until: Instant
    place: Place
    area: Area | None
    """The addressed area; `None`: an all-clear, to all endpoints notified of the incidents in `cancels`."""
    cancels: tuple[str, ...] = ()
    """The incidents that are over."""


class Receipt(NamedTuple):
    """The receipt of a message by a vehicle."""

    at: Instant
    is_duplicate: bool
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
class ClientPeriod:
    """The time in which a vehicle was a client."""

    protocol: str
    joined_at: Instant
    left_at: Instant | None = None


@dataclass(slots=True)
class RunLedger:
    """All records of a run."""

    clients: dict[str, ClientPeriod] = field(default_factory=dict)
    reports: defaultdict[str, list[Fix]] = field(default_factory=lambda: defaultdict(list))
    true_positions: defaultdict[str, list[Fix]] = field(default_factory=lambda: defaultdict(list))
    alerts: dict[AlertKey, PublishedAlert] = field(default_factory=dict)
    receipts: defaultdict[AlertKey, dict[str, Receipt]] = field(default_factory=lambda: defaultdict(dict))
    """The first copy received by each vehicle."""
    duplicates: defaultdict[AlertKey, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Vehicles that received an unmarked duplicate."""
    published_numbers: dict[int, Instant] = field(default_factory=dict)
    """Numbers of the control stream, with the time of their publication."""
    received_numbers: defaultdict[str, dict[int, list[Receipt]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    sightings: list[Sighting] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)

    def record_receipt(self, vehicle: str, key: AlertKey, receipt: Receipt) -> None:
        """Record the receipt of an alert."""
        if vehicle not in self.receipts[key]:
            self.receipts[key][vehicle] = receipt
        elif not receipt.is_duplicate:
            self.duplicates[key].append(vehicle)

    def prune(self, before: Instant) -> None:
        """Drop older records, to bound the memory of a long run; reports that later alerts need are retained."""
        departed = {name for name, client in self.clients.items() if client.left_at is not None and client.left_at < before}
        for name in departed:
            del self.clients[name]
            self.reports.pop(name, None)
            self.true_positions.pop(name, None)
            self.received_numbers.pop(name, None)
        for rows in (*self.reports.values(), *self.true_positions.values()):
            del rows[: max(0, bisect_right(rows, before, key=lambda one: one.at) - 1)]
        for key in [key for key, alert in self.alerts.items() if alert.published_at < before]:
            del self.alerts[key]
            self.receipts.pop(key, None)
            self.duplicates.pop(key, None)
        self.published_numbers = {number: at for number, at in self.published_numbers.items() if at >= before}
        for numbers in self.received_numbers.values():
            for number in [number for number in numbers if number not in self.published_numbers]:
                del numbers[number]
        self.sightings = [one for one in self.sightings if one.at >= before]
