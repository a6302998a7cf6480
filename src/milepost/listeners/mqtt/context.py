"""State shared by all MQTT connections: settings, rate limits, the broker, the sender, and replies to clients."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from milepost.broker.broker import Broker
from milepost.broker.session import Session
from milepost.listeners.diagnostic_log import DiagnosticLog
from milepost.listeners.limits import MqttLimits
from milepost.listeners.mqtt.connection import MqttConnection, MqttConnectionState
from milepost.listeners.mqtt.sender import MqttSender
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason, Refused
from milepost.vetting.rates import RateLimits
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Code,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Pong,
    Properties,
    Version,
    code_of,
    encode,
    nearest_legal,
)

_CHECKS_PER_BURST: Final = 100
"""Rate checks per burst."""

REDIRECT_GRACE_NS: Final = 10 * SECOND_NS
"""Time a redirected client has to connect to another edge before its will is published."""


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """Values the listener announces in CONNACK, and its limits."""

    topic_alias_max: int = 10
    packet_bytes_max: int = 2_000_000
    receive_max: int = 20
    keep_alive_s_max: int = 0
    handshake_s_max: int = 10
    limits: MqttLimits = field(default_factory=MqttLimits)


class AwaitingSession(NamedTuple):
    """A connection whose client waits for its session."""

    connection: MqttConnection
    connect: Callable[[Instant], None]


class MqttContext:
    """State shared by all MQTT connections."""

    def __init__(self, broker: Broker, settings: MqttSettings, log: DiagnosticLog) -> None:
        self.broker = broker
        self.settings = settings
        self.log = log
        self.sender = MqttSender(broker, settings.limits.unsent_bytes_max)
        self._messages_step = settings.limits.messages_burst / _CHECKS_PER_BURST
        self._bytes_step = settings.limits.bytes_burst / _CHECKS_PER_BURST
        limits = settings.limits
        self.rates = RateLimits(
            limits.messages_per_s,
            limits.messages_burst,
            limits.bytes_per_s,
            limits.bytes_burst,
            limits.subscribes_per_s,
            limits.subscribes_burst,
            is_deferred=True,
        )
        self.closing: list[MqttConnection] = []
        """Connections to close at the end of the tick."""
        self.awaiting_session: dict[EndpointId, AwaitingSession] = {}
        """Connections whose clients wait for their session to arrive from another edge."""

    def reply(self, connection: MqttConnection, packet: Packet) -> None:
        """Send *packet* to a client; without its properties if it would exceed the client's maximum packet size."""
        data = encode(packet, connection.version)
        is_too_large = connection.packet_max and len(data) > connection.packet_max
        if is_too_large and not isinstance(packet, Ping | Pong):  # [MQTT-3.4.2-2] and the same clause of the other packets
            data = encode(replace(packet, properties=NO_PROPERTIES), connection.version)
        self.sender.put(connection, data)

    def reason_properties(self, connection: MqttConnection, refused: Refused, *, is_always: bool = False) -> Properties:
        """Return the reason string as properties, if the client accepts it. [MQTT-3.1.2-29]"""
        return Properties(reason_string=str(refused)[:1000]) if connection.wants_reason_strings or is_always else NO_PROPERTIES

    def refuse(self, connection: MqttConnection, refused: Refused) -> None:
        """Count a refusal and disconnect the client with its reason code."""
        self.broker.refuse(refused)
        self.disconnect(connection, code_of(refused.reason), refused)

    def redirect(self, connection: MqttConnection, address: str) -> None:
        """Redirect a client to another edge (MQTT 5, 4.11); its session follows by handover."""
        session = connection.session
        if session is None or session.connection is not connection:
            return
        if session.will is not None:
            session.will = replace(session.will, delay_ns=max(session.will.delay_ns, REDIRECT_GRACE_NS))
        server = address.partition("://")[2].partition("/")[0]
        self.disconnect(
            connection,
            Code.USE_ANOTHER_SERVER,
            Refused(Reason.OUTSIDE_COVERAGE, f"{address} covers this position"),
            server=server,
        )

    def disconnect(
        self, connection: MqttConnection, code: Code, refused: Refused | None = None, *, server: str | None = None
    ) -> None:
        """Disconnect a client; MQTT 5 clients receive the reason and the server reference. [MQTT-3.14.0-1]"""
        if connection.state >= MqttConnectionState.CLOSING:
            return
        if connection.state is MqttConnectionState.OPEN and connection.version is Version.V5:
            properties = self.reason_properties(connection, refused, is_always=True) if refused is not None else NO_PROPERTIES
            code = nearest_legal(code, PacketType.DISCONNECT)
            server_only = Properties(server_reference=server)
            for candidate in (replace(properties, server_reference=server), server_only, NO_PROPERTIES):
                connection.last_packet = encode(Disconnect(code, candidate), connection.version)
                if not connection.packet_max or len(connection.last_packet) <= connection.packet_max:  # [MQTT-3.14.2-3]
                    break
        connection.state = MqttConnectionState.CLOSING
        self.closing.append(connection)
        if refused is not None:
            client = connection.identity.client_id if connection.identity else ""
            self.log.info_limited(
                "disconnected", client=client, address=connection.address, reason=refused.reason.name, detail=refused.detail
            )

    def charge(self, connection: MqttConnection, session: Session, now: Instant) -> None:
        """Charge a client's rate limits for its input, in steps: one check costs more than most packets do."""
        if (
            connection.uncharged_messages < self._messages_step
            and connection.uncharged_bytes < self._bytes_step
            and not session.is_over_rate
        ):
            return
        self.broker.charge(session, connection.uncharged_messages, connection.uncharged_bytes, now)
        connection.uncharged_messages = connection.uncharged_bytes = 0
