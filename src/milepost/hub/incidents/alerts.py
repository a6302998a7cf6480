"""From what became of an incident to the message that says so: alerts to those near it, an all-clear to all who were warned.

What must hold: the same change gives the same message with the same id, so that it is known as a second copy after a restart.
"""

from collections.abc import Sequence
from hashlib import blake2b

from milepost.hub.incidents.approach import Approach
from milepost.hub.incidents.lives import circle_around
from milepost.model.addresses import INCIDENTS_MAX, ToArea, ToTold
from milepost.model.areas import Area
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import Change, EventKind, Incident, Phase
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId


def maybe_alert(
    change: Change, kind: EventKind, source: EndpointId, early: Sequence[Incident] = (), approach: Approach | None = None
) -> Message | None:
    """The message that tells of a change; nothing if the kind has no topic for alerts.

    What was told early of it goes to all who heard that, and says under which ids they did. Where the roads are known
    (`approach`), an alert goes to who is at the incident or on the way there, instead of to all around. The all-clear goes to
    exactly those who were told anything of it.
    """
    if kind.alert is None:
        return None
    incident = change.incident
    assert incident.kind == kind.name, "a change is told by the rules of its own kind"
    others = {one.id: None for one in early if one.id != incident.id}
    is_over = change.phase is Phase.CLEARED
    address = ToTold((incident.id, *others)[:INCIDENTS_MAX]) if is_over else ToArea(_area(incident, early, approach), incident.id)
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
    circle = incident.told
    for one in early:
        circle = circle_around(circle, one.told)
    return circle if approach is None else approach.area_for(circle if early else incident.circle, circle)


def _number(change: Change) -> MessageId:
    said = f"{change.incident.id} {change.phase.value} {change.at}"
    return MessageId(int.from_bytes(blake2b(said.encode(), digest_size=8).digest(), "big"))
