"""The settings of the UDP listener, and of its keys and certificates."""

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Annotated

from milepost.config.addresses import host_and_port
from milepost.config.toml_reader import FileName, Inline, Range
from milepost.listeners.udp.settings import UdpLimits, UdpSettings
from milepost.model.instants import SECOND_NS
from milepost.model.multicast_cells import MulticastGrid


class Encryption(Enum):
    """Encryption of datagrams."""

    NOISE = "noise"
    NONE = "none"
    """No encryption: for experiments."""


@dataclass(frozen=True, slots=True)
class CellSettings:
    """[udp.cells]: the multicast groups for messages to an area."""

    group: str = ""
    groups: Annotated[int, Range(1, 65_536)] = 256
    port: Annotated[int, Range(1, 65_535)] = 4243
    side_deg: float = 0.01
    interface: str = ""

    def __post_init__(self) -> None:
        self.cells  # an invalid grid fails here  # noqa: B018

    @property
    def cells(self) -> MulticastGrid | None:
        """The grid, or None without multicast."""
        return MulticastGrid(self.group, self.groups, self.port, self.side_deg) if self.group else None


@dataclass(frozen=True, slots=True)
class UdpDiscoverySettings:
    """[udp.discovery]: the multicast group in which endpoints discover an edge."""

    group: str = ""
    port: Annotated[int, Range(1, 65_535)] = 4244
    interface: str = ""

    def __post_init__(self) -> None:
        if self.group:
            MulticastGrid(self.group, 1, self.port, 1.0)


@dataclass(frozen=True, slots=True)
class UdpListenerSettings:
    """[udp]: the address, the parameters for endpoints, and the limits of the UDP listener."""

    address: str = ""
    encryption: Encryption = Encryption.NOISE
    reporting_interval_s: float = 1.0
    heartbeat_intervals: Annotated[int, Range(1, 100)] = 3
    rekey_interval_s: Annotated[int, Range(60, 604_800)] = 3_600
    clock_skew_s_max: Annotated[int, Range(1, 86_400)] = 60
    batch_wait_ms: Annotated[int, Range(0, 100)] = 2
    limits: Annotated[UdpLimits, Inline()] = field(default_factory=UdpLimits)
    cells: CellSettings = field(default_factory=CellSettings)
    discovery: UdpDiscoverySettings = field(default_factory=UdpDiscoverySettings)

    def __post_init__(self) -> None:
        if self.address:
            host_and_port(self.address)
        if not 0.01 <= self.reporting_interval_s <= 86_400:
            raise ValueError(f"reporting_interval_s is {self.reporting_interval_s}, not in 0.01..86400")

    @property
    def listener(self) -> UdpSettings:
        """The settings for the UDP listener."""
        return UdpSettings(
            **asdict(self.limits),
            reporting_interval_ns=int(self.reporting_interval_s * SECOND_NS),
            heartbeat_intervals=self.heartbeat_intervals,
            key_lifetime_ns=self.rekey_interval_s * SECOND_NS,
            clock_skew_ns_max=self.clock_skew_s_max * SECOND_NS,
            batch_wait_ns=self.batch_wait_ms * (SECOND_NS // 1_000),
            cells=self.cells.cells,
        )


@dataclass(frozen=True, slots=True)
class TrustSettings:
    """[trust]: the identity of the edge and its certificate authority, as files made by `milepost trust`."""

    ca: Annotated[str, FileName()] = ""
    certificate: Annotated[str, FileName()] = ""
    key: Annotated[str, FileName()] = ""
    revoked: Annotated[str, FileName()] = ""
    revoked_signers: Annotated[str, FileName()] = ""
    """The list for clients; empty: the one beside `revoked`, if there is one."""
