"""Addresses: to whom a message goes (M4, M5)."""

from dataclasses import dataclass

from milepost.model.areas import Area
from milepost.model.endpoints import EndpointId, endpoint_id


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
    """To every endpoint inside, subscribed or not."""

    area: Area


@dataclass(frozen=True, slots=True)
class ToEveryone:
    """To all that are connected."""


Address = ToEndpoint | ToContent | ToArea | ToEveryone
