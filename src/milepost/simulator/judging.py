"""Judging: whether those were warned who had to be, and nobody else; whether anything was lost or came twice on the way.

An edge asks who is inside when it reads an alert, moments after that stood in the log, and goes by the last report it has then.
So a vehicle is judged by all its reports of a moment (`SETTLE_NS`) before and after, and the last one before these:

    all of them inside        was inside: must be warned
    none of them inside       was outside; who reports from inside later, while the alert stands, drove in: must be warned, too
    some of them              was on the border: may be warned, or not
    no report from inside, from `STALE_NS` before until it came: must not be warned

An all-clear is for those who were warned of what is over, and for nobody else.

What must hold: this file knows nothing of edges, and asks `holds_going` as they do.
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
from milepost.simulator.books import AlertSaid, Books, Fix, Heard, Stay

Row = tuple[Fix, bool]
"""A report, and whether it is inside."""

SETTLE_NS: Final = 3 * SECOND_NS // 2
"""Reports and alerts are on their way for so long at the most."""
STALE_NS: Final = 5 * SECOND_NS
"""So old the last report that an edge has may be."""
DUE_NS: Final = 5 * SECOND_NS
"""Who leaves is not asked about what was said so shortly before."""


@dataclass(slots=True)
class AlertJudged:
    """Who was to get an alert, and who did; vehicles by name, times from the log to the vehicle."""

    alert: AlertSaid
    inside: dict[str, float | None] = field(default_factory=dict)
    """Who was inside: after how many seconds it was warned; nothing: never."""
    entered: dict[str, float | None] = field(default_factory=dict)
    """Who drove in later: after how many seconds from its first report inside."""
    border: set[str] = field(default_factory=set)
    wrong: set[str] = field(default_factory=set)
    """Warned and never inside."""
    doubled: list[str] = field(default_factory=list)
    truly_inside: set[str] = field(default_factory=set)
    """By where they truly were, when it was said."""
    warned: set[str] = field(default_factory=set)

    @property
    def missed(self) -> set[str]:
        """Who was inside and was not warned."""
        return {name for name, after_s in self.inside.items() if after_s is None}

    @property
    def entered_missed(self) -> set[str]:
        """Who drove in and was not warned."""
        return {name for name, after_s in self.entered.items() if after_s is None}


@dataclass(slots=True)
class ControlJudged:
    """What became of the numbered messages to everybody."""

    said: int = 0
    due: int = 0
    """Of all vehicles, how many messages each had to get."""
    lost: dict[str, list[int]] = field(default_factory=dict)
    doubled: dict[str, dict[int, float]] = field(default_factory=dict)
    """How many seconds after the first copy the second came that was not marked as one."""
    again: int = 0
    """Second copies that were marked as such."""
    waits_s: list[float] = field(default_factory=list)


@dataclass(slots=True)
class RecallJudged:
    """Who was to hear that it is over, and who did."""

    alert: AlertSaid
    told: dict[str, float | None] = field(default_factory=dict)
    """Who was warned and is still there: after how many seconds it heard."""
    wrong: set[str] = field(default_factory=set)
    """Heard of it, and was never warned."""

    @property
    def missed(self) -> set[str]:
        """Who was warned, and never heard that it is over."""
        return {name for name, after_s in self.told.items() if after_s is None}


def judge_alert(alert: AlertSaid, books: Books, now: Instant) -> AlertJudged:
    """Who was to get an alert, and who did."""
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
    """Where one vehicle belongs."""
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
    """Who was to hear that something is over, and who did."""
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
    """Whether every vehicle got each number once, from the first that it got on."""
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
    """All of it."""

    alerts: tuple[AlertJudged, ...]
    recalls: tuple[RecallJudged, ...]
    control: ControlJudged

    @property
    def faults(self) -> list[str]:
        """What did not hold, a line each; nothing if all did."""
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
    """Whether all that was promised held."""
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
    """Until when it stands: another of the same incident takes its place, or ends it."""
    about = alert.key.incident
    later = [
        one.said_at
        for one in books.alerts.values()
        if one.said_at > alert.said_at and (one.key.incident == about or about in one.calls_off)
    ]
    return min([alert.valid_until, *later])


def _since(rows: Sequence[Fix], at: Instant) -> list[Fix]:
    """The last one before a moment, and all after it."""
    first = next((index for index, fix in enumerate(rows) if fix.at > at), len(rows))
    return list(rows[max(0, first - 1) :])


def _inside(alert: AlertSaid, asked: Mapping[str, Sequence[Fix]]) -> dict[str, NDArray[np.bool_]]:
    """Of each vehicle, which of its reports are inside."""
    rows = [fix for fixes in asked.values() for fix in fixes]
    if not rows:
        return {}
    _, latitudes, longitudes, headings, speeds = np.array(rows, np.float64).T
    assert alert.area is not None, "an alert to an area"
    flags = holds_going(alert.area, vectors(latitudes, longitudes), Going(headings, speeds))
    ends = np.cumsum([len(fixes) for fixes in asked.values()])[:-1]
    return {name: part for name, part in zip(asked, np.split(flags, ends), strict=True) if part.size}


def _around(rows: Sequence[Row], at: Instant) -> list[Row]:
    """The reports of the moment around a time, and the last one before them."""
    first = next((index for index, (fix, _) in enumerate(rows) if fix.at > at - SETTLE_NS), len(rows))
    return [row for row in rows[max(0, first - 1) :] if row[0].at <= at + SETTLE_NS]


def _maybe_entry(rows: Sequence[Row], since: Instant, until: Instant) -> Instant | None:
    """When somebody reported from inside twice in a row, with time left to be warned."""
    for (before, was_in), (fix, is_in) in pairwise(rows):
        if was_in and is_in and before.at > since and fix.at + SETTLE_NS <= until:
            return before.at
    return None
