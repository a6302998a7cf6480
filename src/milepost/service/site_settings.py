"""The settings of sites: which log an edge shares with others, and which sites a centre joins."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from milepost.edge.site.limits import SiteLimits
from milepost.model.sites import check_site_name
from milepost.service.addresses import host_and_port
from milepost.service.reading import FileName, Inline


class Backbone(Enum):
    """What a site's log is kept by."""

    EMBEDDED = "embedded"
    """A folder of this machine."""
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class SiteLog:
    """A site and its log."""

    name: str = ""
    backbone: Backbone = Backbone.EMBEDDED
    folder: Annotated[str, FileName()] = "data/site"
    address: str = ""
    prefix: str = ""
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name:
            check_site_name(self.name)
        if self.backbone is Backbone.KAFKA:
            if not self.address:
                raise ValueError('backbone "kafka" needs an address: HOST:PORT of one or more brokers, with commas between')
            for one in self.address.split(","):
                host_and_port(one.strip())
            if wrong := next((one for one in self.options if not one.partition("=")[2]), None):
                raise ValueError(f"option {wrong!r} is not NAME=VALUE")
        elif self.address or self.prefix or self.options:
            raise ValueError('address, prefix and options are for backbone "kafka"; the embedded log has a folder')
        elif not self.folder:
            raise ValueError("folder is empty: the embedded log needs one, shared by all processes of the site")


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A neighbouring site that gets messages to an area at once while no centre is there (M33)."""

    log: Annotated[SiteLog, Inline()] = field(default_factory=SiteLog)

    def __post_init__(self) -> None:
        if not self.log.name:
            raise ValueError("name is empty: which site is it?")


@dataclass(frozen=True, slots=True)
class Site:
    """The site of an edge."""

    log: Annotated[SiteLog, Inline()] = field(default_factory=SiteLog)
    advertise: str = ""
    limits: Annotated[SiteLimits, Inline()] = field(default_factory=SiteLimits)
    neighbours: tuple[Neighbour, ...] = ()


@dataclass(frozen=True, slots=True)
class JoinedSite:
    """A site that a centre joins with the others."""

    log: Annotated[SiteLog, Inline()] = field(default_factory=SiteLog)

    def __post_init__(self) -> None:
        if not self.log.name:
            raise ValueError("name is empty: each site needs its own")


@dataclass(frozen=True, slots=True)
class Centre:
    """The centre: what it is called, and the sites that it joins."""

    name: str = "centre"
    sites: tuple[JoinedSite, ...] = ()

    def __post_init__(self) -> None:
        check_site_name(self.name)
        names = [one.log.name for one in self.sites]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two sites are named {min(twice)}")
