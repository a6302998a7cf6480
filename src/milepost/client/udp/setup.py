"""What a session is made with."""

from dataclasses import dataclass

from milepost.client.udp.seals import Credentials
from milepost.model.endpoints import EndpointId
from milepost.trust.authority import Authority


@dataclass(frozen=True, slots=True)
class Setup:
    """Who the endpoint is, and how much may wait."""

    endpoint: EndpointId
    trust: Credentials | None = None
    """Nothing: the edge seals nothing."""
    authority: Authority | None = None
    """Whose edges' signatures are believed; nothing: none is checked."""
    waiting_max: int = 1_000
    """Publications that are not answered."""
    held_max: int = 1_000
    """Messages to be acknowledged that the application has not taken."""
    hears_cells: bool = False
    """Whether it listens where messages to an area are multicast."""
