"""Settings of the UDP listener: values it announces to endpoints, and its limits."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milepost.model.instants import SECOND_NS
from milepost.model.multicast_cells import Cells

if TYPE_CHECKING:
    from milepost.trust.certificates import Authority, Certificate

SILENT_INTERVALS: Final = 3
"""Reporting intervals without a datagram after which a session ends (M12)."""

WINDOW_MOST: Final = 15_000
UNSENT_BYTES_LEAST: Final = 10_000


@dataclass(frozen=True, slots=True)
class UdpLimits:
    """Limits of the UDP listener, each a key of the configuration file. A rate of 0 means unlimited."""

    handshakes_per_s: int = 1_000
    """Handshakes per second above which endpoints must prove, with a cookie, that they receive at their address."""
    pending_max: int = 10_000
    """Maximum pending sessions: acknowledged, but without a first datagram yet."""
    openers_max: int = 20_000
    """Maximum sessions with a cached cipher, 2.5 kB each; for the rest it is created for each datagram."""
    messages_per_s: int = 50
    messages_burst: int = 200
    """Messages and subscriptions per endpoint."""
    prefix_per_s: int = 100_000
    prefix_burst: int = 200_000
    """Datagrams from one network prefix: /24 of IPv4, /56 of IPv6."""
    total_per_s: int = 1_000_000
    total_burst: int = 1_000_000
    """Datagrams from all endpoints."""
    window: int = 128
    """Maximum reliable messages in flight to one endpoint."""
    unsent_bytes_max: int = 64_000_000
    """Maximum bytes that wait for the network."""

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
    """Settings of one UDP listener."""

    reporting_interval_ns: int = SECOND_NS
    heartbeat_intervals: int = 3
    """Maximum reporting intervals between two datagrams to an endpoint; a heartbeat fills the gap (M11)."""
    keys_ns: int = 3_600 * SECOND_NS
    clock_off_ns_max: int = 60 * SECOND_NS
    """Maximum difference between an endpoint's clock and the edge's in a handshake."""
    gather_ns: int = 0
    """Maximum time a report waits to be processed in one batch with others; messages never wait."""
    cells: Cells | None = None
    """The multicast groups for messages to an area; None: no multicast."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The edge's identity towards endpoints: its key, its certificate, and the certificate authority it trusts."""

    static: bytes
    certificate: "Certificate"
    authority: "Authority"
