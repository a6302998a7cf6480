"""The judge: whether exactly the right vehicles were warned, and whether any message was lost or duplicated.

An edge determines the vehicles inside when it reads an alert, moments after its append to the log, by their last reports. So a
vehicle is judged by all its reports within `SETTLE_NS` before and after the append, and the last one before these:

    all of them inside        was inside: must be warned
    none of them inside       was outside; if a later report, while the alert is active, is inside, it drove in: must be warned
    some of them inside       was on the border: may be warned, or not
    no report inside from `STALE_NS` before the append until the alert arrived: must not be warned

An all-clear is for the vehicles that were warned of the incident, and for no others.

Invariants: this module knows nothing of edges, but uses `holds_going` as they do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas import Going, holds_going
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import vectors
from milepost_experiments.simulator.ledger import AlertSaid, Books, Fix, Heard, Stay

Row = tuple[Fix, bool]
"""A report, and whether it is inside the area."""

SETTLE_NS: Final = 3 * SECOND_NS // 2
"""Maximum transit time of reports and alerts."""
STALE_NS: Final = 5 * SECOND_NS
"""Maximum age of the last report that an edge has."""
DUE_NS: Final = 5 * SECOND_NS
"""Grace at the end of a session: messages published this shortly before it need not arrive."""


@dataclass(slots=True)
class AlertJudged:
    """Expected and actual receivers of an alert; vehicles by name, times from the log to the vehicle."""

    alert: AlertSaid
    inside: dict[str, float | None] = field(default_factory=dict)
    """Vehicles inside, with the seconds until the warning; `None`: never warned."""
    entered: dict[str, float | None] = field(default_factory=dict)
    """Vehicles that drove in later, with the seconds from the first report inside to the warning."""
    border: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)
    """Vehicles warned but never inside."""
    doubled: list[str] = field(default_factory=list)
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
class ControlJudged:
    """The result of the control stream: numbered messages to all vehicles."""

    said: int = 0
    due: int = 0
    """Number of expected deliveries, over all vehicles."""
    lost: dict[str, list[int]] = field(default_factory=dict)
    doubled: dict[str, dict[int, float]] = field(default_factory=dict)
    """Unmarked duplicates, by vehicle and number: seconds after the first copy."""
    again: int = 0
    """Number of duplicates marked as such."""
    waits_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class RecallJudged:
    """Expected and actual receivers of an all-clear."""

    alert: AlertSaid
    told: dict[str, float | None] = field(default_factory=dict)
    """Vehicles warned and still connected, with the seconds until the all-clear; `None`: never received."""
    wrong: set[str] = field(default_factory=set)
    """Vehicles that received the all-clear but no warning."""

    @property
    def missed(self) -> set[str]:
        """Vehicles that were warned and never received the all-clear."""
        return {name for name, after_s in self.told.items() if after_s is None}


def judge_alert(alert: AlertSaid, books: Books, now: Instant) -> AlertJudged:
    """Compare the expected and the actual receivers of an alert."""
    found = AlertJudged(alert, doubled=list(books.doubles.get(alert.key, [])))
    heard = books.heard.get(alert.key, {})
    found.warned = set(heard)
    until = min(_end_of(alert, books), now)
    asked = {name: _since(rows, Instant(alert.said_at - STALE_NS)) for name, rows in books.reports.items()}
    for name, flags in _inside(alert, asked).items():
        stay = books.stays.get(name)
        if stay is not None:
            _judge_one(found, name, stay, list(zip(asked[name], flags.tolist(), strict=True)), heard.get(name), until, now)
    truths = {name: _since(rows, alert.said_at)[:1] for name, rows in books.truths.items()}
    found.truly_inside = {name for name, flags in _inside(alert, truths).items() if flags[0]} & set(books.stays)
    return found


def _judge_one(
    found: AlertJudged, name: str, stay: Stay, rows: Sequence[Row], got: Heard | None, until: Instant, now: Instant
) -> None:
    """Classify one vehicle."""
    said_at, left_at = found.alert.said_at, now if stay.left_at is None else stay.left_at
    near = [is_in for _, is_in in _around(rows, said_at)]
    was_there = stay.joined_at <= said_at - 2 * SETTLE_NS and left_at > said_at + 2 * SETTLE_NS
    if got is not None and not any(is_in for fix, is_in in rows if fix.at <= got.at):
        found.wrong.add(name)
    elif near and all(near) and was_there:
        found.inside[name] = None if got is None else (got.at - said_at) / SECOND_NS
    elif any(near):
        found.border.add(name)
    elif (entry := _maybe_entry(rows, said_at, min(until, left_at))) is not None:
        found.entered[name] = None if got is None else max(0.0, (got.at - entry) / SECOND_NS)
    elif got is not None or any(is_in for _, is_in in rows):
        found.border.add(name)


def judge_recall(alert: AlertSaid, books: Books, now: Instant) -> RecallJudged:
    """Compare the expected and the actual receivers of an all-clear."""
    found = RecallJudged(alert)
    heard = books.heard.get(alert.key, {})
    warned: dict[str, Instant] = {}
    for key, vehicles in books.heard.items():
        if key.incident in alert.calls_off and key != alert.key:
            for name, got in vehicles.items():
                warned[name] = min(got.at, warned.get(name, got.at))
    for name, at in warned.items():
        stay = books.stays.get(name)
        left_at = now if stay is None or stay.left_at is None else stay.left_at
        if at <= alert.said_at - SETTLE_NS and left_at > alert.said_at + 2 * SETTLE_NS:
            found.told[name] = None if name not in heard else (heard[name].at - alert.said_at) / SECOND_NS
    found.wrong = set(heard) - set(warned)
    return found


def judge_control(books: Books, now: Instant) -> ControlJudged:
    """Check that every vehicle received each number once, from its first received number on."""
    found = ControlJudged(said=len(books.said))
    for name, stay in books.stays.items():
        got = books.numbers.get(name, {})
        first_at = stay.joined_at + DUE_NS if not got else books.said.get(min(got), stay.joined_at)
        until = (now if stay.left_at is None else stay.left_at) - DUE_NS
        due = [number for number, at in books.said.items() if first_at <= at <= until]
        found.due += len(due)
        if lost := [number for number in due if number not in got]:
            found.lost[name] = lost
        seconds = {number: [one for one in copies[1:] if not one.is_again] for number, copies in got.items()}
        if doubled := {number: (some[0].at - got[number][0].at) / SECOND_NS for number, some in seconds.items() if some}:
            found.doubled[name] = doubled
        found.again += sum(one.is_again for copies in got.values() for one in copies[1:])
        found.waits_s += [(got[number][0].at - books.said[number]) / SECOND_NS for number in due if number in got]
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """All results."""

    alerts: tuple[AlertJudged, ...]
    recalls: tuple[RecallJudged, ...]
    control: ControlJudged

    @property
    def faults(self) -> list[str]:
        """The broken guarantees, a line each; empty if all held."""
        found = [] if any(one.inside for one in self.alerts) else ["no alert was raised with anybody inside: nothing was shown"]
        for one in self.alerts:
            what = f"{one.alert.key.incident} {one.alert.key.phase}"
            found += _line(f"{what}: inside and not warned", one.missed)
            found += _line(f"{what}: drove in and was not warned", one.entered_missed)
            found += _line(f"{what}: warned and never inside", one.wrong)
            found += _line(f"{what}: warned twice", one.doubled)
        for recall in self.recalls:
            found += _line(f"{recall.alert.key.incident} is over: warned and not told", recall.missed)
            found += _line(f"{recall.alert.key.incident} is over: told and never warned", recall.wrong)
        if not self.control.due:
            found.append("no control message was due: nothing was shown")
        found += _line("control messages lost", [f"{name} {numbers[:5]}" for name, numbers in self.control.lost.items()])
        found += _line("control messages doubled", [_after(name, some) for name, some in self.control.doubled.items()])
        return found


def judge(books: Books, now: Instant) -> Judged:
    """Judge all alerts, all-clears and control messages."""
    alerts = sorted(books.alerts.values(), key=lambda one: one.said_at)
    return Judged(
        tuple(judge_alert(one, books, now) for one in alerts if one.area is not None),
        tuple(judge_recall(one, books, now) for one in alerts if one.calls_off),
        judge_control(books, now),
    )


def _after(name: str, doubled: Mapping[int, float]) -> str:
    return f"{name} [{', '.join(f'{number} after {after_s:.1f} s' for number, after_s in list(doubled.items())[:5])}]"


def _line(what: str, names: Sequence[str] | set[str]) -> list[str]:
    shown = sorted(names)[:6]
    return [f"{what}: {', '.join(shown)}{f' and {len(names) - 6} more' if len(names) > 6 else ''}"] if names else []


def _end_of(alert: AlertSaid, books: Books) -> Instant:
    """Return the end of an alert: its expiry, or a later alert or all-clear of the same incident."""
    about = alert.key.incident
    later = [
        one.said_at
        for one in books.alerts.values()
        if one.said_at > alert.said_at and (one.key.incident == about or about in one.calls_off)
    ]
    return min([alert.valid_until, *later])


def _since(rows: Sequence[Fix], at: Instant) -> list[Fix]:
    """Return the last row not after *at*, and all later ones."""
    first = next((index for index, fix in enumerate(rows) if fix.at > at), len(rows))
    return list(rows[max(0, first - 1) :])


def _inside(alert: AlertSaid, asked: Mapping[str, Sequence[Fix]]) -> dict[str, NDArray[np.bool_]]:
    """Return, for each vehicle, which of its reports are inside."""
    rows = [fix for fixes in asked.values() for fix in fixes]
    if not rows:
        return {}
    _, latitudes, longitudes, headings, speeds = np.array(rows, np.float64).T
    assert alert.area is not None, "an alert to an area"
    flags = holds_going(alert.area, vectors(latitudes, longitudes), Going(headings, speeds))
    ends = np.cumsum([len(fixes) for fixes in asked.values()])[:-1]
    return {name: part for name, part in zip(asked, np.split(flags, ends), strict=True) if part.size}


def _around(rows: Sequence[Row], at: Instant) -> list[Row]:
    """Return the reports within `SETTLE_NS` of a time, and the last one before them."""
    first = next((index for index, (fix, _) in enumerate(rows) if fix.at > at - SETTLE_NS), len(rows))
    return [row for row in rows[max(0, first - 1) :] if row[0].at <= at + SETTLE_NS]


def _maybe_entry(rows: Sequence[Row], since: Instant, until: Instant) -> Instant | None:
    """Return when a vehicle first reported from inside twice in a row, with time left to be warned."""
    for (before, was_in), (fix, is_in) in pairwise(rows):
        if was_in and is_in and before.at > since and fix.at + SETTLE_NS <= until:
            return before.at
    return None
