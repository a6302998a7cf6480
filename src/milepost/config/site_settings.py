"""The settings of sites: the log that the edges of a site share, and the sites of the central hub."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from milepost.config.addresses import host_and_port
from milepost.config.toml_reader import FileName, Inline, Key
from milepost.federation.limits import SiteLimits
from milepost.model.site_records import check_site_name


class LogType(Enum):
    """Type of a site's log."""

    EMBEDDED = "embedded"
    """A folder on this machine."""
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class SiteLog:
    """The name of a site and its log."""

    name: str = ""
    log_type: Annotated[LogType, Key("log")] = LogType.EMBEDDED
    folder: Annotated[str, FileName()] = "data/site"
    address: str = ""
    prefix: str = ""
    options: tuple[str, ...] = ()
    key: Annotated[str, FileName()] = ""

    def __post_init__(self) -> None:
        if self.name:
            check_site_name(self.name)
        if self.log_type is LogType.KAFKA:
            if not self.address:
                raise ValueError('log = "kafka" needs address: HOST:PORT of one or more brokers, separated by commas')
            for one in self.address.split(","):
                host_and_port(one.strip())
            if wrong := next((one for one in self.options if not one.partition("=")[2]), None):
                raise ValueError(f"options: {wrong!r} is not NAME=VALUE")
        elif self.address or self.prefix or self.options:
            raise ValueError('address, prefix and options apply to log = "kafka" only; the embedded log uses folder')
        elif not self.folder:
            raise ValueError("folder is empty: the embedded log needs a folder, shared by all processes of the site")


@dataclass(frozen=True, slots=True)
class NeighbourSite:
    """A neighbouring site that receives messages to an area directly while no central hub runs (M33)."""

    log: Annotated[SiteLog, Inline()] = field(default_factory=SiteLog)

    def __post_init__(self) -> None:
        if not self.log.name:
            raise ValueError("name is empty: give the name of the neighbouring site")


@dataclass(frozen=True, slots=True)
class SiteSettings:
    """[site]: the site of an edge."""

    log: Annotated[SiteLog, Inline()] = field(default_factory=SiteLog)
    advertise: str = ""
    limits: Annotated[SiteLimits, Inline()] = field(default_factory=SiteLimits)
    neighbours: tuple[NeighbourSite, ...] = ()


@dataclass(frozen=True, slots=True)
class HubSite:
    """[[hub.sites]]: a site that the central hub joins with the others."""

    log: Annotated[SiteLog, Inline()] = field(default_factory=SiteLog)

    def __post_init__(self) -> None:
        if not self.log.name:
            raise ValueError("name is empty: give each site a name of its own")


@dataclass(frozen=True, slots=True)
class HubSettings:
    """[hub]: the name of the central hub, and its sites."""

    name: str = "hub"
    sites: tuple[HubSite, ...] = ()

    def __post_init__(self) -> None:
        check_site_name(self.name)
        names = [one.log.name for one in self.sites]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"sites: two sites are named {min(duplicates)}")
