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


@dataclass(frozen=True, slots=True)
class UdpSettings:
    """Of one door."""

    reporting_interval_ns: int = SECOND_NS
    heartbeat_intervals: int = 3
    """The edge says at least every so many intervals that it is alive (M11)."""
    keys_ns: int = 3_600 * SECOND_NS
    clock_off_ns_max: int = 60 * SECOND_NS
    """How far an endpoint's clock may be from ours when it opens a session."""
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
    gather_ns: int = 0
    """Reports may wait so long for others, to be taken together; messages never do."""
    window: int = 128
    """Reliable messages on their way to one endpoint."""
    unsent_bytes_max: int = 64_000_000
    """Bytes that wait for the network."""
    cells: Cells | None = None
    """Where messages to an area are multicast, if they are."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the edge is to endpoints: its key, its certificate, and whom it believes."""

    static: bytes
    certificate: "Certificate"
    authority: "Authority"
