"""Alerts that an edge raises by itself when an emergency is reported, to everyone near it, at once (M22).

message on the topic of a rule ─▶ area by the rule, from place and heading ─▶ signed message to that area
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

from milepost.broker.publication import EDGE_ITSELF, Publication
from milepost.model.addresses import ToArea
from milepost.model.areas import Area, Circle
from milepost.model.areas.direction import corridor_ahead
from milepost.model.endpoints import SystemSource
from milepost.model.incidents import EventKind
from milepost.model.incidents.kinds import MercuryKind
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import FIELDS_MAX, Scalar
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.topics import check_filter, check_topic, filter_matches
from milepost.vetting.access import SystemTopics

if TYPE_CHECKING:
    from milepost.trust.signing import Signer  # imports OpenSSL, which an edge that signs nothing does without


ALERT_TOPIC: Final = "Alert"
"""Topic of alerts, and the first level of the topics of more of them; closed to clients by default, with all below it."""


class AlertShape(Enum):
    """Shape of the area of an alert."""

    CIRCLE = "circle"
    """A circle around the place."""
    CORRIDOR = "corridor"
    """Along the reporter's heading; a circle around the place if the heading is not known."""


@dataclass(frozen=True, slots=True)
class AlertRule:
    """A rule by which messages on some topics are emergencies: the area they concern, and for how long."""

    topic: str
    """Topic filter of the messages that raise an alert."""
    alert: str = ALERT_TOPIC
    """The topic of the alert."""
    shape: AlertShape = AlertShape.CIRCLE
    radius_m: float = 500.0
    ahead_m: float = 0.0
    """How far the corridor reaches in front of the reporter."""
    behind_m: float = 1_000.0
    """How far it reaches behind: vehicles that follow will get to the place."""
    half_width_m: float = 50.0
    valid_s: float = 60.0

    def __post_init__(self) -> None:
        check_filter(self.topic)
        check_topic(self.alert)
        if filter_matches(self.topic, self.alert):
            raise ValueError(
                f"the alert topic {self.alert!r} matches the rule's own topic {self.topic!r}: alerts would raise alerts"
            )
        if not 0 < self.valid_s <= 86_400:
            raise ValueError(f"valid_s is {self.valid_s}, not in 0..86400")
        self.area_for(Place(0.0, 0.0), 0.0)  # invalid dimensions fail here, at configuration

    def area_for(self, place: Place, heading_deg: float | None) -> Area:
        """Return the area that an emergency at a place concerns."""
        if self.shape is AlertShape.CORRIDOR and heading_deg is not None:
            return corridor_ahead(
                place, heading_deg, ahead_m=self.ahead_m, behind_m=self.behind_m, half_width_m=self.half_width_m
            )
        return Circle(place, self.radius_m)


STOCK_ALERT_RULES: Final = (AlertRule(MercuryKind.EMERGENCY.value.topic),)
"""The alert rules of settings without any: a reported emergency raises an alert (M22)."""


def alert_topics(
    rules: Sequence[AlertRule], kinds: Sequence[EventKind], priorities: Sequence[tuple[str, Priority]]
) -> SystemTopics:
    """Return the topics of alerts, and those whose messages raise alerts or have the class emergency."""
    alerts = {ALERT_TOPIC, *(rule.alert for rule in rules), *(kind.alert for kind in kinds if kind.alert is not None)}
    proven = {
        *(rule.topic for rule in rules),
        *(kind.topic for kind in kinds if kind.priority is Priority.EMERGENCY),
        *(topics for topics, priority in priorities if priority is Priority.EMERGENCY),
    }
    return SystemTopics(tuple(f"{topic}/#" for topic in sorted(alerts)), tuple(sorted(proven)))


class EmergencyAlerts:
    """The alert rules of an edge, and the alerts made by them."""

    def __init__(self) -> None:
        self.rules: tuple[AlertRule, ...] = ()
        self.signer: Signer | None = None
        """None: alerts of the edge are not signed."""
        self.raised = 0

    def find_rule(self, topic: str) -> AlertRule | None:
        """Return the first rule that matches a topic, if there is one."""
        return next((rule for rule in self.rules if filter_matches(rule.topic, topic)), None)

    def make(
        self, rule: AlertRule, publication: Publication, heading_deg: float | None, edge: SystemSource, number: int, now: Instant
    ) -> Publication:
        """Return the alert that a message raises; the message must have a place."""
        assert publication.place is not None, "an emergency without a place concerns no area"
        self.raised += 1
        raised: dict[str, Scalar] = {"raised_by": str(publication.source), "raised_on": publication.topic}
        alert = Publication(
            rule.alert,
            publication.body,
            now,
            source=edge,
            origin=EDGE_ITSELF,
            qos=1,
            priority=Priority.EMERGENCY,
            valid_until=Instant(now + int(rule.valid_s * SECOND_NS)),
            extras=None,
            tags=publication.tags,
            place=publication.place,
            address=ToArea(rule.area_for(publication.place, heading_deg)),
            fields={**dict(islice(publication.fields.items(), FIELDS_MAX - 2)), **raised},
        )
        alert.id = number
        if self.signer is not None:
            alert.signed = self.signer.signed(alert.message)
        return alert
