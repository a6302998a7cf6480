"""The settings of all processes: one TOML file, read once, each table a frozen dataclass whose fields are its keys.

Invariant: a value that exists is valid; a dataclass checks what a key's type does not. `milepost.example.toml` explains every
key, and a test keeps it equal to this file. The tables of sites and of UDP are in files of their own.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

from milepost.broker.alert_rules import STOCK_ALERT_RULES, AlertRule
from milepost.broker.limits import BrokerLimits
from milepost.config.addresses import host_and_port, is_loopback
from milepost.config.errors import COPY_FROM_AUTHORITY, UsageFault, cannot_read
from milepost.config.log_format import Format, Level
from milepost.config.site_settings import HubSettings, SiteSettings
from milepost.config.toml_reader import FileName, Inline, Key, Range, TomlReader
from milepost.config.udp_settings import Encryption, TrustSettings, UdpListenerSettings
from milepost.listeners.limits import MqttLimits
from milepost.listeners.streams import CertificateField
from milepost.model.areas import Area
from milepost.model.durability import Durability
from milepost.model.incidents import EVENT_KINDS, EventKind
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed
from milepost.model.site_records import check_site_name
from milepost.model.topics import check_filter
from milepost.pipelines.settings import BatchSettings
from milepost.pipelines.spark_settings import check_spark_settings
from milepost.vetting.access import GEOCAST_M, WITHIN_M_MAX, AccessRule
from milepost.vetting.ownership import ClientIdPolicy, OtherUserPolicy
from milepost.vetting.payloads import PayloadRule
from milepost.vetting.reports import ReportLimits
from milepost.wire.area_text import area_from_text


def _check_filter(key: str, topic_filter: str) -> None:
    """Raise a ValueError that names the key of an invalid topic filter."""
    try:
        check_filter(topic_filter)
    except ValueError as fault:
        raise ValueError(f"{key}: {fault}") from None


def _check_address(key: str, address: str) -> None:
    """Raise a ValueError that names the key of an invalid address."""
    try:
        host_and_port(address)
    except ValueError as fault:
        raise ValueError(f"{key}: {fault}") from None


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """[dashboard]: the address of the map, the accepted host names, and the road layer."""

    address: str = "127.0.0.1:8470"
    hosts: tuple[str, ...] = ()
    token: str = ""
    roads: Annotated[str, FileName()] = ""
    history_minutes: float = 10.0
    vehicles_max: Annotated[int, Range(1, 1_000_000)] = 20_000

    def __post_init__(self) -> None:
        host_and_port(self.address)
        if self.token and len(self.token) < 12:
            raise ValueError(
                "token has fewer than 12 characters: give a longer one, or leave it empty to get a new one at each start"
            )
        if self.history_minutes > 240:
            raise ValueError(f"history_minutes is {self.history_minutes:g}, expected at most 240")


@dataclass(frozen=True, slots=True)
class IncidentSettings:
    """[incidents]: the kinds of incidents, and how late cells may arrive; also used by the pipeline that produces the cells."""

    allowed_lateness_s: float = 2.0
    kinds: tuple[EventKind, ...] = EVENT_KINDS
    roads: str = ""
    """Road network file; empty: alerts are addressed to circles."""
    upstream_s: float = 120.0
    """Reach of alerts upstream of an incident, in seconds of driving."""
    certificate: Annotated[str, FileName()] = ""
    """Certificate of the incident engine, for the service `incidents`; empty: alerts are not signed."""
    key: Annotated[str, FileName()] = ""

    def __post_init__(self) -> None:
        names = [kind.name for kind in self.kinds]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"kinds: two are named {min(duplicates)}; give each its own name")
        if not 1.0 <= self.upstream_s <= 3_600.0:
            raise ValueError(f"upstream_s is {self.upstream_s}, not in 1..3600")
        if bool(self.certificate) != bool(self.key):
            raise ValueError("certificate and key belong together: give both, or neither")


@dataclass(frozen=True, slots=True)
class PipelineProcessSettings:
    """[pipelines]: input topics, folder, and the settings of Spark."""

    folder: Annotated[str, FileName()] = "data/pipelines"
    topics: tuple[str, ...] = ("#",)
    allowed_lateness_s: float = 60.0
    batches: Annotated[BatchSettings, Inline()] = field(default_factory=BatchSettings)
    partitions: Annotated[int, Range(1, 10_000)] = 2
    memory: str = "1g"
    connector: str = ""
    http: str = "127.0.0.1:9465"
    spark: dict[str, str] = field(default_factory=dict)
    """Settings of Spark, by its own names."""

    def __post_init__(self) -> None:
        for one in self.topics:
            _check_filter("topics", one)
        if not self.folder:
            raise ValueError("folder is empty: name the folder for the checkpoints of the pipelines and the archive")
        if self.http:
            _check_address("http", self.http)
        try:
            check_spark_settings(self.spark)
        except ValueError as fault:
            raise ValueError(f"spark: {fault}") from None


_PACKET_BYTES_MAX: Final = 268_435_460  # the maximum remaining length of MQTT, and the fixed header


class Transport(Enum):
    """The transport below MQTT."""

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
        """Whether MQTT packets are in WebSocket frames."""
        return self in (Transport.WS, Transport.WSS)


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """[[mqtt.listen]]: one address for MQTT clients."""

    address: str = "127.0.0.1:1883"
    transport: Transport = Transport.TCP
    certificate: Annotated[str, FileName()] = ""
    key: Annotated[str, FileName()] = ""
    client_ca: Annotated[str, FileName()] = ""
    certificate_is_user: bool = False
    user_from: CertificateField = CertificateField.COMMON_NAME

    def __post_init__(self) -> None:
        host_and_port(self.address)
        if self.transport.is_encrypted and not (self.certificate and self.key):
            raise ValueError(f'transport "{self.transport.value}" needs certificate and key')
        if not self.transport.is_encrypted and (self.certificate or self.key or self.client_ca):
            encrypted = Transport.WSS if self.transport.is_websocket else Transport.TLS
            raise ValueError(f'transport "{self.transport.value}" uses no certificate; did you mean "{encrypted.value}"?')
        if self.certificate_is_user and not self.client_ca:
            raise ValueError("certificate_is_user needs client_ca: the certificate authority of the clients")
        if self.user_from is not CertificateField.COMMON_NAME and not self.certificate_is_user:
            raise ValueError(f'user_from = "{self.user_from.value}" needs certificate_is_user = true')

    @property
    def user_field(self) -> CertificateField | None:
        """The field of a client's certificate that names its user; None: the certificate names no user."""
        return self.user_from if self.certificate_is_user else None


@dataclass(frozen=True, slots=True)
class EdgeSettings:
    """[edge]: name, data folder and coverage."""

    name: str = "edge-1"
    data: Annotated[str, FileName()] = "data/edge"
    coverage: str = ""

    def __post_init__(self) -> None:
        try:
            self.area  # an invalid area fails here  # noqa: B018
        except Malformed as fault:
            hint = "" if fault.detail.endswith("?") else "; write it such as circle 40.7608,-111.891 5000"
            raise ValueError(f"coverage is not a valid area: {fault.detail}{hint}") from None
        if not self.name or not self.name.isprintable() or set(self.name) & set("/+#"):
            raise ValueError(f"name {self.name!r} is not valid: give at least one character, no / + # and no control characters")
        if not self.data:
            raise ValueError('data is empty: name a folder, or store nothing with durability = "none" in [storage]')

    @property
    def area(self) -> Area | None:
        """The coverage; None: everywhere."""
        return area_from_text(self.coverage) if self.coverage else None


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """[storage]: the durability of stored state."""

    durability: Durability = Durability.PROCESS_CRASH


@dataclass(frozen=True, slots=True)
class MqttListenerSettings:
    """[mqtt]: the limits that CONNACK announces, and the listeners."""

    topic_alias_max: Annotated[int, Range(0, 65_535)] = 10
    packet_bytes_max: Annotated[int, Range(128, _PACKET_BYTES_MAX)] = 2_000_000
    receive_max: Annotated[int, Range(1, 65_535)] = 20
    keep_alive_s_max: Annotated[int, Range(0, 65_535)] = 0
    handshake_s_max: Annotated[int, Range(1, 3_600)] = 10
    listen: tuple[ListenerSettings, ...] = (ListenerSettings(),)

    def __post_init__(self) -> None:
        if not self.listen:
            raise ValueError("listen is empty: give at least one listener")
        addresses = [one.address for one in self.listen if host_and_port(one.address)[1]]
        if duplicates := {address for address in addresses if addresses.count(address) > 1}:
            raise ValueError(f"listen: two listeners have the address {min(duplicates)}; give each its own port")


@dataclass(frozen=True, slots=True)
class AllLimits:
    """[limits]: the limits of the broker and of the MQTT listener, in one table."""

    broker: Annotated[BrokerLimits, Inline()] = field(default_factory=BrokerLimits)
    mqtt: Annotated[MqttLimits, Inline()] = field(default_factory=MqttLimits)


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """[access]: the users file, whether clients without credentials are admitted, the reach of geocasts, and the access rules."""

    users: Annotated[str, FileName()] = ""
    anonymous: bool = False
    geocast_m: float = GEOCAST_M
    client_ids: ClientIdPolicy = ClientIdPolicy.ANY
    other_user: OtherUserPolicy = OtherUserPolicy.REFUSE
    rules: tuple[AccessRule, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.geocast_m <= WITHIN_M_MAX:
            raise ValueError(f"geocast_m is {self.geocast_m:g}, not above 0 and up to {WITHIN_M_MAX:,.0f}")


@dataclass(frozen=True, slots=True)
class PayloadRuleSettings:
    """[[rules.payload]]: required payload for a topic filter; without requirements it exempts topics from the rules below it."""

    topic: str
    json: bool = False
    schema: Annotated[str, FileName()] = ""

    def __post_init__(self) -> None:
        _check_filter("topic", self.topic)

    @property
    def rule(self) -> PayloadRule:
        """The rule for admission."""
        return PayloadRule(self.topic, json=self.json, schema=self.schema or None)


@dataclass(frozen=True, slots=True)
class PriorityRule:
    """[[rules.priority]]: the priority class of a topic filter."""

    topic: str
    priority: Annotated[Priority, Key("class")]

    def __post_init__(self) -> None:
        _check_filter("topic", self.topic)


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """[rules]: payload, priority and alert rules; the first matching rule applies."""

    payload: tuple[PayloadRuleSettings, ...] = ()
    priority: tuple[PriorityRule, ...] = ()
    alert: tuple[AlertRule, ...] = STOCK_ALERT_RULES


@dataclass(frozen=True, slots=True)
class VettingSettings:
    """[vetting]: the plausibility limits of reports and messages, and the reputation file."""

    reports: Annotated[ReportLimits, Inline()] = field(default_factory=ReportLimits)
    rights_after_s: float = 5.0
    """How far the reports of a client must reach back before its place gives it rights; 0: a first report does."""
    reputation: Annotated[str, FileName()] = ""


@dataclass(frozen=True, slots=True)
class HttpListenerSettings:
    """[http]: the address of health checks and metrics."""

    address: str = "127.0.0.1:9464"

    def __post_init__(self) -> None:
        if self.address:
            host_and_port(self.address)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """[log]: the level and the format of log lines."""

    level: Level = Level.INFO
    line_format: Annotated[Format, Key("format")] = Format.TEXT


@dataclass(frozen=True, slots=True)
class SysTopicSettings:
    """[sys]: the interval of the metrics published below $SYS."""

    interval_s: int = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """All tables of the file."""

    edge: EdgeSettings = field(default_factory=EdgeSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)
    mqtt: MqttListenerSettings = field(default_factory=MqttListenerSettings)
    udp: UdpListenerSettings = field(default_factory=UdpListenerSettings)
    trust: TrustSettings = field(default_factory=TrustSettings)
    site: SiteSettings = field(default_factory=SiteSettings)
    hub: HubSettings = field(default_factory=HubSettings)
    incidents: IncidentSettings = field(default_factory=IncidentSettings)
    pipelines: PipelineProcessSettings = field(default_factory=PipelineProcessSettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    limits: AllLimits = field(default_factory=AllLimits)
    access: AccessSettings = field(default_factory=AccessSettings)
    rules: RuleSettings = field(default_factory=RuleSettings)
    vetting: VettingSettings = field(default_factory=VettingSettings)
    http: HttpListenerSettings = field(default_factory=HttpListenerSettings)
    log: LogSettings = field(default_factory=LogSettings)
    sys: SysTopicSettings = field(default_factory=SysTopicSettings)

    def __post_init__(self) -> None:
        if not self.site.log.name:
            return
        try:
            check_site_name(self.edge.name)
        except ValueError as fault:
            raise ValueError(f"edge.name: {fault}") from None
        if self.vetting.reputation:
            raise ValueError("vetting.reputation applies to an edge without a site: remove it, a site's log has the reputations")


def read_settings(path: Path) -> Settings:
    """Read a settings file; raise a `UsageFault` that names the problem and its line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise cannot_read(path, error) from None
    except UnicodeDecodeError:
        raise cannot_read(path, OSError("the file is not UTF-8 text")) from None
    return settings_from(text, source=str(path), folder=path.parent)


def settings_from(text: str, *, source: str, folder: Path) -> Settings:
    """Parse settings; *source* is their name in faults, and relative paths start at *folder*."""
    return TomlReader(text, source, folder).read(Settings)


def check_files(settings: Settings) -> None:
    """Raise a `UsageFault` for the first file named in the settings that cannot be read."""
    for key, name in _named_files(settings):
        try:
            if name:
                with Path(name).open("rb"):
                    pass
        except OSError as error:
            if key.startswith("[trust] revoked"):
                raise cannot_read(name, error, key=key, remedy=COPY_FROM_AUTHORITY) from None
            raise cannot_read(name, error, key=key) from None


def _named_files(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield the keys of all files, with table, and the files; an empty one is not set."""
    yield "[access] users", settings.access.users
    yield "[vetting] reputation", settings.vetting.reputation
    for key, file in asdict(settings.trust).items():
        yield f"[trust] {key}", file
    for listener in settings.mqtt.listen:
        for key in ("certificate", "key", "client_ca"):
            yield f"[[mqtt.listen]] {listener.address} {key}", getattr(listener, key)
    for rule in settings.rules.payload:
        yield f"[[rules.payload]] {rule.topic} schema", rule.schema


def check_open_listeners(settings: Settings) -> None:
    """Raise a `UsageFault` for the first listener that would admit anyone on the network, unless the settings say so.

    Loopback is exempt. Not a check of `Settings` itself: processes without listeners share the file with their edges.
    """
    if settings.access.anonymous:
        return
    for listener in settings.mqtt.listen:
        if not (is_loopback(listener.address) or settings.access.users or listener.client_ca):
            raise UsageFault(
                f"[[mqtt.listen]] {listener.address} would let anyone on the network publish and subscribe: name a users file"
                " ([access] users; make it with `milepost passwd`), require client certificates (client_ca of this listener),"
                " or state [access] anonymous = true"
            )
    udp = settings.udp
    if udp.address and udp.encryption is Encryption.NONE and not is_loopback(udp.address):
        raise UsageFault(
            f'[udp] address {udp.address} with encryption = "none" would let anyone on the network send as any endpoint: use'
            ' encryption = "noise" with the files of `milepost trust`, listen at a loopback address, or state'
            " [access] anonymous = true"
        )
