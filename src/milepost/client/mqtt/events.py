"""What a session tells its skin."""

from dataclasses import dataclass

from milepost.client.faults import RefusedByEdge
from milepost.wire.mqtt import Publish


@dataclass(frozen=True, slots=True)
class Opened:
    """CONNACK said yes; `is_resumed` if the server still had the session."""

    is_resumed: bool


@dataclass(frozen=True, slots=True)
class Done:
    """What was asked for under a ticket is done, or refused."""

    ticket: int
    refused: RefusedByEdge | None = None


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message; `held` is to be given back to `Session.took`."""

    packet: Publish
    held: object = None


@dataclass(frozen=True, slots=True)
class WishRefused:
    """A subscription that was there before is not granted again."""

    label: int
    refused: RefusedByEdge


@dataclass(frozen=True, slots=True)
class Ended:
    """The server ends the connection, or does not begin it; `is_final` if it makes no sense to come back."""

    refused: RefusedByEdge
    is_final: bool
    reference: str = ""
    """Which servers it names instead."""


Event = Opened | Done | Arrived | WishRefused | Ended
