"""Settings of the UDP listener: values it announces to endpoints, and its limits."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milepost.model.instants import SECOND_NS
from milepost.model.multicast_cells import MulticastGrid

if TYPE_CHECKING:
    from milepost.trust.certificates import Certificate, CertificateAuthority

SILENT_INTERVALS: Final = 3
"""Reporting intervals without a datagram after which a session ends (M12)."""

IN_FLIGHT_MAX: Final = 15_000
UNSENT_BYTES_MIN: Final = 10_000


@dataclass(frozen=True, slots=True)
class UdpLimits:
    """Limits of the UDP listener, each a key of the configuration file. A rate of 0 means unlimited."""

    handshakes_per_s: int = 1_000
    """Handshakes per second above which endpoints must prove, with a cookie, that they receive at their address."""
    pending_max: int = 10_000
    """Maximum pending sessions: acknowledged, but without a first datagram yet."""
    cached_ciphers_max: int = 20_000
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
    in_flight_max: int = 128
    """Maximum reliable messages in flight to one endpoint."""
    unsent_bytes_max: int = 64_000_000
    """Maximum bytes that wait for the network."""

    def __post_init__(self) -> None:
        for name in ("handshakes_per_s", "pending_max", "cached_ciphers_max"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, which would refuse every endpoint; at least 1")
        for rate in ("messages", "prefix", "total"):
            if getattr(self, f"{rate}_per_s") and getattr(self, f"{rate}_burst") < 1:
                raise ValueError(f"{rate}_burst is {getattr(self, f'{rate}_burst')}, which would refuse everything; at least 1")
        if not 1 <= self.in_flight_max <= IN_FLIGHT_MAX:
            raise ValueError(f"in_flight_max is {self.in_flight_max}, not in 1..{IN_FLIGHT_MAX}")
        if self.unsent_bytes_max < UNSENT_BYTES_MIN:
            raise ValueError(f"unsent_bytes_max is {self.unsent_bytes_max}; it must be at least {UNSENT_BYTES_MIN}")


@dataclass(frozen=True, slots=True)
class UdpSettings(UdpLimits):
    """Settings of one UDP listener."""

    reporting_interval_ns: int = SECOND_NS
    heartbeat_intervals: int = 3
    """Maximum reporting intervals between two datagrams to an endpoint; a heartbeat fills the gap (M11)."""
    key_lifetime_ns: int = 3_600 * SECOND_NS
    clock_skew_ns_max: int = 60 * SECOND_NS
    """Maximum difference between an endpoint's clock and the edge's in a handshake."""
    batch_wait_ns: int = 0
    """Maximum time a report waits to be processed in one batch with others; messages never wait."""
    cells: MulticastGrid | None = None
    """The multicast groups for messages to an area; None: no multicast."""


@dataclass(frozen=True, slots=True)
class EdgeIdentity:
    """The edge's identity towards endpoints: its static key, its certificate, and the certificate authority it trusts."""

    static_key: bytes
    certificate: "Certificate"
    certificate_authority: "CertificateAuthority"
