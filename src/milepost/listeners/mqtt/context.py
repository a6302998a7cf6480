"""State shared by all MQTT connections: settings, rate limits, the broker, the sender, and replies to clients."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from milepost.broker.broker import Broker
from milepost.broker.session import Session
from milepost.listeners.limits import MqttLimits
from milepost.listeners.log import Log
from milepost.listeners.mqtt.connection import MqttConnection, State
from milepost.listeners.mqtt.sender import Sender
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason, Refused
from milepost.vetting.rates import RateLimits
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Code,
    Disconnect,
    Kind,
    Packet,
    Ping,
    Pong,
    Properties,
    Version,
    code_of,
    encode,
    fitting,
)

_STEPS: Final = 100
"""Rate checks per burst."""

ON_ITS_WAY_NS: Final = 10 * SECOND_NS
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


class Arriving(NamedTuple):
    """A connection whose client waits for its session."""

    link: MqttConnection
    enter: Callable[[Instant], None]


class MqttContext:
    """State shared by all MQTT connections."""

    def __init__(self, broker: Broker, settings: MqttSettings, log: Log) -> None:
        self.broker = broker
        self.settings = settings
        self.log = log
        self.sender = Sender(broker, settings.limits.unsent_bytes_max)
        self._messages_step = settings.limits.messages_burst / _STEPS
        self._bytes_step = settings.limits.bytes_burst / _STEPS
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
        self.arriving: dict[EndpointId, Arriving] = {}
        """Connections whose clients wait for their session to arrive from another edge."""

    def reply(self, link: MqttConnection, packet: Packet) -> None:
        """Send *packet* to a client; without its properties if it would exceed the client's maximum packet size."""
        data = encode(packet, link.version)
        if link.packet_max and len(data) > link.packet_max and not isinstance(packet, Ping | Pong):  # [MQTT-3.4.2-2] and its kin
            data = encode(replace(packet, properties=NO_PROPERTIES), link.version)
        self.sender.put(link, data)

    def because(self, link: MqttConnection, refused: Refused, *, is_always: bool = False) -> Properties:
        """Return the reason string as properties, if the client wants them. [MQTT-3.1.2-29]"""
        return Properties(reason_string=str(refused)[:1000]) if link.is_telling or is_always else NO_PROPERTIES

    def refuse(self, link: MqttConnection, refused: Refused) -> None:
        """Count a refusal and disconnect the client with its reason code."""
        self.broker.refuse(refused)
        self.end(link, code_of(refused.reason), refused)

    def send_on(self, link: MqttConnection, address: str) -> None:
        """Redirect a client to another edge (MQTT 5, 4.11); its session follows by handover."""
        session = link.session
        if session is None or session.link is not link:
            return
        if session.will is not None:
            session.will = replace(session.will, delay_ns=max(session.will.delay_ns, ON_ITS_WAY_NS))
        server = address.partition("://")[2].partition("/")[0]
        self.end(link, Code.USE_ANOTHER_SERVER, Refused(Reason.OUTSIDE_COVERAGE, f"{address} covers the place"), server=server)

    def end(self, link: MqttConnection, code: Code, why: Refused | None = None, *, server: str | None = None) -> None:
        """Disconnect a client; MQTT 5 clients receive the reason and the server reference. [MQTT-3.14.0-1]"""
        if link.state >= State.CLOSING:
            return
        if link.state is State.OPEN and link.version is Version.V5:
            properties = self.because(link, why, is_always=True) if why is not None else NO_PROPERTIES
            code = fitting(code, Kind.DISCONNECT)
            where = Properties(server_reference=server)
            for said in (replace(properties, server_reference=server), where, NO_PROPERTIES):
                link.farewell = encode(Disconnect(code, said), link.version)
                if not link.packet_max or len(link.farewell) <= link.packet_max:  # [MQTT-3.14.2-3]
                    break
        link.state = State.CLOSING
        self.closing.append(link)
        if why is not None:
            client = link.who.client if link.who else ""
            self.log.seldom("disconnected", client=client, address=link.address, reason=why.reason.name, detail=why.detail)

    def charge(self, link: MqttConnection, session: Session, now: Instant) -> None:
        """Charge a client's rate limits for its input, in steps: one check costs more than most packets do."""
        if link.owed_messages < self._messages_step and link.owed_bytes < self._bytes_step and not session.is_over_rate:
            return
        self.broker.charge(session, link.owed_messages, link.owed_bytes, now)
        link.owed_messages = link.owed_bytes = 0
