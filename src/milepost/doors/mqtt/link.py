"""Links: the door's end of one MQTT connection, from its first byte to its last."""

from enum import IntEnum
from typing import Final, Protocol

from milepost.doors.mqtt.routes import Routes
from milepost.doors.streams import Stream
from milepost.doors.turns import BROKEN, READABLE, WRITABLE
from milepost.edge.sessions import Link, Session
from milepost.model.instants import Instant
from milepost.vetting.access import Who
from milepost.vetting.rates import Bucket
from milepost.wire.mqtt import Version

DIALECT_V3: Final = 3
DIALECT_V5: Final = 5
DIALECT_OWN: Final = 6
"""MQTT 5 with topic aliases, or with a smaller packet than the edge's: no two such connections can be sent the same bytes."""


class State(IntEnum):
    """How far a connection is."""

    NEW = 0
    """CONNECT has not come yet."""
    CHECKING = 1
    """Somebody else looks at the password; what follows CONNECT is read later."""
    OPEN = 2
    CLOSING = 3
    """The last bytes are on their way; whatever comes in is thrown away."""
    CLOSED = 4


class Door(Protocol):
    """Who looks after a link."""

    def on_readable(self, link: "MqttLink", now: Instant) -> None:
        """It has something to read."""

    def on_writable(self, link: "MqttLink", now: Instant) -> None:
        """It takes more."""

    def on_fault(self, link: "MqttLink", fault: Exception, now: Instant) -> None:
        """Something went wrong that never should."""


class MqttLink(Link):
    """One connection."""

    __slots__ = (
        "address",
        "aliases_in",
        "aliases_out",
        "aliases_out_max",
        "bytes_bucket",
        "door",
        "due_at",
        "farewell",
        "has_promised",
        "heard_at",
        "is_over_rate",
        "is_telling",
        "mask",
        "messages_bucket",
        "need",
        "open_in",
        "owed_bytes",
        "owed_messages",
        "packet_max",
        "parts",
        "patience_s",
        "routes",
        "session",
        "state",
        "stream",
        "subscribes_bucket",
        "unsent",
        "unsent_size",
        "version",
        "who",
    )

    def __init__(self, door: "Door", stream: Stream, address: str, heard_at: float) -> None:
        super().__init__()
        self.door = door
        self.stream = stream
        self.address = address
        self.state = State.NEW
        self.version = Version.V3
        self.session: Session | None = None
        self.who: Who | None = None
        self.routes: Routes | None = None
        self.parts: list[bytes] = []
        """The beginning of a packet whose end has not arrived."""
        self.need = 0
        """How many bytes must be there before it is worth looking again."""
        self.unsent: list[memoryview] = []
        self.unsent_size = 0
        """Bytes that the connection has not taken yet."""
        self.mask = READABLE
        """What it is watched for."""
        self.heard_at = heard_at
        self.patience_s = 0.0
        """After so long a silence the connection is given up; 0: never."""
        self.due_at = 0
        """The second in which it is looked at again."""
        self.farewell = b""
        """The last packet it is to get."""
        self.owed_messages = 0
        self.owed_bytes = 0
        """What it sent since it was last held against its rate."""
        self.packet_max = 0
        """The largest packet that the client takes; 0: any."""
        self.is_telling = True
        """Whether the client wants reason strings."""
        self.aliases_in: dict[int, str] | None = None
        self.aliases_out: dict[str, int] | None = None
        self.aliases_out_max = 0
        self.open_in = 0
        """Messages of quality 1 that came in this turn: their confirmation is not out yet."""
        self.has_promised = False
        """Whether an answer since it was last read rests on what is to be kept."""
        self.is_over_rate = False
        self.messages_bucket: Bucket | None = None
        self.bytes_bucket: Bucket | None = None
        self.subscribes_bucket: Bucket | None = None

    @property
    def scheme(self) -> str:
        """How the client came, if it can be told to go elsewhere: MQTT 3.1.1 has no word for it, and no word has the scheme."""
        return self.stream.scheme if self.version is Version.V5 else ""

    def on_event(self, mask: int, now: Instant) -> None:
        """The connection can be read or written, or is broken. A fault of ours costs this connection, and is told."""
        try:
            if mask & WRITABLE:
                self.door.on_writable(self, now)
            if mask & (READABLE | BROKEN):
                self.door.on_readable(self, now)
        except Exception as fault:  # noqa: BLE001  # what one client can cause must not stop the others
            self.door.on_fault(self, fault, now)
