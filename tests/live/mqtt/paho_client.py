"""paho-mqtt for tests: its callbacks fill queues, and every wait has a deadline."""

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

WAIT_S: Final = 10.0


def props(kind: int, **values: object) -> Properties:
    """Return properties of a packet: `props(PacketTypes.PUBLISH, TopicAlias=1)`."""
    found = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(found, name, value)
    return found


def value(message: MQTTMessage, name: str) -> Any:
    """Return a property of a message, which must be present."""
    return getattr(message.properties, name)


class Paho:
    """A client with its network thread."""

    def __init__(self, client_id: str, level: int, *, clean: bool = True, session_s: int = 0) -> None:
        self.level = level
        self._clean = clean
        self._session_s = session_s
        version = MQTTProtocolVersion.MQTTv5 if level == 5 else MQTTProtocolVersion.MQTTv311
        clean_session = clean if level == 4 else None
        self.client = Client(CallbackAPIVersion.VERSION2, client_id, clean_session=clean_session, protocol=version)
        self.client.on_connect = self._on_connect
        self.client.on_disconnect = self._on_disconnect
        self.client.on_subscribe = self._on_subscribe
        self.client.on_message = self._on_message
        self.connected: queue.Queue[tuple[ConnectFlags, ReasonCode, Properties | None]] = queue.Queue()
        self.disconnected: queue.Queue[ReasonCode] = queue.Queue()
        self.granted: queue.Queue[list[ReasonCode]] = queue.Queue()
        self.inbox: queue.Queue[MQTTMessage] = queue.Queue()

    def connect(self, port: int, **more: object) -> tuple[bool, Properties | None]:
        """Connect; return whether the session was present, and the CONNACK's properties."""
        options: dict[str, Any] = {}
        if self.level == 5:
            properties = props(PacketTypes.CONNECT, SessionExpiryInterval=self._session_s, **more)
            options = {"clean_start": self._clean, "properties": properties}
        self.client.connect("127.0.0.1", port, 60, **options)
        self.client.loop_start()
        flags, reason, found = self.connected.get(timeout=WAIT_S)
        assert not reason.is_failure, reason
        return flags.session_present, found

    def subscribe(
        self, topic: str, qos: int = 0, options: SubscribeOptions | None = None, number: int | None = None
    ) -> list[int]:
        """Subscribe; return the granted codes."""
        properties = props(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=number) if number else None
        self.client.subscribe(topic, qos, options, properties)
        return [code.value for code in self.granted.get(timeout=WAIT_S)]

    def publish(self, topic: str, payload: str | bytes, qos: int = 0, *, retain: bool = False, **values: Any) -> None:
        """Publish, and wait until the exchange is over; keywords are properties of version 5."""
        properties = props(PacketTypes.PUBLISH, **values) if values else None
        info = self.client.publish(topic, payload, qos, retain, properties)
        assert info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS
        info.wait_for_publish(WAIT_S)
        assert info.is_published()

    def message(self, within_s: float = WAIT_S) -> MQTTMessage:
        return self.inbox.get(timeout=within_s)

    def payloads(self, count: int) -> list[bytes]:
        return [bytes(self.message().payload) for _ in range(count)]

    def leave(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()

    def vanish(self) -> None:
        """Break the connection without a DISCONNECT."""
        sock = self.client.socket()
        self.client.loop_stop()
        if sock is not None:
            sock.close()

    def _on_connect(
        self, client: Client, userdata: object, flags: ConnectFlags, reason: ReasonCode, found: Properties | None
    ) -> None:
        self.connected.put((flags, reason, found))

    def _on_disconnect(
        self, client: Client, userdata: object, flags: DisconnectFlags, reason: ReasonCode, found: Properties | None
    ) -> None:
        self.disconnected.put(reason)

    def _on_subscribe(
        self, client: Client, userdata: object, mid: int, codes: list[ReasonCode], found: Properties | None
    ) -> None:
        self.granted.put(codes)

    def _on_message(self, client: Client, userdata: object, message: MQTTMessage) -> None:
        self.inbox.put(message)


@contextmanager
def paho(port: int, client_id: str, level: int, *, clean: bool = True, session_s: int = 0, **more: object) -> Iterator[Paho]:
    """Connect a client, and disconnect it at the end; keywords are properties of CONNECT."""
    found = Paho(client_id, level, clean=clean, session_s=session_s)
    found.connect(port, **more)
    try:
        yield found
    finally:
        found.leave()
