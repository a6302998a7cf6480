"""The settings of the UDP door and of whom it trusts: tables of the settings file."""

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Annotated

from milepost.doors.udp.settings import UdpLimits, UdpSettings
from milepost.model.cells import Cells
from milepost.model.instants import SECOND_NS
from milepost.service.addresses import host_and_port
from milepost.service.reading import FileName, Inline, Range


class Seal(Enum):
    """How datagrams are sealed."""

    NOISE = "noise"
    NONE = "none"
    """Not at all: for experiments."""


@dataclass(frozen=True, slots=True)
class CellSettings:
    """Where messages to an area are multicast."""

    group: str = ""
    groups: Annotated[int, Range(1, 65_536)] = 256
    port: Annotated[int, Range(1, 65_535)] = 4243
    side_deg: float = 0.01
    interface: str = ""

    def __post_init__(self) -> None:
        self.cells  # what makes no grid is found out now  # noqa: B018

    @property
    def cells(self) -> Cells | None:
        """The grid, if there is one."""
        return Cells(self.group, self.groups, self.port, self.side_deg) if self.group else None


@dataclass(frozen=True, slots=True)
class FindingSettings:
    """Where endpoints that look for an edge ask."""

    group: str = ""
    port: Annotated[int, Range(1, 65_535)] = 4244
    interface: str = ""

    def __post_init__(self) -> None:
        if self.group:
            Cells(self.group, 1, self.port, 1.0)


@dataclass(frozen=True, slots=True)
class Udp:
    """The UDP door: where it is, what it tells endpoints, what it takes from them."""

    address: str = ""
    seal: Seal = Seal.NOISE
    reporting_interval_s: float = 1.0
    heartbeat_intervals: Annotated[int, Range(1, 100)] = 3
    keys_s: Annotated[int, Range(60, 604_800)] = 3_600
    clock_off_s_max: Annotated[int, Range(1, 86_400)] = 60
    gather_ms: Annotated[int, Range(0, 100)] = 2
    limits: Annotated[UdpLimits, Inline()] = field(default_factory=UdpLimits)
    cells: CellSettings = field(default_factory=CellSettings)
    finding: FindingSettings = field(default_factory=FindingSettings)

    def __post_init__(self) -> None:
        if self.address:
            host_and_port(self.address)
        if not 0.01 <= self.reporting_interval_s <= 86_400:
            raise ValueError(f"reporting_interval_s is {self.reporting_interval_s}, not in 0.01..86400")

    @property
    def door(self) -> UdpSettings:
        """The same as the door has it."""
        return UdpSettings(
            **asdict(self.limits),
            reporting_interval_ns=int(self.reporting_interval_s * SECOND_NS),
            heartbeat_intervals=self.heartbeat_intervals,
            keys_ns=self.keys_s * SECOND_NS,
            clock_off_ns_max=self.clock_off_s_max * SECOND_NS,
            gather_ns=self.gather_ms * (SECOND_NS // 1_000),
            cells=self.cells.cells,
        )


@dataclass(frozen=True, slots=True)
class Trust:
    """Who this edge is, and whom it believes: files made by `milepost trust`."""

    authority: Annotated[str, FileName()] = ""
    certificate: Annotated[str, FileName()] = ""
    key: Annotated[str, FileName()] = ""
    revoked: Annotated[str, FileName()] = ""

    @property
    def files(self) -> tuple[str, ...]:
        """All of them."""
        return self.authority, self.certificate, self.key, self.revoked
