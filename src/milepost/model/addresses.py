"""Addresses: to whom a message goes (M4, M5)."""

from dataclasses import dataclass
from typing import Final

from milepost.model.areas import Area
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.reasons import Malformed, Reason, shown

INCIDENT_NAME_CHARACTERS_MAX: Final = 128
INCIDENTS_MAX: Final = 100
"""So many incidents may be called off by one message."""


@dataclass(frozen=True, slots=True)
class ToEndpoint:
    """To one endpoint, by name."""

    endpoint: EndpointId

    def __post_init__(self) -> None:
        endpoint_id(self.endpoint)


@dataclass(frozen=True, slots=True)
class ToContent:
    """To whoever's subscription matches; with `within`, only to those of them whose last report lies inside."""

    within: Area | None = None


@dataclass(frozen=True, slots=True)
class ToArea:
    """To every endpoint inside, subscribed or not; while the message is valid, also to who comes in."""

    area: Area
    incident: str = ""
    """What it is about: the next message of the same source about the same takes its place. Nothing: only its id names it."""

    def __post_init__(self) -> None:
        if self.incident:
            check_incident_name(self.incident)


@dataclass(frozen=True, slots=True)
class ToTold:
    """To all who were sent what the same source said to areas of these incidents (or under these ids), wherever they are now.

    It is the last word: who comes into those areas later is told nothing any more.
    """

    incidents: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.incidents) <= INCIDENTS_MAX:
            raise Malformed(Reason.FIELD_RANGE, f"{len(self.incidents)} incidents are named, not 1 to {INCIDENTS_MAX}")
        for incident in self.incidents:
            check_incident_name(incident)


@dataclass(frozen=True, slots=True)
class ToEveryone:
    """To all that are connected."""


Address = ToEndpoint | ToContent | ToArea | ToTold | ToEveryone


def check_incident_name(name: str) -> None:
    """Refuse what is no name of an incident: 1 to 128 visible characters."""
    if not 0 < len(name) <= INCIDENT_NAME_CHARACTERS_MAX or not name.isprintable() or " " in name:
        detail = f"{shown(name)} names no incident: 1 to {INCIDENT_NAME_CHARACTERS_MAX} characters, no spaces"
        raise Malformed(Reason.FIELD_RANGE, detail)
