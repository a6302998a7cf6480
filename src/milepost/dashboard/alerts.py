"""Alerts: messages to areas, the endpoints inside, and those that received them: the proof of coverage so far.

The records about an alert arrive in any order: the message, and its deliveries by each edge.

| state        | since                                                          | the map draws its area |
|--------------|----------------------------------------------------------------|------------------------|
| active       | its message arrived                                            | yes                    |
| replaced     | a later alert of the same incident arrived                     | no                     |
| cleared      | an all-clear of the incident arrived; also the all-clear       | no                     |
| expired      | its validity ended                                             | no                     |

Invariants:
- an alert is replaced or cleared only by a message of its own source and signer;
- an endpoint that received an alert of an incident stays warned until the incident is cleared or the validity of its last alert
  ends, also while the next alert is in transit;
- the number of alerts, and of endpoints in all of them, is limited.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from milepost.dashboard.records import DeliveryBatch
from milepost.dashboard.tables import Row, SceneTable
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Area
from milepost.model.endpoints import SourceId
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message
from milepost.model.pipeline_records import MICROSECOND_NS, DeliveryState
from milepost.model.reasons import Reason
from milepost.trust.alert_origin import UNSIGNED, may_change, signer_in
from milepost.wire.geojson import area_to_geojson

ALERTS_MAX: Final = 300
DELIVERIES_MAX: Final = 300_000
"""Maximum deliveries tracked, over all alerts."""
PROOF_ROWS_MAX: Final = 1_000
"""Maximum endpoints of one alert that are listed; all of them are counted."""
CLEARED: Final = "cleared"

_MILLISECOND_US: Final = 1_000

IncidentKey = tuple[SourceId, str]
"""Source and name of an incident."""


@dataclass(slots=True)
class AlertDelivery:
    """The delivery of an alert to one endpoint."""

    edge: str = ""
    matched_us: int = 0
    delivered_us: int = 0
    acknowledged_us: int = 0
    reason: int = 0
    """The reason code if it was dropped."""

    @property
    def state(self) -> str:
        """The name of the delivery state."""
        if self.acknowledged_us:
            return DeliveryState.ACKNOWLEDGED.value
        if self.delivered_us:
            return DeliveryState.SENT.value
        return DeliveryState.DROPPED.value if self.reason else DeliveryState.MATCHED.value if self.matched_us else "missed"

    def maybe_after_ms(self, message: Message) -> float | None:
        """Return the delay from the message's `seen_at` to its delivery, or None if it is not known to be delivered."""
        if not self.delivered_us:
            return None
        return ((self.acknowledged_us or self.delivered_us) - message.seen_at // MICROSECOND_NS) / _MILLISECOND_US


@dataclass(slots=True)
class Alert:
    """One alert and its deliveries."""

    message: Message | None = None
    """None while only its deliveries are known."""
    area: Area | None = None
    """The area it is addressed to; for an all-clear, the area of the alert it clears."""
    inside: frozenset[str] = frozenset()
    """The endpoints inside the area when it was published, by their reports."""
    deliveries: dict[str, AlertDelivery] = field(default_factory=dict)
    state: str = "active"
    owner: str = ""
    """The owner of the session that published it; empty: an anonymous client, or the message is signed."""
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def incident_key(self) -> IncidentKey:
        """The incident, which groups its alerts."""
        message = self.message
        assert message is not None, "callers check that the message is known"
        named = message.address.incident if isinstance(message.address, ToArea) else message.fields.get("incident")
        return message.source, str(named or message.id)

    @property
    def signer(self) -> str:
        """The signer of the message, or the owner of the session that published it."""
        return UNSIGNED if self.message is None else signer_in(self.message.certificate) or self.owner

    @property
    def ended_incidents(self) -> set[IncidentKey]:
        """The incidents that this message ends: only incidents of its own source."""
        if self.message is None or not isinstance(self.message.address, ToNotified):
            return {self.incident_key}
        return {(self.message.source, name) for name in self.message.address.incidents}


@dataclass(slots=True)
class IncidentAudience:
    """The endpoints warned of one incident, and those inside without a confirmed delivery."""

    until: Instant
    signer: str
    """The signer of its alerts: no other signer replaces or clears them."""
    warned: set[str] = field(default_factory=set)
    unconfirmed: set[str] = field(default_factory=set)


def message_key(source: str, number: int) -> str:
    """Return the key of a message."""
    return f"{source}:{number}"


class AlertTracker:
    """All remembered alerts; `table` has a row for each whose message is known."""

    def __init__(self) -> None:
        self.table = SceneTable(ALERTS_MAX)
        self.warned: Counter[str] = Counter()
        """Number of incidents of which an endpoint has alerts, by endpoint."""
        self.unconfirmed: Counter[str] = Counter()
        """Number of incidents for which an endpoint was inside without a confirmed delivery, by endpoint."""
        self.changed: set[str] = set()
        """Endpoints for which one of the two counts changed."""
        self.forged = 0
        """Messages that would have replaced or cleared an alert of another signer."""
        self.dropped = 0
        """Deliveries beyond the limit, which are not tracked."""
        self._alerts: dict[str, Alert] = {}
        self._audiences: dict[IncidentKey, IncidentAudience] = {}
        self._delivery_count = 0
        self._changed_keys: set[str] = set()

    def add_message(self, message: Message, owner: str = "") -> None:
        """Add an alert to an area, or an all-clear to its receivers; `owner`: of the session that published it."""
        key = message_key(message.source, message.id)
        alert = self._alert(key)
        if alert.message is not None:
            return
        if self._is_forged(Alert(message, owner=owner)):
            self.forged += 1
            return
        alert.message, alert.owner = message, owner
        alert.area = message.address.area if isinstance(message.address, ToArea) else self._find_area(alert)
        is_clear, incidents = isinstance(message.address, ToNotified), alert.ended_incidents
        for other_key, other in self._alerts.items():
            if other is not alert and other.message is not None and other.state == "active" and other.incident_key in incidents:
                other.state = CLEARED if is_clear else "replaced"
                self._changed_keys.add(other_key)
        if is_clear:
            alert.state = CLEARED
            for one in incidents:
                self._end_incident(one)
        else:
            audience = self._audiences.setdefault(alert.incident_key, IncidentAudience(message.valid_until, alert.signer))
            audience.until = max(audience.until, message.valid_until)
            audience.signer = audience.signer or alert.signer
            self._update_audience(alert, alert.deliveries)
        self._changed_keys.add(key)

    def _is_forged(self, alert: Alert) -> bool:
        """Return whether a message would replace or clear an alert of another signer."""
        affected = (self._audiences[one] for one in alert.ended_incidents & self._audiences.keys())
        return any(not may_change(audience.signer, alert.signer) for audience in affected)

    def set_inside(self, key: str, names: Iterable[str]) -> None:
        """Set the endpoints that were inside an alert's area when it was published, by their reports."""
        alert = self._alerts.get(key)
        if alert is not None and alert.message is not None:
            alert.inside = frozenset(names)
            self._update_audience(alert, alert.inside)
            self._changed_keys.add(key)

    def add_deliveries(self, batch: DeliveryBatch) -> None:
        """Add deliveries of a message by an edge."""
        key = message_key(batch.source, batch.id)
        alert = self._alert(key)
        for name, state, at_us, reason in zip(batch.endpoints, batch.states, batch.at_us, batch.reasons, strict=True):
            delivery = alert.deliveries.get(name)
            if delivery is None and self._delivery_count >= DELIVERIES_MAX:
                self.dropped += 1
                continue
            if delivery is None:
                delivery = alert.deliveries[name] = AlertDelivery()
                self._delivery_count += 1
            else:
                alert.counts[delivery.state] -= 1
            _record_state(delivery, batch.edge, state, at_us, reason)
            alert.counts[delivery.state] += 1
        if alert.message is not None and alert.state != CLEARED:
            self._update_audience(alert, batch.endpoints)
        self._changed_keys.add(key)

    def tick(self, now: Instant) -> None:
        """End alerts whose validity ended, and update the rows of changed ones."""
        for ended in [one for one, audience in self._audiences.items() if audience.until < now]:
            self._end_incident(ended)
        for key, alert in self._alerts.items():
            if alert.state == "active" and alert.message is not None and alert.message.valid_until < now:
                alert.state = "expired"
                self._changed_keys.add(key)
        for key in self._changed_keys & self._alerts.keys():
            if self._alerts[key].area is not None:
                self.table.put(key, _row(self._alerts[key]))
        self._changed_keys.clear()

    def find_proof(self, key: str) -> dict[str, Any] | None:
        """Return the endpoints inside an alert's area, undelivered first, then by delay; None if the alert is unknown."""
        alert = self._alerts.get(key)
        if alert is None or alert.message is None or alert.area is None:
            return None
        rows = sorted(_proof_rows(alert, alert.message), key=lambda row: (row["after_ms"] is not None, row["after_ms"] or 0.0))
        shown = rows[:PROOF_ROWS_MAX]
        return {"key": key, "alert": _row(alert), "endpoints": shown, "omitted": len(rows) - len(shown)}

    def delays_ms(self, alerts: int) -> list[float]:
        """Return the sorted delivery delays of the last *alerts* alerts that have deliveries."""
        recent = [alert for alert in reversed(self._alerts.values()) if alert.message is not None and alert.deliveries][:alerts]
        delays = (
            delivery.maybe_after_ms(alert.message) for alert in recent if alert.message for delivery in alert.deliveries.values()
        )
        return sorted(delay for delay in delays if delay is not None)

    def _find_area(self, alert: Alert) -> Area | None:
        """Return the area of the last alert of the same incident."""
        same = (
            one for one in reversed(self._alerts.values()) if one.area is not None and one.incident_key in alert.ended_incidents
        )
        return next((one.area for one in same), None)

    def _alert(self, key: str) -> Alert:
        if key not in self._alerts:
            self._alerts[key] = Alert()
            if len(self._alerts) > ALERTS_MAX:
                self._drop(next(iter(self._alerts)))
        return self._alerts[key]

    def _drop(self, key: str) -> None:
        alert = self._alerts.pop(key)
        self._delivery_count -= len(alert.deliveries)
        self.table.drop(key)
        if alert.message is not None and not any(
            one.message and one.incident_key == alert.incident_key for one in self._alerts.values()
        ):
            self._end_incident(alert.incident_key)

    def _update_audience(self, alert: Alert, names: Iterable[str]) -> None:
        """Count endpoints as warned, or as unconfirmed if no delivery is known."""
        audience = self._audiences.get(alert.incident_key)
        if audience is None:
            return
        for name in names:
            delivery = alert.deliveries.get(name)
            if delivery is not None and delivery.delivered_us:
                self._count(self.warned, audience.warned, name, is_member=True)
                self._count(self.unconfirmed, audience.unconfirmed, name, is_member=False)
            elif name not in audience.warned:
                self._count(self.unconfirmed, audience.unconfirmed, name, is_member=True)

    def _count(self, counter: Counter[str], members: set[str], name: str, *, is_member: bool) -> None:
        if (name in members) is is_member:
            return
        (members.add if is_member else members.discard)(name)
        counter[name] += 1 if is_member else -1
        if not counter[name]:
            del counter[name]
        self.changed.add(name)

    def _end_incident(self, key: IncidentKey) -> None:
        audience = self._audiences.pop(key, None)
        if audience is None:
            return
        for counter, members in ((self.warned, audience.warned), (self.unconfirmed, audience.unconfirmed)):
            for endpoint in list(members):
                self._count(counter, members, endpoint, is_member=False)


def _record_state(delivery: AlertDelivery, edge: str, state: str, at_us: int, reason: int) -> None:
    match state:
        case DeliveryState.MATCHED.value:
            delivery.matched_us = delivery.matched_us or at_us
        case DeliveryState.SENT.value:
            delivery.delivered_us, delivery.edge = delivery.delivered_us or at_us, edge
        case DeliveryState.ACKNOWLEDGED.value:
            delivery.acknowledged_us = delivery.acknowledged_us or at_us
            delivery.delivered_us, delivery.edge = delivery.delivered_us or at_us, edge
        case DeliveryState.DROPPED.value:
            delivery.reason = reason or Reason.MALFORMED
        case _:
            pass
    delivery.edge = delivery.edge or edge


def _row(alert: Alert) -> Row:
    message = alert.message
    assert message is not None, "callers check that the message is known"
    assert alert.area is not None, "callers check that the area is known"
    fields = message.fields
    received = alert.counts[DeliveryState.SENT.value] + alert.counts[DeliveryState.ACKNOWLEDGED.value]
    missed = sum(name not in alert.deliveries for name in alert.inside)
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
        "inside": len(alert.inside | alert.deliveries.keys()),
        "received": received,
        "acknowledged": alert.counts[DeliveryState.ACKNOWLEDGED.value],
        "dropped": alert.counts[DeliveryState.DROPPED.value],
        "pending": alert.counts[DeliveryState.MATCHED.value] + missed,
    }


def _proof_rows(alert: Alert, message: Message) -> Iterator[dict[str, Any]]:
    for name in sorted(alert.inside | alert.deliveries.keys()):
        delivery = alert.deliveries.get(name) or AlertDelivery()
        yield {
            "endpoint": name,
            "inside": name in alert.inside,
            "state": delivery.state,
            "edge": delivery.edge,
            "after_ms": delivery.maybe_after_ms(message),
            "reason": _reason_name(delivery.reason),
        }


def _reason_name(number: int) -> str:
    try:
        return Reason(number).name if number else ""
    except ValueError:
        return str(number)
