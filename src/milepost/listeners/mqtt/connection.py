"""The server side of one MQTT connection, from its first byte to its last."""

from enum import IntEnum
from typing import Final, Protocol

from milepost.broker.session import Connection, Session
from milepost.listeners.event_loop import BROKEN, READABLE, WRITABLE
from milepost.listeners.streams import ServerStream
from milepost.model.instants import Instant
from milepost.vetting.access import ClientIdentity
from milepost.wire.mqtt import Version

ENCODING_V3: Final = 3
ENCODING_V5: Final = 5
ENCODING_OWN: Final = 6
"""MQTT 5 with topic aliases, or with a packet limit below the edge's: every connection needs its own bytes."""


class MqttConnectionState(IntEnum):
    """Life cycle of a connection."""

    NEW = 0
    """No CONNECT yet."""
    CHECKING = 1
    """The password is being checked, or the session is on its way; packets after CONNECT are read later."""
    OPEN = 2
    CLOSING = 3
    """The last bytes are being sent; input is discarded."""
    CLOSED = 4


class MqttConnectionHandler(Protocol):
    """The listener that owns a connection."""

    def on_readable(self, connection: "MqttConnection", now: Instant) -> None:
        """Handle a connection that is readable or closed by its peer."""

    def on_writable(self, connection: "MqttConnection", now: Instant) -> None:
        """Handle a connection that is writable."""

    def on_fault(self, connection: "MqttConnection", fault: Exception, now: Instant) -> None:
        """Handle an internal error on a connection."""


class MqttConnection(Connection):
    """One MQTT connection."""

    __slots__ = (
        "address",
        "aliases_in",
        "aliases_out",
        "aliases_out_max",
        "awaits_storage",
        "check_at",
        "handler",
        "identity",
        "last_packet",
        "mask",
        "missing_bytes",
        "packet_max",
        "partial_packet",
        "received_at",
        "session",
        "state",
        "stream",
        "timeout_s",
        "unacknowledged_in",
        "uncharged_bytes",
        "uncharged_messages",
        "unsent",
        "unsent_size",
        "version",
        "wants_message_ids",
        "wants_reason_strings",
    )

    def __init__(self, handler: "MqttConnectionHandler", stream: ServerStream, address: str, received_at: float) -> None:
        super().__init__()
        self.handler = handler
        self.stream = stream
        self.address = address
        self.state = MqttConnectionState.NEW
        self.version = Version.V3
        self.session: Session | None = None
        self.identity: ClientIdentity | None = None
        self.partial_packet: list[bytes] = []
        """An incomplete packet."""
        self.missing_bytes = 0
        """Bytes missing before decoding is worth another attempt."""
        self.unsent: list[memoryview] = []
        self.unsent_size = 0
        """Bytes that the socket has not accepted yet."""
        self.mask = READABLE
        """Events the loop watches for."""
        self.received_at = received_at
        self.timeout_s = 0.0
        """Maximum silence before the connection is closed; 0: unlimited."""
        self.check_at = 0
        """Second of the next keepalive check."""
        self.last_packet = b""
        """The last packet to send."""
        self.uncharged_messages = 0
        self.uncharged_bytes = 0
        """Received since the last rate check."""
        self.packet_max = 0
        """Maximum packet size of the client; 0: unlimited."""
        self.wants_message_ids = False
        """Whether the client asked for response information: acknowledgements then carry the message id."""
        self.wants_reason_strings = True
        """Request Problem Information: whether the client accepts reason strings."""
        self.aliases_in: dict[int, str] | None = None
        self.aliases_out: dict[str, int] | None = None
        self.aliases_out_max = 0
        self.unacknowledged_in = 0
        """QoS 1 messages received in this tick, whose PUBACK is not sent yet."""
        self.awaits_storage = False
        """Whether a reply since the last read depends on changes that are still to be stored."""

    @property
    def scheme(self) -> str:
        """The client's URL scheme, which a server reference cannot carry; empty for MQTT 3.1.1, which has no redirects."""
        return self.stream.scheme if self.version is Version.V5 else ""

    def on_event(self, mask: int, now: Instant) -> None:
        """Dispatch an event to the listener. An internal error is logged and closes this connection only."""
        try:
            if mask & WRITABLE:
                self.handler.on_writable(self, now)
            if mask & (READABLE | BROKEN):
                self.handler.on_readable(self, now)
        except Exception as fault:  # noqa: BLE001  # one client must not stop the others
            self.handler.on_fault(self, fault, now)
