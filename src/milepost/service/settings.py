"""The settings of an edge: one TOML file, read once, each table a frozen dataclass whose fields are its keys.

`milepost.example.toml` explains every key; a test keeps it equal to this file.
"""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

from milepost.doors.limits import DoorLimits
from milepost.edge.alerts import AlertRule
from milepost.edge.limits import Limits
from milepost.model.areas import Area
from milepost.model.priorities import Priority
from milepost.model.sites import check_site_name
from milepost.model.survives import Survives
from milepost.model.topics import check_filter
from milepost.service.addresses import host_and_port
from milepost.service.dashboard_settings import DashboardSettings
from milepost.service.faults import cannot_read
from milepost.service.incident_settings import IncidentSettings
from milepost.service.logs import Format, Level
from milepost.service.pipeline_settings import Pipelines
from milepost.service.reading import FileName, Inline, Key, Range, Reader
from milepost.service.site_settings import Centre, Site
from milepost.service.udp_settings import Trust, Udp
from milepost.vetting.access import Rule
from milepost.vetting.payloads import PayloadRule
from milepost.vetting.reports import ReportLimits
from milepost.wire.asks.texts import area_from_text

_PACKET_BYTES_MAX: Final = 268_435_460  # the longest that MQTT can say, and the header around it


class Transport(Enum):
    """What MQTT is carried in."""

    TCP = "tcp"
    TLS = "tls"
    WS = "ws"
    WSS = "wss"

    @property
    def is_encrypted(self) -> bool:
        """Whether it needs a certificate."""
        return self in (Transport.TLS, Transport.WSS)

    @property
    def is_websocket(self) -> bool:
        """Whether MQTT comes in WebSocket frames."""
        return self in (Transport.WS, Transport.WSS)


@dataclass(frozen=True, slots=True)
class Listener:
    """One address at which MQTT clients connect."""

    address: str = "127.0.0.1:1883"
    transport: Transport = Transport.TCP
    certificate: Annotated[str, FileName()] = ""
    key: Annotated[str, FileName()] = ""
    client_ca: Annotated[str, FileName()] = ""
    certificate_is_user: bool = False

    def __post_init__(self) -> None:
        host_and_port(self.address)
        if self.transport.is_encrypted and not (self.certificate and self.key):
            raise ValueError(f'transport "{self.transport.value}" needs certificate and key')
        if not self.transport.is_encrypted and (self.certificate or self.key or self.client_ca):
            wanted = Transport.WSS if self.transport.is_websocket else Transport.TLS
            raise ValueError(f'transport "{self.transport.value}" uses no certificate; did you mean "{wanted.value}"?')
        if self.certificate_is_user and not self.client_ca:
            raise ValueError("certificate_is_user needs client_ca, which says whose certificates to trust")


@dataclass(frozen=True, slots=True)
class Edge:
    """Who this edge is and where it keeps things."""

    name: str = "edge-1"
    data: Annotated[str, FileName()] = "data/edge"
    coverage: str = ""

    def __post_init__(self) -> None:
        self.area  # what is no area is found out now  # noqa: B018
        if not self.name or not self.name.isprintable() or set(self.name) & set("/+#"):
            raise ValueError(f"name {self.name!r} is part of topics: give it characters, but no / + # nor control characters")
        if not self.data:
            raise ValueError('data is empty: name a folder, or keep nothing with survives = "nothing" in [keep]')

    @property
    def area(self) -> Area | None:
        """What the edge covers; nothing: everywhere."""
        return area_from_text(self.coverage) if self.coverage else None


@dataclass(frozen=True, slots=True)
class Keep:
    """How safe what is kept must be."""

    survives: Survives = Survives.PROCESS_CRASH


@dataclass(frozen=True, slots=True)
class Mqtt:
    """What the MQTT door tells its clients, and where they find it."""

    topic_alias_max: Annotated[int, Range(0, 65_535)] = 10
    packet_bytes_max: Annotated[int, Range(128, _PACKET_BYTES_MAX)] = 2_000_000
    receive_max: Annotated[int, Range(1, 65_535)] = 20
    keep_alive_s_max: Annotated[int, Range(0, 65_535)] = 0
    handshake_s_max: Annotated[int, Range(1, 3_600)] = 10
    listen: tuple[Listener, ...] = (Listener(),)

    def __post_init__(self) -> None:
        if not self.listen:
            raise ValueError("listen is empty: nobody could connect")
        addresses = [one.address for one in self.listen if host_and_port(one.address)[1]]
        if twice := {address for address in addresses if addresses.count(address) > 1}:
            raise ValueError(f"two listeners have the address {min(twice)}; give each its own port")


@dataclass(frozen=True, slots=True)
class AllLimits:
    """The limits of the edge and of its doors: one table in the file."""

    edge: Annotated[Limits, Inline()] = field(default_factory=Limits)
    door: Annotated[DoorLimits, Inline()] = field(default_factory=DoorLimits)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may connect, and who may do what."""

    users: Annotated[str, FileName()] = ""
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class PayloadSetting:
    """What messages to certain topics must contain; one that asks for nothing exempts them from the rules below it."""

    topic: str
    json: bool = False
    schema: Annotated[str, FileName()] = ""

    def __post_init__(self) -> None:
        check_filter(self.topic)

    @property
    def rule(self) -> PayloadRule:
        """The same as vetting has it."""
        return PayloadRule(self.topic, json=self.json, schema=self.schema or None)


@dataclass(frozen=True, slots=True)
class PriorityRule:
    """The class of messages to certain topics."""

    topic: str
    priority: Annotated[Priority, Key("class")]

    def __post_init__(self) -> None:
        check_filter(self.topic)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of messages, and how urgent they are; the first rule that fits counts."""

    payload: tuple[PayloadSetting, ...] = ()
    priority: tuple[PriorityRule, ...] = ()
    alert: tuple[AlertRule, ...] = ()


@dataclass(frozen=True, slots=True)
class Vetting:
    """What is believed of reports, and what is known of endpoints from outside."""

    reports: Annotated[ReportLimits, Inline()] = field(default_factory=ReportLimits)
    reputation: Annotated[str, FileName()] = ""


@dataclass(frozen=True, slots=True)
class Http:
    """Where health and figures are asked for."""

    address: str = "127.0.0.1:9464"

    def __post_init__(self) -> None:
        if self.address:
            host_and_port(self.address)


@dataclass(frozen=True, slots=True)
class Logs:
    """What is logged, and how."""

    level: Level = Level.INFO
    line_format: Annotated[Format, Key("format")] = Format.TEXT


@dataclass(frozen=True, slots=True)
class Sys:
    """The figures published below $SYS."""

    interval_s: int = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it."""

    edge: Edge = field(default_factory=Edge)
    keep: Keep = field(default_factory=Keep)
    mqtt: Mqtt = field(default_factory=Mqtt)
    udp: Udp = field(default_factory=Udp)
    trust: Trust = field(default_factory=Trust)
    site: Site = field(default_factory=Site)
    centre: Centre = field(default_factory=Centre)
    incidents: IncidentSettings = field(default_factory=IncidentSettings)
    pipelines: Pipelines = field(default_factory=Pipelines)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    limits: AllLimits = field(default_factory=AllLimits)
    access: Access = field(default_factory=Access)
    rules: Rules = field(default_factory=Rules)
    vetting: Vetting = field(default_factory=Vetting)
    http: Http = field(default_factory=Http)
    log: Logs = field(default_factory=Logs)
    sys: Sys = field(default_factory=Sys)

    def __post_init__(self) -> None:
        if self.site.log.name:
            check_site_name(self.edge.name)
            if self.vetting.reputation:
                raise ValueError("reputation in [vetting] is for an edge that is alone: one of a site hears them from its log")


def read_settings(path: Path) -> Settings:
    """The settings in a file; a `UsageFault` says what is wrong with it, and on which line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise cannot_read(path, error) from None
    except UnicodeDecodeError:
        raise cannot_read(path, OSError("it is not UTF-8 text")) from None
    return settings_from(text, source=str(path), folder=path.parent)


def settings_from(text: str, *, source: str, folder: Path) -> Settings:
    """The settings in a text."""
    return Reader(text, source, folder).read(Settings)


def check_files(settings: Settings) -> None:
    """Raise a `UsageFault` about the first file that the settings name and that cannot be read."""
    for name in _named_files(settings):
        try:
            with Path(name).open("rb"):
                pass
        except OSError as error:
            raise cannot_read(name, error) from None


def _named_files(settings: Settings) -> list[str]:
    found = [settings.access.users, settings.vetting.reputation, *settings.trust.files]
    for listener in settings.mqtt.listen:
        found += [listener.certificate, listener.key, listener.client_ca]
    found += [rule.schema for rule in settings.rules.payload]
    return [name for name in found if name]
