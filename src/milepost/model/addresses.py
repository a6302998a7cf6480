"""Addresses: the audience of a message (M4, M5)."""

from dataclasses import dataclass
from typing import Final, assert_never

from milepost.model.areas import Area
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, shown

INCIDENT_NAME_CHARACTERS_MAX: Final = 128
INCIDENTS_MAX: Final = 100
"""Maximum incidents that one message may cancel."""


@dataclass(frozen=True, slots=True)
class ToEndpoint:
    """Address of one endpoint, by name."""

    endpoint: EndpointId

    def __post_init__(self) -> None:
        endpoint_id(self.endpoint)


@dataclass(frozen=True, slots=True)
class ToContent:
    """Address of all endpoints with a matching subscription; with `within`, only of those whose last report lies inside."""

    within: Area | None = None


@dataclass(frozen=True, slots=True)
class ToArea:
    """Address of every endpoint inside, subscribed or not, and of those that enter while the message is valid."""

    area: Area
    incident: str = ""
    """Subject: the next message of the same source with the same incident replaces this one. Empty: only its id names it."""

    def __post_init__(self) -> None:
        if self.incident:
            check_incident_name(self.incident)


@dataclass(frozen=True, slots=True)
class ToNotified:
    """Address of all endpoints that were sent the same source's area messages about these incidents (or with these ids).

    Their position now does not matter. The incidents end: endpoints that enter those areas later are not notified.
    """

    incidents: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.incidents) <= INCIDENTS_MAX:
            raise Malformed(Reason.FIELD_RANGE, f"{len(self.incidents)} incidents are named, not 1 to {INCIDENTS_MAX}")
        for incident in self.incidents:
            check_incident_name(incident)


@dataclass(frozen=True, slots=True)
class ToEveryone:
    """Address of all connected endpoints."""


Address = ToEndpoint | ToContent | ToArea | ToNotified | ToEveryone


def check_incident_name(name: str) -> None:
    """Raise `Malformed` unless *name* can name an incident: 1 to 128 printable characters without spaces."""
    if not 0 < len(name) <= INCIDENT_NAME_CHARACTERS_MAX or not name.isprintable() or " " in name:
        detail = f"{shown(name)} is not an incident name: 1 to {INCIDENT_NAME_CHARACTERS_MAX} printable characters without spaces"
        raise Malformed(Reason.FIELD_RANGE, detail)


def includes(
    address: Address, endpoint: EndpointId, place: Place | None, *, was_notified: bool, if_unplaced: bool = False
) -> bool:
    """Return whether one endpoint is in the audience of *address*, as far as that depends on its name and *place*.

    For `ToContent`, only the location of the receiver is checked, not whether a subscription matches.
    `was_notified`: of the incidents that `ToNotified` names. `if_unplaced`: the result where the place matters and is unknown.
    """
    match address:
        case ToEndpoint(name):
            return name == endpoint
        case ToContent(area):
            return area is None or _holds(area, place, if_unplaced)
        case ToArea(area):
            return _holds(area, place, if_unplaced)
        case ToNotified():
            return was_notified
        case ToEveryone():
            return True
        case _:
            assert_never(address)


def _holds(area: Area, place: Place | None, if_unplaced: bool) -> bool:
    return if_unplaced if place is None else bool(area.contains(place.vector[None, :])[0])
