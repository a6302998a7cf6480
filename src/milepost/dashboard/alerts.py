"""Alerts: messages to areas, the endpoints they concern, and those that received them: the proof of coverage so far.

The records about an alert arrive in any order: the message, and its deliveries by each edge.

| state        | since                                                          | the map draws its area |
|--------------|----------------------------------------------------------------|------------------------|
| live         | its message arrived                                            | yes                    |
| replaced     | a later alert of the same incident arrived                     | no                     |
| cleared      | an all-clear of the incident arrived; also the all-clear       | no                     |
| over         | its validity ended                                             | no                     |

Invariants: an endpoint that received an alert of an incident stays warned until the incident is cleared or the validity of its
last alert ends, also while the next alert is in transit. The number of alerts, and of endpoints in all of them, is limited.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from milepost.dashboard.records import DeliveriesHeard
from milepost.dashboard.tables import Row, Table
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Area
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message
from milepost.model.pipeline_records import MICROSECOND_NS, Fate
from milepost.model.reasons import Reason
from milepost.wire.geojson import area_to_geojson

ALERTS_MAX: Final = 300
FATES_MAX: Final = 300_000
"""Maximum endpoints, over all alerts, whose delivery state is remembered."""
PROOF_ROWS_MAX: Final = 1_000
"""Maximum endpoints of one alert that are listed; all of them are counted."""
CLEARED: Final = "cleared"

_MILLISECOND_US: Final = 1_000


@dataclass(slots=True)
class FateOf:
    """The delivery of an alert to one endpoint."""

    edge: str = ""
    matched_us: int = 0
    got_us: int = 0
    acknowledged_us: int = 0
    reason: int = 0
    """The reason code if it was dropped."""

    @property
    def state(self) -> str:
        """The name of the delivery state."""
        if self.acknowledged_us:
            return Fate.ACKNOWLEDGED.value
        if self.got_us:
            return Fate.SENT.value
        return Fate.DROPPED.value if self.reason else Fate.MATCHED.value if self.matched_us else "missed"

    def maybe_after_ms(self, message: Message) -> float | None:
        """Return the delay from the message's `seen_at` to its delivery, or None if it is not known to be delivered."""
        if not self.got_us:
            return None
        return ((self.acknowledged_us or self.got_us) - message.seen_at // MICROSECOND_NS) / _MILLISECOND_US


@dataclass(slots=True)
class Alert:
    """One alert and its deliveries."""

    message: Message | None = None
    """None while only its deliveries are known."""
    area: Area | None = None
    """The area it is addressed to; for an all-clear, the area of the alert it clears."""
    inside: frozenset[str] = frozenset()
    """The endpoints inside the area when it was published, by their reports."""
    fates: dict[str, FateOf] = field(default_factory=dict)
    state: str = "live"
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def group(self) -> str:
        """The incident, which groups its alerts."""
        message = self.message
        assert message is not None, "who asks has the message"
        named = message.address.incident if isinstance(message.address, ToArea) else message.fields.get("incident")
        return str(named or key_of(message.source, message.id))

    @property
    def ends(self) -> set[str]:
        """The incidents that this message ends."""
        if self.message is None or not isinstance(self.message.address, ToNotified):
            return {self.group}
        names = self.message.address.incidents
        return {*names, *(f"{self.message.source}:{name}" for name in names)}


@dataclass(slots=True)
class Group:
    """The endpoints warned of one incident, and those still to be warned."""

    until: Instant
    warned: set[str] = field(default_factory=set)
    concerned: set[str] = field(default_factory=set)


def key_of(source: str, number: int) -> str:
    """Return the key of a message."""
    return f"{source}:{number}"


class Alerts:
    """All remembered alerts; `table` has a row for each whose message is known."""

    def __init__(self) -> None:
        self.table = Table(ALERTS_MAX)
        self.warned: Counter[str] = Counter()
        """Number of incidents of which an endpoint has alerts, by endpoint."""
        self.concerned: Counter[str] = Counter()
        """Number of incidents that concern an endpoint without a known delivery, by endpoint."""
        self.changed: set[str] = set()
        """Endpoints for which one of the two counts changed."""
        self.dropped = 0
        """Rows of deliveries beyond the limit."""
        self._alerts: dict[str, Alert] = {}
        self._groups: dict[str, Group] = {}
        self._fates = 0
        self._dirty: set[str] = set()

    def take_message(self, message: Message) -> None:
        """Add an alert to an area, or an all-clear to its receivers."""
        key = key_of(message.source, message.id)
        alert = self._alert(key)
        if alert.message is not None:
            return
        alert.message = message
        alert.area = message.address.area if isinstance(message.address, ToArea) else self._maybe_area(alert)
        is_clear, groups = isinstance(message.address, ToNotified), alert.ends
        for other_key, other in self._alerts.items():
            if other is not alert and other.message is not None and other.state == "live" and other.group in groups:
                other.state = CLEARED if is_clear else "replaced"
                self._dirty.add(other_key)
        if is_clear:
            alert.state = CLEARED
            for name in groups:
                self._end(name)
        else:
            group = self._groups.setdefault(alert.group, Group(message.valid_until))
            group.until = max(group.until, message.valid_until)
            self._settle(alert, alert.fates)
        self._dirty.add(key)

    def note_inside(self, key: str, names: Iterable[str]) -> None:
        """Set the endpoints that were inside an alert's area when it was published, by their reports."""
        alert = self._alerts.get(key)
        if alert is not None and alert.message is not None:
            alert.inside = frozenset(names)
            self._settle(alert, alert.inside)
            self._dirty.add(key)

    def take_deliveries(self, heard: DeliveriesHeard) -> None:
        """Add deliveries of a message by an edge."""
        key = key_of(heard.source, heard.id)
        alert = self._alert(key)
        for name, state, at_us, reason in zip(heard.endpoints, heard.states, heard.at_us, heard.reasons, strict=True):
            fate = alert.fates.get(name)
            if fate is None and self._fates >= FATES_MAX:
                self.dropped += 1
                continue
            if fate is None:
                fate = alert.fates[name] = FateOf()
                self._fates += 1
            else:
                alert.counts[fate.state] -= 1
            _note(fate, heard.edge, state, at_us, reason)
            alert.counts[fate.state] += 1
        if alert.message is not None and alert.state != CLEARED:
            self._settle(alert, heard.endpoints)
        self._dirty.add(key)

    def tick(self, now: Instant) -> None:
        """End alerts whose validity ended, and update the rows of changed ones."""
        for name in [name for name, group in self._groups.items() if group.until < now]:
            self._end(name)
        for key, alert in self._alerts.items():
            if alert.state == "live" and alert.message is not None and alert.message.valid_until < now:
                alert.state = "over"
                self._dirty.add(key)
        for key in self._dirty & self._alerts.keys():
            if self._alerts[key].area is not None:
                self.table.put(key, _row(self._alerts[key]))
        self._dirty.clear()

    def maybe_proof(self, key: str) -> dict[str, Any] | None:
        """Return the endpoints inside an alert's area, undelivered first, then by delay; None if the alert is unknown."""
        alert = self._alerts.get(key)
        if alert is None or alert.message is None or alert.area is None:
            return None
        rows = sorted(_proof_rows(alert, alert.message), key=lambda row: (row["after_ms"] is not None, row["after_ms"] or 0.0))
        shown = rows[:PROOF_ROWS_MAX]
        return {"key": key, "alert": _row(alert), "endpoints": shown, "left_out": len(rows) - len(shown)}

    def delays_ms(self, alerts: int) -> list[float]:
        """Return the sorted delivery delays of the last *alerts* alerts that have deliveries."""
        recent = [alert for alert in reversed(self._alerts.values()) if alert.message is not None and alert.fates][:alerts]
        delays = (fate.maybe_after_ms(alert.message) for alert in recent if alert.message for fate in alert.fates.values())
        return sorted(delay for delay in delays if delay is not None)

    def _maybe_area(self, alert: Alert) -> Area | None:
        """Return the area of the last alert of the same incident."""
        same = (one for one in reversed(self._alerts.values()) if one.area is not None and one.group in alert.ends)
        return next((one.area for one in same), None)

    def _alert(self, key: str) -> Alert:
        if key not in self._alerts:
            self._alerts[key] = Alert()
            if len(self._alerts) > ALERTS_MAX:
                self._forget(next(iter(self._alerts)))
        return self._alerts[key]

    def _forget(self, key: str) -> None:
        alert = self._alerts.pop(key)
        self._fates -= len(alert.fates)
        self.table.drop(key)
        if alert.message is not None and not any(one.message and one.group == alert.group for one in self._alerts.values()):
            self._end(alert.group)

    def _settle(self, alert: Alert, names: Iterable[str]) -> None:
        """Count endpoints as warned, or as concerned without a delivery."""
        group = self._groups.get(alert.group)
        if group is None:
            return
        for name in names:
            fate = alert.fates.get(name)
            if fate is not None and fate.got_us:
                self._count(self.warned, group.warned, name, is_so=True)
                self._count(self.concerned, group.concerned, name, is_so=False)
            elif name not in group.warned:
                self._count(self.concerned, group.concerned, name, is_so=True)

    def _count(self, counter: Counter[str], members: set[str], name: str, *, is_so: bool) -> None:
        if (name in members) is is_so:
            return
        (members.add if is_so else members.discard)(name)
        counter[name] += 1 if is_so else -1
        if not counter[name]:
            del counter[name]
        self.changed.add(name)

    def _end(self, name: str) -> None:
        group = self._groups.pop(name, None)
        if group is None:
            return
        for counter, members in ((self.warned, group.warned), (self.concerned, group.concerned)):
            for endpoint in list(members):
                self._count(counter, members, endpoint, is_so=False)


def _note(fate: FateOf, edge: str, state: str, at_us: int, reason: int) -> None:
    match state:
        case Fate.MATCHED.value:
            fate.matched_us = fate.matched_us or at_us
        case Fate.SENT.value:
            fate.got_us, fate.edge = fate.got_us or at_us, edge
        case Fate.ACKNOWLEDGED.value:
            fate.acknowledged_us = fate.acknowledged_us or at_us
            fate.got_us, fate.edge = fate.got_us or at_us, edge
        case Fate.DROPPED.value:
            fate.reason = reason or Reason.MALFORMED
        case _:
            pass
    fate.edge = fate.edge or edge


def _row(alert: Alert) -> Row:
    message = alert.message
    assert message is not None, "who asks has the message"
    assert alert.area is not None, "and knows where it goes"
    fields = message.fields
    got = alert.counts[Fate.SENT.value] + alert.counts[Fate.ACKNOWLEDGED.value]
    missed = sum(name not in alert.fates for name in alert.inside)
    return {
        "topic": message.topic,
        "source": message.source,
        "kind": str(fields.get("kind") or message.topic.rpartition("/")[2]),
        "phase": str(fields.get("phase") or ""),
        "incident": str(fields.get("incident") or ""),
        "state": alert.state,
        "priority": message.priority.name.lower(),
        "area": area_to_geojson(alert.area),
        "place": [message.place.longitude, message.place.latitude] if message.place else None,
        "seen_ms": message.seen_at // 1_000_000,
        "until_ms": None if message.valid_until == FOREVER else message.valid_until // 1_000_000,
        "inside": len(alert.inside | alert.fates.keys()),
        "got": got,
        "acknowledged": alert.counts[Fate.ACKNOWLEDGED.value],
        "dropped": alert.counts[Fate.DROPPED.value],
        "waiting": alert.counts[Fate.MATCHED.value] + missed,
    }


def _proof_rows(alert: Alert, message: Message) -> Iterator[dict[str, Any]]:
    for name in sorted(alert.inside | alert.fates.keys()):
        fate = alert.fates.get(name) or FateOf()
        yield {
            "endpoint": name,
            "inside": name in alert.inside,
            "state": fate.state,
            "edge": fate.edge,
            "after_ms": fate.maybe_after_ms(message),
            "reason": _reason_name(fate.reason),
        }


def _reason_name(number: int) -> str:
    try:
        return Reason(number).name if number else ""
    except ValueError:
        return str(number)
