"""MQTT clients that roam: they subscribe, publish, acknowledge, lose connections and connect elsewhere."""

from collections import deque
from typing import TYPE_CHECKING

from edge_in_memory import StreamInMemory
from milepost.listeners.mqtt.connection import MqttConnectionState
from milepost.wire.mqtt import (
    Acknowledge,
    Code,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PacketType,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
    Version,
    decode,
    encode,
    frame_at,
)
from simulation.roaming.ledger import Account, Message, Receipt

if TYPE_CHECKING:
    from simulation.roaming.attackers import Attacker
    from simulation.roaming.nodes import EdgeNode, EdgeProcess
    from simulation.roaming.world import World

WINDOW = 20


class ClientConnection:
    """One connection between a client and a process of an edge."""

    def __init__(self, node: "EdgeNode", process: "EdgeProcess", client: "RoamingClient | Attacker") -> None:
        self.node, self.process, self.client = node, process, client
        self.number = client.connections
        self.expects_session = client.has_session
        """Whether a session should be present."""
        self.has_arrived = False
        self.stream = StreamInMemory(self.number)
        self.stream.user = client.user
        self.connection = process.listener.add_connection(self.stream, "10.0.0.1")
        self.up: deque[tuple[bytes, Receipt | None]] = deque()
        self.is_lost = False
        """The client has dropped it; the edge may not know yet."""
        self.is_closed_at_edge = False
        self._at = 0

    @property
    def is_alive(self) -> bool:
        """Whether the edge still has its end open."""
        return self.node.process is self.process and self.connection.state < MqttConnectionState.CLOSED

    def deliver(self) -> None:
        """Deliver the next packet to the edge, or the end of the stream."""
        if not self.is_alive:
            self.up.clear()
            self.is_closed_at_edge = True
            return
        self.process.has_work = True
        if not self.has_arrived:
            self.has_arrived = True
            self.process.client_links[self.connection] = self
        if self.up:
            data, receipt = self.up.popleft()
            session = self.connection.session
            if receipt is not None and session is not None and session.connection is self.connection:
                self.process.unconfirmed.append(receipt)
        else:
            data, self.is_closed_at_edge = b"", True
        self.stream.incoming.append(data)
        self.process.listener.on_readable(self.connection, self.node.now)

    def read(self) -> list[Packet]:
        """Return the packets received since the last call."""
        found: list[Packet] = []
        data = bytes(self.stream.written)
        while (frame := frame_at(data, self._at, len(data) + 1)) is not None:
            found.append(decode(data[self._at], data[frame[0] : frame[1]], Version.V5))
            self._at = frame[1]
        return found

    @property
    def has_input(self) -> bool:
        return len(self.stream.written) > self._at or not self.is_alive or self.stream.is_finished


class RoamingClient:
    """One MQTT client with its session state."""

    def __init__(self, world: "World", name: str, expiry_s: int) -> None:
        self.world = world
        self.name = name
        self.expiry_s = expiry_s
        self.user: str | None = None
        """The user that it proves to be; None: it is anonymous."""
        self.account = world.ledger.accounts[name] = Account(name)
        self.client_link: ClientConnection | None = None
        self.is_open = False
        self.connections = 0
        self.has_session = False
        """Whether an edge may have a session."""
        self.is_clean_start = False
        self._received: set[int] = set()
        self._outgoing: dict[int, tuple[Message, bool]] = {}
        self._last_packet_id = 0
        self._era = 0
        self._pending_subscribes: dict[int, tuple[tuple[str, int], ...]] = {}

    # Connecting

    def connect(self, node: "EdgeNode", *, clean_start: bool = False) -> None:
        """Connect to an edge; an earlier connection is dropped."""
        process = node.process
        if process is None:
            return
        self.drop_connection()
        self.connections += 1
        self.has_session &= not clean_start
        self.client_link = ClientConnection(node, process, self)
        self.is_clean_start, self.has_session = clean_start, self.expiry_s > 0
        if clean_start or not self.expiry_s:
            self.account.start_clean(self.world.now)
            self._received.clear()
            self._outgoing.clear()
            self._era += 1
        self.world.note(f"{self.name} connects to {node.ref}{' with a clean start' if clean_start else ''}")
        properties = Properties(session_expiry_s=self.expiry_s or None, receive_maximum=WINDOW)
        self._send(Connect(self.name, Version.V5, clean_start or not self.expiry_s, 0, properties=properties))

    def drop_connection(self) -> None:
        """Drop the connection without DISCONNECT; the edge notices later, or never."""
        if self.client_link is not None:
            self.client_link.is_lost = True
            delivered = self.world.random.randrange(len(self.client_link.up) + 1)
            while len(self.client_link.up) > delivered:
                self.client_link.up.pop()
            self.world.lost_client_links.append(self.client_link)
            self.client_link, self.is_open = None, False
            self._pending_subscribes.clear()
            self.account.forget_unanswered()
            if not self.expiry_s:
                self.account.start_clean(self.world.now)

    def leave(self) -> None:
        """Disconnect."""
        if self.client_link is not None and self.is_open:
            self._send(Disconnect())
            client_link = self.client_link
            client_link.is_lost = True
            self.world.lost_client_links.append(client_link)
            self.client_link, self.is_open = None, False
            if not self.expiry_s:
                self.account.start_clean(self.world.now)

    # Outgoing

    def subscribe(self, topic_filter: str, qos: int) -> None:
        if self.is_open:
            self.account.add_subscription(topic_filter, qos, self.world.now)
            self._send_subscribe(((topic_filter, qos),))

    def unsubscribe(self, topic_filter: str) -> None:
        if self.is_open:
            self.account.end_subscription(topic_filter, self.world.now)
            self._send(Unsubscribe(self._next_packet_id(), (topic_filter,)))

    def publish(self, topic: str, qos: int, size: int = 0) -> None:
        if not self.is_open or self.client_link is None or len(self._outgoing) >= WINDOW:
            return
        body = self.world.next_body(self.name, size)
        site = self.client_link.node.ref.site
        merges = self.account.merges
        message = Message(body, topic, qos, self.name, self._era, site, self.world.now, merges, connections=[self.connections])
        self.world.ledger.messages[body] = message
        number = self._next_packet_id() if qos else None
        if number is not None:
            self._outgoing[number] = (message, False)
        self._send(Publish(topic, body, qos, False, False, number))

    def _send_subscribe(self, subscriptions: tuple[tuple[str, int], ...]) -> None:
        number = self._next_packet_id()
        self._pending_subscribes[number] = subscriptions
        requests = tuple(FilterRequest(topic_filter, qos, retain_handling=2) for topic_filter, qos in subscriptions)
        self._send(Subscribe(number, requests))

    def _send(self, packet: Packet, receipt: Receipt | None = None) -> None:
        if self.client_link is not None:
            self.client_link.up.append((encode(packet, Version.V5), receipt))

    def _next_packet_id(self) -> int:
        while True:
            self._last_packet_id = self._last_packet_id % 65_535 + 1
            if self._last_packet_id not in self._outgoing:
                return self._last_packet_id

    # Incoming

    def read_input(self) -> None:
        """Read the received packets and answer them."""
        client_link = self.client_link
        if client_link is None:
            return
        for packet in client_link.read():
            self._on_packet(packet)
            if self.client_link is not client_link:
                return
        if client_link.stream.is_finished or not client_link.is_alive:
            self.drop_connection()

    def _on_packet(self, packet: Packet) -> None:
        match packet:
            case Connack():
                self._on_connack(packet)
            case Publish():
                self._on_publish(packet)
            case Acknowledge():
                self._on_acknowledge(packet)
            case Suback(number, codes):
                assert all(code <= Code.GRANTED_QOS_2 for code in codes), codes
                self.account.grant(self._pending_subscribes.pop(number, ()))
            case Disconnect():
                self.world.note(f"{self.name} gets DISCONNECT {packet.code.name}")
                self.drop_connection()
            case _:
                pass

    def _on_connack(self, packet: Connack) -> None:
        if packet.code:
            self.world.note(f"{self.name} is refused: {packet.code.name}")
            self.drop_connection()
            return
        self.is_open = True
        self.world.note(f"{self.name} is connected, session {'present' if packet.session_present else 'new'}")
        if packet.session_present:
            if self.is_clean_start or not self.expiry_s:
                self.account.faults.append(f"{self.name} made a clean start and got a session")
            for number, (message, is_released) in self._outgoing.items():
                if is_released:
                    self._send(Acknowledge(PacketType.PUBREL, number))
                else:
                    message.sends += 1
                    message.connections.append(self.connections)
                    site = self.client_link.node.ref.site if self.client_link is not None else message.site
                    message.was_repeated_elsewhere |= site != message.site
                    message.site = site
                    self._send(Publish(message.topic, message.body, message.qos, False, True, number))
            return
        self._received.clear()
        self._outgoing.clear()
        self._era += 1
        if self.account.current:
            self._send_subscribe(tuple((subscription.filter, subscription.qos) for subscription in self.account.current))

    def _on_publish(self, packet: Publish) -> None:
        receipt = Receipt(packet.payload, packet.packet_id or 0, packet.dup, self.connections)
        if self.world.is_noting:
            self.world.note(
                f"{self.name} gets {packet.payload[:20]!r} packet id {packet.packet_id} {'DUP' if packet.dup else ''}"
            )
        same = [one for one in self.account.receipts if (one.number, one.body) == (receipt.number, receipt.body)]
        if packet.qos == 2 and packet.packet_id in self._received and same:
            receipt = same[-1]
            if not packet.dup and not self.account.merges:
                self.account.faults.append(f"{self.name} got {receipt} once more without the DUP flag")
        else:
            if packet.qos == 2 and packet.packet_id in self._received and not self.account.merges:
                self.account.faults.append(f"{self.name} got {receipt} under a packet id in use")
            self.account.receipts.append(receipt)
        if packet.qos == 1:
            self._send(Acknowledge(PacketType.PUBACK, packet.packet_id or 0), receipt)
        elif packet.qos == 2:
            self._received.add(packet.packet_id or 0)
            self._send(Acknowledge(PacketType.PUBREC, packet.packet_id or 0), receipt)

    def _on_acknowledge(self, packet: Acknowledge) -> None:
        match packet.kind:
            case PacketType.PUBREL:
                self._received.discard(packet.packet_id)
                self._send(Acknowledge(PacketType.PUBCOMP, packet.packet_id))
            case PacketType.PUBACK | PacketType.PUBREC if packet.packet_id in self._outgoing:
                message, _ = self._outgoing[packet.packet_id]
                if packet.code < Code.UNSPECIFIED_ERROR:
                    message.acked_at = message.acked_at or self.world.now
                if packet.kind is PacketType.PUBACK or packet.code >= Code.UNSPECIFIED_ERROR:
                    del self._outgoing[packet.packet_id]
                else:
                    self._outgoing[packet.packet_id] = (message, True)
                    self._send(Acknowledge(PacketType.PUBREL, packet.packet_id))
            case PacketType.PUBREC:
                self._send(Acknowledge(PacketType.PUBREL, packet.packet_id))
            case PacketType.PUBCOMP:
                self._outgoing.pop(packet.packet_id, None)
            case _:
                pass
