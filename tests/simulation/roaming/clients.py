"""MQTT clients that roam: they subscribe, publish, acknowledge, vanish, and appear elsewhere; and their connections."""

from collections import deque
from typing import TYPE_CHECKING

from edge_in_memory import StreamInMemory
from milepost.listeners.mqtt.connection import State
from milepost.wire.mqtt import (
    Acknowledge,
    Code,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    Properties,
    Publish,
    Request,
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
    from simulation.roaming.nodes import EdgeNode, EdgeProcess
    from simulation.roaming.world import World

WINDOW = 20


class Line:
    """One connection between a client and a process of an edge."""

    def __init__(self, node: "EdgeNode", process: "EdgeProcess", client: "Roamer") -> None:
        self.node, self.process, self.client = node, process, client
        self.number = client.connections
        self.expects = client.has_session
        """Whether a session is to be there."""
        self.has_arrived = False
        self.stream = StreamInMemory(self.number)
        self.link = process.door.enter(self.stream, "10.0.0.1")
        self.up: deque[tuple[bytes, Receipt | None]] = deque()
        self.is_lost = False
        """The client has gone; the edge may not know."""
        self.is_noticed = False
        self._at = 0

    @property
    def is_alive(self) -> bool:
        """Whether the edge's end of it is there."""
        return self.node.process is self.process and self.link.state < State.CLOSED

    def deliver(self) -> None:
        """The next packet arrives at the edge, or the news that there are none."""
        if not self.is_alive:
            self.up.clear()
            self.is_noticed = True
            return
        self.process.wants_turn = True
        if not self.has_arrived:
            self.has_arrived = True
            self.process.lines[self.link] = self
        if self.up:
            data, receipt = self.up.popleft()
            session = self.link.session
            if receipt is not None and session is not None and session.link is self.link:
                self.process.unsettled.append(receipt)
        else:
            data, self.is_noticed = b"", True
        self.stream.incoming.append(data)
        self.process.door.on_readable(self.link, self.node.now)

    def read(self) -> list[Packet]:
        """What has come since."""
        found: list[Packet] = []
        data = bytes(self.stream.taken)
        while (frame := frame_at(data, self._at, len(data) + 1)) is not None:
            found.append(decode(data[self._at], data[frame[0] : frame[1]], Version.V5))
            self._at = frame[1]
        return found

    @property
    def has_news(self) -> bool:
        return len(self.stream.taken) > self._at or not self.is_alive or self.stream.is_finished


class Roamer:
    """One MQTT client, with the state that a client keeps for its session."""

    def __init__(self, world: "World", name: str, expiry_s: int) -> None:
        self.world = world
        self.name = name
        self.expiry_s = expiry_s
        self.account = world.ledger.accounts[name] = Account(name)
        self.line: Line | None = None
        self.is_open = False
        self.connections = 0
        self.has_session = False
        """Whether a session may be somewhere."""
        self.will_be_fresh = False
        self._received: set[int] = set()
        self._out: dict[int, tuple[Message, bool]] = {}
        self._number = 0
        self._era = 0
        self._asked: dict[int, tuple[tuple[str, int], ...]] = {}

    # Connecting

    def connect(self, node: "EdgeNode", *, is_fresh: bool = False) -> None:
        """Appear at an edge; whatever connection there was is no more."""
        process = node.process
        if process is None:
            return
        self.vanish()
        self.connections += 1
        self.has_session &= not is_fresh
        self.line = Line(node, process, self)
        self.will_be_fresh, self.has_session = is_fresh, self.expiry_s > 0
        if is_fresh or not self.expiry_s:
            self.account.begin_anew(self.world.now)
            self._received.clear()
            self._out.clear()
            self._era += 1
        self.world.note(f"{self.name} connects to {node.ref}{' anew' if is_fresh else ''}")
        properties = Properties(session_expiry_s=self.expiry_s or None, receive_maximum=WINDOW)
        self._send(Connect(self.name, Version.V5, is_fresh or not self.expiry_s, 0, properties=properties))

    def vanish(self) -> None:
        """Be gone without a word; the edge learns of it later, or never."""
        if self.line is not None:
            self.line.is_lost = True
            kept = self.world.random.randrange(len(self.line.up) + 1)
            while len(self.line.up) > kept:
                self.line.up.pop()
            self.world.lost_lines.append(self.line)
            self.line, self.is_open = None, False
            self._asked.clear()
            self.account.forget_asked()
            if not self.expiry_s:
                self.account.begin_anew(self.world.now)

    def leave(self) -> None:
        """Say goodbye."""
        if self.line is not None and self.is_open:
            self._send(Disconnect())
            line = self.line
            line.is_lost = True
            self.world.lost_lines.append(line)
            self.line, self.is_open = None, False
            if not self.expiry_s:
                self.account.begin_anew(self.world.now)

    # Saying

    def subscribe(self, topic_filter: str, qos: int) -> None:
        if self.is_open:
            self.account.wish(topic_filter, qos, self.world.now)
            self._ask(((topic_filter, qos),))

    def unsubscribe(self, topic_filter: str) -> None:
        if self.is_open:
            self.account.unwish(topic_filter, self.world.now)
            self._send(Unsubscribe(self._next_number(), (topic_filter,)))

    def publish(self, topic: str, qos: int, size: int = 0) -> None:
        if not self.is_open or self.line is None or len(self._out) >= WINDOW:
            return
        body = self.world.next_body(self.name, size)
        site = self.line.node.ref.site
        merges = self.account.merges
        message = Message(body, topic, qos, self.name, self._era, site, self.world.now, merges, connections=[self.connections])
        self.world.ledger.messages[body] = message
        number = self._next_number() if qos else None
        if number is not None:
            self._out[number] = (message, False)
        self._send(Publish(topic, body, qos, False, False, number))

    def _ask(self, wishes: tuple[tuple[str, int], ...]) -> None:
        number = self._next_number()
        self._asked[number] = wishes
        requests = tuple(Request(topic_filter, qos, retain_handling=2) for topic_filter, qos in wishes)
        self._send(Subscribe(number, requests))

    def _send(self, packet: Packet, receipt: Receipt | None = None) -> None:
        if self.line is not None:
            self.line.up.append((encode(packet, Version.V5), receipt))

    def _next_number(self) -> int:
        while True:
            self._number = self._number % 65_535 + 1
            if self._number not in self._out:
                return self._number

    # Hearing

    def look(self) -> None:
        """Read what came, and answer it."""
        line = self.line
        if line is None:
            return
        for packet in line.read():
            self._on_packet(packet)
            if self.line is not line:
                return
        if line.stream.is_finished or not line.is_alive:
            self.vanish()

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
                self.account.grant(self._asked.pop(number, ()))
            case Disconnect():
                self.world.note(f"{self.name} is told {packet.code.name}")
                self.vanish()
            case _:
                pass

    def _on_connack(self, packet: Connack) -> None:
        if packet.code:
            self.world.note(f"{self.name} is refused: {packet.code.name}")
            self.vanish()
            return
        self.is_open = True
        self.world.note(f"{self.name} is in, session {'present' if packet.session_present else 'new'}")
        if packet.session_present:
            if self.will_be_fresh or not self.expiry_s:
                self.account.faults.append(f"{self.name} began anew and got a session")
            for number, (message, is_released) in self._out.items():
                if is_released:
                    self._send(Acknowledge(Kind.PUBREL, number))
                else:
                    message.sends += 1
                    message.connections.append(self.connections)
                    message.site = self.line.node.ref.site if self.line is not None else message.site
                    self._send(Publish(message.topic, message.body, message.qos, False, True, number))
            return
        self._received.clear()
        self._out.clear()
        self._era += 1
        if self.account.current:
            self._ask(tuple((wish.filter, wish.qos) for wish in self.account.current))

    def _on_publish(self, packet: Publish) -> None:
        receipt = Receipt(packet.payload, packet.number or 0, packet.dup, self.connections)
        if self.world.is_noting:
            self.world.note(f"{self.name} gets {packet.payload[:20]!r} number {packet.number} {'again' if packet.dup else ''}")
        same = [one for one in self.account.receipts if (one.number, one.body) == (receipt.number, receipt.body)]
        if packet.qos == 2 and packet.number in self._received and same:
            receipt = same[-1]
            if not packet.dup and not self.account.merges:
                self.account.faults.append(f"{self.name} got {receipt} once more and was not told so")
        else:
            if packet.qos == 2 and packet.number in self._received and not self.account.merges:
                self.account.faults.append(f"{self.name} got {receipt} under a number in use")
            self.account.receipts.append(receipt)
        if packet.qos == 1:
            self._send(Acknowledge(Kind.PUBACK, packet.number or 0), receipt)
        elif packet.qos == 2:
            self._received.add(packet.number or 0)
            self._send(Acknowledge(Kind.PUBREC, packet.number or 0), receipt)

    def _on_acknowledge(self, packet: Acknowledge) -> None:
        match packet.kind:
            case Kind.PUBREL:
                self._received.discard(packet.number)
                self._send(Acknowledge(Kind.PUBCOMP, packet.number))
            case Kind.PUBACK | Kind.PUBREC if packet.number in self._out:
                message, _ = self._out[packet.number]
                if packet.code < Code.UNSPECIFIED_ERROR:
                    message.acked_at = message.acked_at or self.world.now
                if packet.kind is Kind.PUBACK or packet.code >= Code.UNSPECIFIED_ERROR:
                    del self._out[packet.number]
                else:
                    self._out[packet.number] = (message, True)
                    self._send(Acknowledge(Kind.PUBREL, packet.number))
            case Kind.PUBREC:
                self._send(Acknowledge(Kind.PUBREL, packet.number))
            case Kind.PUBCOMP:
                self._out.pop(packet.number, None)
            case _:
                pass
