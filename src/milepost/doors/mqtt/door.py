"""The MQTT door: connections in, packets one after the other, and at the end of each turn what they are to get.

    on_bytes ─▶ PUBLISH of quality 0 to a known topic ─▶ into a run          ┐
             └▶ any other packet ─▶ connecting, publishing, subscribing      ├▶ settling ─▶ deliver, run ─▶ send ─▶ close
    on_tick  ─▶ silent connections                                           ┘

What must hold:
- a fault of a client ends its own connection and nothing else;
- a link is in `links` until it is `CLOSED`; its session knows it only while it is `OPEN`.
"""

from collections.abc import Callable
from functools import partial
from time import monotonic
from traceback import format_exception
from typing import Final, assert_never

from milepost.doors.mqtt.connecting import deny, on_connect, version_of_connect
from milepost.doors.mqtt.desk import Desk
from milepost.doors.mqtt.link import DIALECT_OWN, DIALECT_V3, DIALECT_V5, MqttLink, State
from milepost.doors.mqtt.plain import PUBACK, take_acknowledged, take_plain
from milepost.doors.mqtt.publishing import on_acknowledge, on_publish
from milepost.doors.mqtt.silences import Silences
from milepost.doors.mqtt.subscribing import ask_again, on_subscribe, on_unsubscribe
from milepost.doors.rules import Rules
from milepost.doors.streams import Stream
from milepost.doors.turns import READABLE, WRITABLE
from milepost.edge.sessions import Link, Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.wire.mqtt import (
    Acknowledge,
    Auth,
    Code,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Pong,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    decode,
    frame_at,
)

RESUME_BYTES: Final = 65_536
"""So much of what waits is sent to one connection in one turn."""

_TRACE_CHARACTERS: Final = 480
"""So much of where a fault of ours happened is told: its end."""

LINGER_S: Final = 2.0
"""So long the last bytes to a client may take."""


CheckPassword = Callable[["MqttDoor", MqttLink, Connect, str, bytes], None]
"""Begins to check a user's password; `MqttDoor.decide` is called when it is known."""


class MqttDoor:
    """All MQTT connections of an edge."""

    dialects: tuple[int, ...] = (DIALECT_V3, DIALECT_V5, DIALECT_OWN)

    def __init__(self, desk: Desk, check_password: CheckPassword | None = None) -> None:
        self.desk = desk
        self._corridor = desk.corridor
        self.deliver = desk.sender.deliver
        self.run = desk.sender.run
        self.release = desk.sender.release
        self._check_password = check_password
        self._silences = Silences()
        self._unfinished: dict[MqttLink, None] = {}
        self._wanting: dict[MqttLink, None] = {}
        self.links: set[MqttLink] = set()
        self.bytes_received = 0
        self.watch: Callable[[MqttLink], None] = _nothing
        """Told when a connection is to be watched for something else."""
        self.forget: Callable[[MqttLink], None] = _nothing
        """Told which connections are over, before they are closed."""

    def enter(self, stream: Stream, address: str) -> MqttLink:
        """Somebody connected; when too many have not said who they are, the oldest of them goes."""
        link = MqttLink(self, stream, address, monotonic())
        self.links.add(link)
        self._unfinished[link] = None
        self._silences.expect(link, self.desk.settings.handshake_s_max)
        if len(self._unfinished) > self.desk.settings.limits.handshakes_max:
            oldest = next(iter(self._unfinished))
            self._corridor.counts.refused[Reason.HANDSHAKES_FULL] += 1
            self._drop(oldest)
        return link

    def on_readable(self, link: MqttLink, now: Instant) -> None:
        """A connection has something to read, or is over."""
        data = link.stream.read()
        if data is None:
            return
        if not data:
            self._lose(link, now)
        elif link.state < State.CLOSING and (link.session is None or link.session.link is link):  # else it is taken over
            link.heard_at = monotonic()
            self.on_bytes(link, data, now)

    def on_writable(self, link: MqttLink, now: Instant) -> None:
        """A connection takes more."""
        del now
        is_all = self.desk.sender.send_rest(link)
        self._watch(link)
        if is_all:
            if link.state is State.CLOSING:
                link.stream.finish()
            self._wanting[link] = None

    def on_fault(self, link: MqttLink, fault: Exception, now: Instant) -> None:
        """A fault of ours: told in full, counted, and the connection on which it showed is over."""
        self._corridor.counts.faults += 1
        trace = "".join(format_exception(fault))[-_TRACE_CHARACTERS:]
        self.desk.log.warning("fault", address=link.address, error=repr(fault), traceback=trace)
        self._lose(link, now)

    def on_bytes(self, link: MqttLink, data: bytes, now: Instant) -> None:
        """Read packet after packet from what arrived; the rest is kept for the next time."""
        self.bytes_received += len(data)
        link.owed_bytes += len(data)
        if link.parts or link.state is State.CHECKING:
            link.parts.append(data)
            link.need -= len(data)
            if link.need > 0 or link.state is State.CHECKING:
                return
            data = b"".join(link.parts)
            link.parts = []
        link.open_in, link.has_promised = 0, False
        try:
            at = self._read(link, data, now)
        except Malformed as fault:
            self._object(link, data, fault)
            return
        if at < len(data) and link.state < State.CLOSING:
            link.parts = [data[at:]]
            link.need = _missing(data, at)
        self.desk.charge(link, now)

    def _read(self, link: MqttLink, data: bytes, now: Instant) -> int:
        """Take all whole packets; gives where the first one begins that is not whole."""
        at, size, size_max = 0, len(data), self.desk.settings.packet_bytes_max
        while at < size:
            if (session := link.session) is not None:
                if data[at] == PUBACK:
                    at = take_acknowledged(self._corridor, session, data, at)
                    if session.waiting is not None:
                        self._wanting[link] = None
                if not link.is_over_rate:
                    at = take_plain(self.desk, link, session, data, at, now)
                if at == size:
                    break
            frame = frame_at(data, at, size_max)
            if frame is None:
                return at
            packet = decode(data[at], data[frame[0] : frame[1]], link.version)
            at = frame[1]
            self._on_packet(link, packet, now)
            if link.state is not State.OPEN:
                break
        return at

    def _object(self, link: MqttLink, data: bytes, fault: Malformed) -> None:
        """What arrived is no MQTT. If it is CONNECT, some faults have an answer; with others the connection just ends."""
        version = version_of_connect(data) if link.state is State.NEW and fault.reason is not Reason.PACKET_TOO_LARGE else None
        is_answered = version is Version.V5 or fault.reason in (Reason.PROTOCOL_UNSUPPORTED, Reason.CLIENT_ID)
        if version is not None and is_answered:
            link.version = version
            deny(self.desk, link, fault.refused)  # [MQTT-3.1.4-1], [MQTT-3.1.2-2]
        else:
            self.desk.refuse(link, fault.refused)

    def _on_packet(self, link: MqttLink, packet: Packet, now: Instant) -> None:
        session = link.session
        if session is None:
            self._on_first_packet(link, packet, now)
            return
        match packet:
            case Publish():
                link.owed_messages += 1
                on_publish(self.desk, link, session, packet, now)
            case Acknowledge():
                on_acknowledge(self.desk, link, session, packet)
                if session.waiting is not None:
                    self._wanting[link] = None
            case Subscribe():
                on_subscribe(self.desk, link, session, packet, now)
            case Unsubscribe():
                on_unsubscribe(self.desk, link, session, packet)
            case Ping():
                self.desk.reply(link, Pong())  # [MQTT-3.12.4-1]
            case Disconnect():
                self._on_disconnect(link, session, packet, now)
            case Connect():  # [MQTT-3.1.0-2]
                self.desk.refuse(link, Refused(Reason.PROTOCOL_ERROR, "a second CONNECT"))
            case Auth():  # [MQTT-4.12.0-6]
                self.desk.refuse(link, Refused(Reason.PROTOCOL_ERROR, "AUTH without an authentication method in CONNECT"))
            case Connack() | Suback() | Unsuback() | Pong():
                self.desk.refuse(link, Refused(Reason.PROTOCOL_ERROR, f"{type(packet).__name__} from a client"))
            case _:
                assert_never(packet)

    def _on_first_packet(self, link: MqttLink, packet: Packet, now: Instant) -> None:
        if not isinstance(packet, Connect):  # [MQTT-3.1.0-1]
            self.desk.refuse(link, Refused(Reason.PROTOCOL_ERROR, "the first packet is not CONNECT"))
            return
        on_connect(self.desk, link, packet, partial(self._begin_check, link, packet), now)
        self._watch(link)
        self._finish_handshake(link)

    def _begin_check(self, link: MqttLink, packet: Connect, user: str, password: bytes) -> None:
        assert self._check_password is not None, "rules that need a password come with somebody who checks it"
        self._check_password(self, link, packet, user, password)

    def decide(self, link: MqttLink, decision: Callable[[], None], now: Instant) -> None:
        """It is known whether a password is right: go on with what the client sent meanwhile."""
        if link.state is not State.CHECKING:
            return
        link.state = State.NEW
        decision()
        self._watch(link)
        self._finish_handshake(link)
        if link.state is State.OPEN and link.parts:
            data, link.parts = b"".join(link.parts), []
            self.on_bytes(link, data, now)

    def _finish_handshake(self, link: MqttLink) -> None:
        if link.state is State.OPEN:
            del self._unfinished[link]
            self._silences.expect(link, link.patience_s)
            self._wanting[link] = None

    def _on_disconnect(self, link: MqttLink, session: Session, packet: Disconnect, now: Instant) -> None:
        """A client says goodbye. [MQTT-3.14.4-1] to [MQTT-3.14.4-3]"""
        expiry_s = packet.properties.session_expiry_s
        if expiry_s and not session.expiry_ns:  # [MQTT-3.14.2-2]
            self.desk.refuse(link, Refused(Reason.PROTOCOL_ERROR, "a session that was to end with its connection"))
            return
        is_willed = link.version is Version.V5 and packet.code != Code.SUCCESS
        expiry_ns = None if expiry_s is None else expiry_s * SECOND_NS
        self._corridor.close(session, now, is_willed=is_willed, expiry_ns=expiry_ns)
        self.desk.log.seldom("session closed", client=session.name, address=link.address)
        link.state = State.CLOSING
        self.desk.closing.append(link)

    def tick(self, now: Instant) -> None:
        """Once in a while: who was silent too long."""
        del now
        for link in self._silences.overdue(monotonic()):
            if link.state is State.OPEN:
                self.desk.refuse(link, Refused(Reason.KEEP_ALIVE_TIMEOUT))  # [MQTT-3.1.2-22]
            else:
                self._corridor.counts.refused[Reason.KEEP_ALIVE_TIMEOUT] += link.state < State.CLOSING
                self._drop(link)

    def expel(self, link: Link, why: Refused) -> None:
        """Close a connection, if it is one of ours, and say why."""
        if isinstance(link, MqttLink):
            self.desk.refuse(link, why)

    def redirect(self, link: Link, address: str) -> None:
        """Send a client on to another edge, if it is one of ours."""
        if isinstance(link, MqttLink):
            self.desk.send_on(link, address)

    def welcome(self, name: EndpointId, why: Refused | None, now: Instant) -> None:
        """Go on with a client that waited for its session, or send it away."""
        waiting = self.desk.arriving.pop(name, None)
        if waiting is not None:
            link = waiting.link
            decision = partial(waiting.enter, now) if why is None else partial(deny, self.desk, link, why)
            self.decide(link, decision, now)

    def take_back(self, why: Refused) -> None:
        """Do not give answers that rest on what could not be kept; who was to get them is disconnected."""
        for link in self.desk.sender.unsay():
            self.desk.end(link, Code.IMPLEMENTATION_SPECIFIC_ERROR, why)

    def let_go(self, session: Session, why: Refused) -> None:
        """Disconnect a session that cannot be served as it was promised."""
        if isinstance(session.link, MqttLink):
            self.desk.end(session.link, Code.IMPLEMENTATION_SPECIFIC_ERROR, why)

    def resume(self, now: Instant) -> None:
        """Have what waits handed out to those who take more."""
        for link in list(self._wanting):
            self._resume(link, now)

    def send(self, now: Instant) -> bool:
        """Hand everything to its connection, close what is over; tells whether more can go at once."""
        self._send()
        closing, self.desk.closing = self.desk.closing, []
        for link in closing:
            self._close(link, now)
        if closing:
            self._send()
        return bool(self._wanting)

    def _send(self) -> None:
        for link in self.desk.sender.send_all():
            self._watch(link)

    def _resume(self, link: MqttLink, now: Instant) -> None:
        session = link.session
        if (
            session is None
            or session.link is not link
            or link.unsent
            or not self._corridor.deliveries.resume(session, now, RESUME_BYTES)
        ):
            del self._wanting[link]

    def _watch(self, link: MqttLink) -> None:
        """Who has not taken what is for it is watched for taking more, and not read while that is too much.

        Nor is a client read while its password is checked: it will be, when it is known to be who it says.
        """
        is_stuck = link.unsent_size > 0 or link.stream.has_unsent
        is_full = link.unsent_size > self.desk.settings.limits.unsent_bytes_max or link.state is State.CHECKING
        mask = (0 if is_full else READABLE) | (WRITABLE if is_stuck else 0)
        if mask != link.mask and link.state is not State.CLOSED:
            link.mask = mask
            self.watch(link)

    def _close(self, link: MqttLink, now: Instant) -> None:
        """Say goodbye, and give the client a moment to take it."""
        self._detach(link, now)
        if link.state is State.CLOSED:
            return
        if link.farewell:
            self.desk.sender.put(link, link.farewell)
            self._send()
        link.heard_at = monotonic()
        self._silences.expect(link, LINGER_S)
        if not link.unsent:
            link.stream.finish()

    def _lose(self, link: MqttLink, now: Instant) -> None:
        """A connection is over."""
        self._detach(link, now)
        self._drop(link)

    def _detach(self, link: MqttLink, now: Instant) -> None:
        session, link.session = link.session, None
        self._unfinished.pop(link, None)
        if session is not None and session.link is link:
            self._corridor.close(session, now, is_willed=True)
            self.desk.log.seldom("session lost", client=session.name, address=link.address)

    def _drop(self, link: MqttLink) -> None:
        if link.state is State.CLOSED:
            return
        link.state = State.CLOSED
        self._unfinished.pop(link, None)
        self._wanting.pop(link, None)
        self._silences.forget(link)
        self.links.discard(link)
        self.forget(link)
        link.stream.close()

    def use(self, rules: Rules) -> None:
        """Go by other rules from now on; whoever is connected stays, and is held to them."""
        self.desk.use(rules)
        for link in self.links:
            if link.session is not None:
                link.routes = self.desk.new_routes()
                ask_again(self.desk, link, link.session)

    def shut(self) -> None:
        """Tell everybody that the edge stops; their sessions are kept."""
        for link in list(self.links):
            self.desk.end(link, Code.SERVER_SHUTTING_DOWN, Refused(Reason.SHUTTING_DOWN))


def _nothing(_link: MqttLink) -> None:
    """There is no loop."""


def _missing(data: bytes, at: int) -> int:
    """How many bytes of the packet at `at` have not arrived, as far as its beginning says."""
    size = shift = 0
    for count, byte in enumerate(data[at + 1 : at + 5], 1):
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return at + 1 + count + size - len(data)
    return 1
