"""Alerts: the messages that announce changes of incidents, and the detection of early alerts among records of the log.

Invariant: the same change yields the same message with the same id, so that a copy after a restart is recognised.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from milepost.incidents.tracker import circle_around
from milepost.model.addresses import INCIDENTS_MAX, ToArea, ToNotified
from milepost.model.areas import Area, Circle, Union
from milepost.model.endpoints import SystemSource
from milepost.model.incidents import EventKind, Incident, IncidentChange, IncidentId, IncidentPhase
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.reasons import Malformed
from milepost.model.site_records import EdgeRef, ForwardedMessage
from milepost.roads import MapMatcher, RoadNetwork, UpstreamExtent, find_upstream_area
from milepost.wire.records import from_record

_EARLY: Final = IncidentPhase.EARLY.value.encode()


class Approach:
    """The area of alerts where the roads are known: the incident, and the roads that lead to it (M26)."""

    def __init__(self, network: RoadNetwork, *, upstream_s: float) -> None:
        self._network = network
        self._map_matcher = MapMatcher(network)
        self._reach = UpstreamExtent(seconds=upstream_s)

    def area_for(self, circle: Circle, otherwise: Circle) -> Area:
        """Return *circle* and the roads upstream of its centre; *otherwise* if no road is there."""
        upstream = find_upstream_area(self._network, self._map_matcher.positions_near(circle.centre), self._reach)
        return otherwise if upstream is None else Union((circle, upstream))


def maybe_announced(record: bytes | None, engine: EdgeRef) -> IncidentId | None:
    """Return the incident that a record of cross-hub announces early, if the record is one of *engine*."""
    if record is None or _EARLY not in record:
        return None
    try:
        found = from_record(record)
    except Malformed:
        return None
    if not isinstance(found, ForwardedMessage) or found.sender != engine:
        return None
    incident, phase = (found.message.fields.get(name) for name in ("incident", "phase"))
    return IncidentId(incident) if phase == IncidentPhase.EARLY.value and isinstance(incident, str) else None


def maybe_alert(
    change: IncidentChange,
    kind: EventKind,
    source: SystemSource,
    early: Sequence[Incident] = (),
    approach: Approach | None = None,
) -> Message | None:
    """Return the message that announces a change; `None` if the kind has no topic for alerts.

    The same change yields the same message with the same id, so that a copy after a restart is recognised. *early* are the early
    warnings of the same incident: the alert also goes to their circles and names their ids. With *approach*, an alert goes to
    endpoints at the incident or on the way there, instead of to all around. The all-clear goes to exactly the endpoints that
    were notified.
    """
    if kind.alert is None:
        return None
    incident = change.incident
    assert incident.kind == kind.name, "a change is announced by the rules of its own kind"
    others = {one.id: None for one in early if one.id != incident.id}
    is_over = change.phase is IncidentPhase.CLEARED
    address = (
        ToNotified((incident.id, *others)[:INCIDENTS_MAX]) if is_over else ToArea(_area(incident, early, approach), incident.id)
    )
    return Message(
        id=_number(change),
        source=source,
        topic=kind.alert,
        seen_at=change.at,
        address=address,
        place=incident.centre,
        valid_until=Instant(change.at + kind.valid_ns),
        priority=kind.priority,
        reliable=True,
        fields={
            "incident": incident.id,
            "kind": incident.kind,
            "phase": change.phase.value,
            "reports": incident.reports,
            "witnesses": incident.witnesses,
            "radius_m": incident.radius_m,
            **({"early": " ".join(others)} if others else {}),
        },
    )


def _area(incident: Incident, early: Sequence[Incident], approach: Approach | None) -> Area:
    circle = incident.alert_area
    for one in early:
        circle = circle_around(circle, one.alert_area)
    return circle if approach is None else approach.area_for(circle if early else incident.circle, circle)


def _number(change: IncidentChange) -> MessageId:
    request = f"{change.incident.id} {change.phase.value} {change.at}"
    return MessageId(int.from_bytes(blake2b(request.encode(), digest_size=8).digest(), "big"))
