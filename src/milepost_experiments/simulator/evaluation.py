"""The evaluation of a run: whether exactly the right vehicles were warned, and whether any message was lost or duplicated.

An edge determines the vehicles inside when it reads an alert, moments after its append to the log, by their last reports. So a
vehicle is classified by all its reports within `TRANSIT_NS_MAX` before and after the append, and the last one before these:

    all of them inside        was inside: must be warned
    none of them inside       was outside; if a later report, while the alert is active, is inside, it drove in: must be warned
    some of them inside       was on the border: may be warned, or not
    no report inside from `STALE_NS` before the append until the alert arrived: must not be warned

An all-clear is for the vehicles that were warned of the incident, and for no others.

Invariants: this module knows nothing of edges, but uses `contains_moving` as they do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas import Motion, contains_moving
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import vectors
from milepost_experiments.simulator.ledger import ClientPeriod, Fix, PublishedAlert, Receipt, RunLedger

Row = tuple[Fix, bool]
"""A report, and whether it is inside the area."""

TRANSIT_NS_MAX: Final = 3 * SECOND_NS // 2
"""Maximum transit time of reports and alerts."""
STALE_NS: Final = 5 * SECOND_NS
"""Maximum age of the last report that an edge has."""
GRACE_NS: Final = 5 * SECOND_NS
"""Grace at the end of a session: messages published this shortly before it need not arrive."""


@dataclass(slots=True)
class AlertResult:
    """Expected and actual receivers of an alert; vehicles by name, times from the log to the vehicle."""

    alert: PublishedAlert
    inside: dict[str, float | None] = field(default_factory=dict)
    """Vehicles inside, with the seconds until the warning; `None`: never warned."""
    entered: dict[str, float | None] = field(default_factory=dict)
    """Vehicles that drove in later, with the seconds from the first report inside to the warning."""
    border: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)
    """Vehicles warned but never inside."""
    duplicated: list[str] = field(default_factory=list)
    truly_inside: set[str] = field(default_factory=set)
    """Vehicles inside by their true positions at the time of the alert."""
    warned: set[str] = field(default_factory=set)

    @property
    def missed(self) -> set[str]:
        """Vehicles that were inside and not warned."""
        return {name for name, after_s in self.inside.items() if after_s is None}

    @property
    def entered_missed(self) -> set[str]:
        """Vehicles that drove in and were not warned."""
        return {name for name, after_s in self.entered.items() if after_s is None}


@dataclass(slots=True)
class ControlResult:
    """The result of the control stream: numbered messages to all vehicles."""

    published: int = 0
    expected: int = 0
    """Number of expected deliveries, over all vehicles."""
    lost: dict[str, list[int]] = field(default_factory=dict)
    duplicated: dict[str, dict[int, float]] = field(default_factory=dict)
    """Unmarked duplicates, by vehicle and number: seconds after the first copy."""
    marked_duplicates: int = 0
    """Number of duplicates marked as such."""
    latencies_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class AllClearResult:
    """Expected and actual receivers of an all-clear."""

    alert: PublishedAlert
    notified: dict[str, float | None] = field(default_factory=dict)
    """Vehicles warned and still connected, with the seconds until the all-clear; `None`: never received."""
    wrong: set[str] = field(default_factory=set)
    """Vehicles that received the all-clear but no warning."""

    @property
    def missed(self) -> set[str]:
        """Vehicles that were warned and never received the all-clear."""
        return {name for name, after_s in self.notified.items() if after_s is None}


def evaluate_alert(alert: PublishedAlert, ledger: RunLedger, now: Instant) -> AlertResult:
    """Compare the expected and the actual receivers of an alert."""
    found = AlertResult(alert, duplicated=list(ledger.duplicates.get(alert.key, [])))
    receipts = ledger.receipts.get(alert.key, {})
    found.warned = set(receipts)
    until = min(_end_of(alert, ledger), now)
    recent = {name: _since(rows, Instant(alert.published_at - STALE_NS)) for name, rows in ledger.reports.items()}
    for name, flags in _inside(alert, recent).items():
        client = ledger.clients.get(name)
        if client is not None:
            _classify(found, name, client, list(zip(recent[name], flags.tolist(), strict=True)), receipts.get(name), until, now)
    true_positions = {name: _since(rows, alert.published_at)[:1] for name, rows in ledger.true_positions.items()}
    found.truly_inside = {name for name, flags in _inside(alert, true_positions).items() if flags[0]} & set(ledger.clients)
    return found


def _classify(
    found: AlertResult,
    name: str,
    client: ClientPeriod,
    rows: Sequence[Row],
    receipt: Receipt | None,
    until: Instant,
    now: Instant,
) -> None:
    """Classify one vehicle."""
    published_at, left_at = found.alert.published_at, now if client.left_at is None else client.left_at
    near = [is_in for _, is_in in _around(rows, published_at)]
    was_connected = client.joined_at <= published_at - 2 * TRANSIT_NS_MAX and left_at > published_at + 2 * TRANSIT_NS_MAX
    if receipt is not None and not any(is_in for fix, is_in in rows if fix.at <= receipt.at):
        found.wrong.add(name)
    elif near and all(near) and was_connected:
        found.inside[name] = None if receipt is None else (receipt.at - published_at) / SECOND_NS
    elif any(near):
        found.border.add(name)
    elif (entry := _find_entry(rows, published_at, min(until, left_at))) is not None:
        found.entered[name] = None if receipt is None else max(0.0, (receipt.at - entry) / SECOND_NS)
    elif receipt is not None or any(is_in for _, is_in in rows):
        found.border.add(name)


def evaluate_all_clear(alert: PublishedAlert, ledger: RunLedger, now: Instant) -> AllClearResult:
    """Compare the expected and the actual receivers of an all-clear."""
    found = AllClearResult(alert)
    receipts = ledger.receipts.get(alert.key, {})
    warned: dict[str, Instant] = {}
    for key, vehicles in ledger.receipts.items():
        if key.incident in alert.cancels and key != alert.key:
            for name, receipt in vehicles.items():
                warned[name] = min(receipt.at, warned.get(name, receipt.at))
    for name, at in warned.items():
        client = ledger.clients.get(name)
        left_at = now if client is None or client.left_at is None else client.left_at
        if at <= alert.published_at - TRANSIT_NS_MAX and left_at > alert.published_at + 2 * TRANSIT_NS_MAX:
            found.notified[name] = None if name not in receipts else (receipts[name].at - alert.published_at) / SECOND_NS
    found.wrong = set(receipts) - set(warned)
    return found


def evaluate_control_stream(ledger: RunLedger, now: Instant) -> ControlResult:
    """Check that every vehicle received each number once, from its first received number on."""
    found = ControlResult(published=len(ledger.published_numbers))
    for name, client in ledger.clients.items():
        received = ledger.received_numbers.get(name, {})
        first_at = client.joined_at + GRACE_NS if not received else ledger.published_numbers.get(min(received), client.joined_at)
        until = (now if client.left_at is None else client.left_at) - GRACE_NS
        expected = [number for number, at in ledger.published_numbers.items() if first_at <= at <= until]
        found.expected += len(expected)
        if lost := [number for number in expected if number not in received]:
            found.lost[name] = lost
        unmarked = {number: [one for one in copies[1:] if not one.is_duplicate] for number, copies in received.items()}
        if duplicated := {number: (some[0].at - received[number][0].at) / SECOND_NS for number, some in unmarked.items() if some}:
            found.duplicated[name] = duplicated
        found.marked_duplicates += sum(one.is_duplicate for copies in received.values() for one in copies[1:])
        found.latencies_s += [
            (received[number][0].at - at) / SECOND_NS
            for number, at in ledger.published_numbers.items()
            if first_at <= at <= until and number in received
        ]
    return found


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All results."""

    alerts: tuple[AlertResult, ...]
    all_clears: tuple[AllClearResult, ...]
    control: ControlResult

    @property
    def faults(self) -> list[str]:
        """The broken guarantees, a line each; empty if all held."""
        found = []
        if not any(one.inside for one in self.alerts):
            found.append("no alert was published with a vehicle inside its area: nothing was verified")
        for one in self.alerts:
            what = f"{one.alert.key.incident} {one.alert.key.phase}"
            found += _line(f"{what}: inside and not warned", one.missed)
            found += _line(f"{what}: drove in and was not warned", one.entered_missed)
            found += _line(f"{what}: warned and never inside", one.wrong)
            found += _line(f"{what}: warned twice", one.duplicated)
        for all_clear in self.all_clears:
            found += _line(f"{all_clear.alert.key.incident} is over: warned and no all-clear received", all_clear.missed)
            found += _line(f"{all_clear.alert.key.incident} is over: all-clear received and never warned", all_clear.wrong)
        if not self.control.expected:
            found.append("no control message was expected: nothing was verified")
        found += _line("control messages lost", [f"{name} {numbers[:5]}" for name, numbers in self.control.lost.items()])
        found += _line("control messages duplicated", [_after(name, some) for name, some in self.control.duplicated.items()])
        return found


def evaluate(ledger: RunLedger, now: Instant) -> Evaluation:
    """Evaluate all alerts, all-clears and control messages."""
    alerts = sorted(ledger.alerts.values(), key=lambda one: one.published_at)
    return Evaluation(
        tuple(evaluate_alert(one, ledger, now) for one in alerts if one.area is not None),
        tuple(evaluate_all_clear(one, ledger, now) for one in alerts if one.cancels),
        evaluate_control_stream(ledger, now),
    )


def _after(name: str, duplicated: Mapping[int, float]) -> str:
    return f"{name} [{', '.join(f'{number} after {after_s:.1f} s' for number, after_s in list(duplicated.items())[:5])}]"


def _line(what: str, names: Sequence[str] | set[str]) -> list[str]:
    shown = sorted(names)[:6]
    return [f"{what}: {', '.join(shown)}{f' and {len(names) - 6} more' if len(names) > 6 else ''}"] if names else []


def _end_of(alert: PublishedAlert, ledger: RunLedger) -> Instant:
    """Return the end of an alert: its expiry, or a later alert or all-clear of the same incident."""
    incident = alert.key.incident
    later = [
        one.published_at
        for one in ledger.alerts.values()
        if one.published_at > alert.published_at and (one.key.incident == incident or incident in one.cancels)
    ]
    return min([alert.valid_until, *later])


def _since(rows: Sequence[Fix], at: Instant) -> list[Fix]:
    """Return the last row not after *at*, and all later ones."""
    first = next((index for index, fix in enumerate(rows) if fix.at > at), len(rows))
    return list(rows[max(0, first - 1) :])


def _inside(alert: PublishedAlert, recent: Mapping[str, Sequence[Fix]]) -> dict[str, NDArray[np.bool_]]:
    """Return, for each vehicle, which of its reports are inside."""
    rows = [fix for fixes in recent.values() for fix in fixes]
    if not rows:
        return {}
    _, latitudes, longitudes, headings, speeds = np.array(rows, np.float64).T
    assert alert.area is not None, "an alert to an area"
    flags = contains_moving(alert.area, vectors(latitudes, longitudes), Motion(headings, speeds))
    ends = np.cumsum([len(fixes) for fixes in recent.values()])[:-1]
    return {name: part for name, part in zip(recent, np.split(flags, ends), strict=True) if part.size}


def _around(rows: Sequence[Row], at: Instant) -> list[Row]:
    """Return the reports within `TRANSIT_NS_MAX` of a time, and the last one before them."""
    first = next((index for index, (fix, _) in enumerate(rows) if fix.at > at - TRANSIT_NS_MAX), len(rows))
    return [row for row in rows[max(0, first - 1) :] if row[0].at <= at + TRANSIT_NS_MAX]


def _find_entry(rows: Sequence[Row], since: Instant, until: Instant) -> Instant | None:
    """Return when a vehicle first reported from inside twice in a row, with time left to be warned."""
    for (before, was_in), (fix, is_in) in pairwise(rows):
        if was_in and is_in and before.at > since and fix.at + TRANSIT_NS_MAX <= until:
            return before.at
    return None
