"""The control packets of MQTT 3.1.1 and 5 as values; `number` is the packet identifier of the specification."""

from dataclasses import dataclass

from milepost.wire.mqtt.fields import PacketType, Version
from milepost.wire.mqtt.properties import NO_PROPERTIES, Properties
from milepost.wire.mqtt.reason_codes import Code

__all__ = [
    "Acknowledge",
    "Auth",
    "Connack",
    "Connect",
    "Disconnect",
    "FilterRequest",
    "Packet",
    "PacketType",
    "Ping",
    "Pong",
    "Publish",
    "Suback",
    "Subscribe",
    "Unsuback",
    "Unsubscribe",
    "Version",
    "Will",
]


@dataclass(frozen=True, slots=True)
class Will:
    """The will: the server publishes it if a client goes without DISCONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connect:
    """A client's first packet; both sides use `version` from then on."""

    client_id: str
    version: Version
    clean_start: bool = True
    keep_alive_s: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = None
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connack:
    """The server's answer to CONNECT."""

    session_present: bool
    code: Code = Code.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)  # not frozen: that would double the time to make one
class Publish:
    """A message; `number` is set if and only if `qos` is above 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int | None = None
    properties: Properties = NO_PROPERTIES


@dataclass(slots=True)  # not frozen: that would double the time to make one
class Acknowledge:
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: PacketType
    packet_id: int
    code: Code = Code.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class FilterRequest:
    """One topic filter of SUBSCRIBE with its options; MQTT 3.1.1 has only `qos`."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A request for messages that match any of some filters."""

    packet_id: int
    requests: tuple[FilterRequest, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Suback:
    """The answer to SUBSCRIBE: a code for each of its requests, in their order."""

    packet_id: int
    codes: tuple[Code, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """A request to remove subscriptions, by their filters."""

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsuback:
    """The answer to UNSUBSCRIBE: a code for each of its filters, in their order; none in MQTT 3.1.1."""

    packet_id: int
    codes: tuple[Code, ...] = ()
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Ping:
    """PINGREQ: a client's keepalive."""


@dataclass(frozen=True, slots=True)
class Pong:
    """PINGRESP: the server's answer to PINGREQ."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """The last packet of a connection, with the reason; MQTT 3.1.1 has neither code nor properties."""

    code: Code = Code.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    """A step of an extended authentication exchange; MQTT 5 only."""

    code: Code = Code.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet = Publish | Acknowledge | Connect | Connack | Subscribe | Suback | Unsubscribe | Unsuback | Ping | Pong | Disconnect | Auth
