"""Settings of the UDP door: what it tells endpoints, and how much it takes from them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milepost.model.cells import Cells
from milepost.model.instants import SECOND_NS

if TYPE_CHECKING:
    from milepost.trust.authority import Authority
    from milepost.trust.certificates import Certificate

SILENT_INTERVALS: Final = 3
"""A session ends after so many reporting intervals without a sign of life (M12)."""

WINDOW_MOST: Final = 15_000
UNSENT_BYTES_LEAST: Final = 10_000


@dataclass(frozen=True, slots=True)
class UdpLimits:
    """How much the door takes and holds, each a key of the configuration file. A rate of 0 is no limit."""

    handshakes_per_s: int = 1_000
    """More than so many handshakes a second, and endpoints are asked to show that they receive at their address."""
    pending_max: int = 10_000
    """Sessions that were answered and have not spoken yet."""
    openers_max: int = 20_000
    """Sessions whose key is kept ready for use: each takes 2.5 kB; the rest have theirs made ready for each datagram."""
    messages_per_s: int = 50
    messages_burst: int = 200
    """Messages and subscriptions that an endpoint may send."""
    prefix_per_s: int = 100_000
    prefix_burst: int = 200_000
    """Datagrams from one part of the network: the same /24 of IPv4, /56 of IPv6."""
    total_per_s: int = 1_000_000
    total_burst: int = 1_000_000
    """Datagrams from all endpoints."""
    window: int = 128
    """Reliable messages on their way to one endpoint."""
    unsent_bytes_max: int = 64_000_000
    """Bytes that wait for the network."""

    def __post_init__(self) -> None:
        for name in ("handshakes_per_s", "pending_max", "openers_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, which would let nobody in; at least 1")
        for what in ("messages", "prefix", "total"):
            if getattr(self, f"{what}_per_s") and getattr(self, f"{what}_burst") < 1:
                raise ValueError(f"{what}_burst is {getattr(self, f'{what}_burst')}, which would let nothing through; at least 1")
        if not 1 <= self.window <= WINDOW_MOST:
            raise ValueError(f"window is {self.window}, not in 1..{WINDOW_MOST}")
        if self.unsent_bytes_max < UNSENT_BYTES_LEAST:
            raise ValueError(f"unsent_bytes_max is {self.unsent_bytes_max}, not at least {UNSENT_BYTES_LEAST}")


@dataclass(frozen=True, slots=True)
class UdpSettings(UdpLimits):
    """Of one door."""

    reporting_interval_ns: int = SECOND_NS
    heartbeat_intervals: int = 3
    """The edge says at least every so many intervals that it is alive (M11)."""
    keys_ns: int = 3_600 * SECOND_NS
    clock_off_ns_max: int = 60 * SECOND_NS
    """How far an endpoint's clock may be from ours when it opens a session."""
    gather_ns: int = 0
    """Reports may wait so long for others, to be taken together; messages never do."""
    cells: Cells | None = None
    """Where messages to an area are multicast, if they are."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the edge is to endpoints: its key, its certificate, and whom it believes."""

    static: bytes
    certificate: "Certificate"
    authority: "Authority"
