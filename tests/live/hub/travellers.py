"""MQTT clients that travel from edge to edge, keep the session state that the specification asks of clients, and write a ledger.

A crowd of them is run by one thread, so that a test can kill and start processes meanwhile. Who loses its connection comes back
by itself, to the edge where it is meant to be.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from ledger import Ledger
from live.mqtt.packets import V5, Kind, P, Packet, ack, connect, disconnect, maybe_split, parse, publish, subscribe

WINDOW: Final = 20
LASTING: Final = [(P.SESSION_EXPIRY, 3600), (P.RECEIVE_MAXIMUM, 50)]
AGAIN_S: Final = 0.1
"""Who was refused or cut off waits so long."""
LOOK_S: Final = 0.01
WAIT_S: Final = 30.0


class Door(Protocol):
    """Where clients connect."""

    @property
    def tcp(self) -> int: ...


class Leave(Enum):
    """How somebody leaves an edge."""

    POLITELY = "with a DISCONNECT"
    ABRUPTLY = "by closing the connection"
    UNSEEN = "without a word: the connection stands open and nobody is at its other end"


@dataclass
class Outgoing:
    """A message that is under way: its number, and whether PUBREC has come for it."""

    number: int
    is_received: bool = False


@dataclass
class Traveller:
    """A session that stays, and connections that come and go. `rate` is how many it sends in a second."""

    name: str
    ledger: Ledger
    topic: str = ""
    """What it sends to; its quality is the ledger's."""
    qos: int = 1
    filters: tuple[str, ...] = ()
    rate: float = 0.0
    port: int = 0
    connection: int = 0
    is_joined: bool = False
    presents: list[bool] = field(default_factory=list)
    """Of each connection that was let in: whether the edge had its session."""
    refusals: list[str] = field(default_factory=list)
    """With what words messages were refused."""
    turned_away: int = 0
    """How often it was not let in."""
    line: socket.socket | None = None
    _unseen: list[socket.socket] = field(default_factory=list)
    _unread: bytearray = field(default_factory=bytearray)
    _under_way: dict[int, Outgoing] = field(default_factory=dict)
    _held: dict[int, tuple[str, int]] = field(default_factory=dict)
    _next_id: int = 0
    _due: float = 0.0
    _flushed_at: float = 0.0
    _again_at: float = 0.0
    _is_subscribed: bool = False

    @property
    def is_quiet(self) -> bool:
        """Whether all it sent is settled."""
        return not self._under_way

    @property
    def is_listening(self) -> bool:
        """Whether it is let in, and what it asked for is granted."""
        return self.is_joined and (self._is_subscribed or not self.filters)

    def leave(self, how: Leave) -> None:
        """End the connection, if there is one."""
        self.is_joined = False
        if self.line is None:
            return
        if how is Leave.UNSEEN:
            self._unseen.append(self.line)
        else:
            if how is Leave.POLITELY:
                self._send(disconnect())
            self.line.close()
        self.line = None

    def end(self) -> None:
        """Close everything."""
        self.leave(Leave.ABRUPTLY)
        for one in self._unseen:
            one.close()

    def step(self, now: float) -> None:
        """Come back if it is not there; send what is due."""
        if self.line is None and self.port and now >= self._again_at:
            self._connect(now)
        passed, self._flushed_at = now - (self._flushed_at or now), now
        self._due += passed * self.rate
        self.flush()

    def burst(self, count: int) -> None:
        """Have so many sent as fast as it goes, whatever the rate."""
        self._due += count

    def stop(self) -> None:
        """Send nothing that is not under way."""
        self.rate = self._due = 0.0

    def flush(self) -> None:
        """Send what is due and fits into the window."""
        while self.is_joined and self._due >= 1 and len(self._under_way) < WINDOW:
            self._due -= 1
            self._publish()

    def _connect(self, now: float) -> None:
        self._again_at = now + AGAIN_S
        self._unread.clear()
        with contextlib.suppress(OSError):
            self.line = socket.create_connection(("127.0.0.1", self.port), timeout=5)
            self.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connection += 1
            self._send(connect(self.name, V5, clean=False, keep_alive=0, props=LASTING))

    def _send(self, *packets: bytes) -> None:
        if self.line is not None and packets:
            with contextlib.suppress(OSError):  # cut off: what was meant to go is state, and goes again
                self.line.sendall(b"".join(packets))

    def read(self, now: float) -> None:
        """Take what has come."""
        assert self.line is not None
        try:
            more = self.line.recv(1 << 18)
        except OSError:
            more = b""
        self._unread += more
        while (place := maybe_split(self._unread)) is not None:
            begin, end = place
            packet = parse(self._unread[0], bytes(self._unread[begin:end]), end, V5)
            del self._unread[:end]
            self._on_packet(packet)
        if not more:
            self._again_at = now + AGAIN_S
            self.leave(Leave.ABRUPTLY)

    def _on_packet(self, found: Packet) -> None:
        match found.kind:
            case Kind.CONNACK if found.reason == 0:
                self._resume(found.session_present)
            case Kind.CONNACK:
                self.turned_away += 1
            case Kind.DISCONNECT:
                pass  # the edge closes; it comes back
            case Kind.SUBACK:
                assert found.codes == (2,) * len(self.filters), found
                self._is_subscribed = True
            case Kind.PUBLISH:
                self._on_message(found)
            case Kind.PUBREL:
                self._held.pop(found.packet_id, None)
                self._send(ack(Kind.PUBCOMP, found.packet_id))
            case _:
                self._on_answer(found)

    def _resume(self, is_present: bool) -> None:
        """[MQTT-4.4.0-1]; without a session, what it had of the old one is void."""
        self.presents.append(is_present)
        self.is_joined = True
        if not is_present:
            for sender, number in self._held.values():
                self.ledger.leave_open(self.name, sender, number)
            self._held.clear()
            self._is_subscribed = False
        if not self._is_subscribed and self.filters:
            self._send(subscribe(1, *((one, 2 | 0x20) for one in self.filters)))
        again = [(packet_id, one) for packet_id, one in self._under_way.items() if is_present or not one.is_received]
        self._under_way = dict(again)
        for packet_id, one in again:
            if one.is_received:
                self._send(ack(Kind.PUBREL, packet_id))
            else:
                self.ledger.send_again(self.name, one.number)
                self._send(self._packet(packet_id, one.number, dup=is_present))

    def _on_message(self, found: Packet) -> None:
        text, digits = found.payload.split(b" ")[:2]
        sender, number = text.decode(), int(digits)
        if found.qos < 2 or found.packet_id not in self._held:
            self.ledger.see(self.name, sender, number, connection=self.connection, is_repetition=found.is_dup)
        if found.qos == 1:
            self._send(ack(Kind.PUBACK, found.packet_id))
        elif found.qos == 2:
            self._held[found.packet_id] = sender, number
            self._send(ack(Kind.PUBREC, found.packet_id))

    def _on_answer(self, found: Packet) -> None:
        one = self._under_way.get(found.packet_id)
        assert one is not None, f"{self.name} did not expect {found}"
        if found.kind in (Kind.PUBACK, Kind.PUBREC):
            if found.reason < 0x80:
                self.ledger.acknowledge(self.name, one.number)
            else:
                self.refusals.append(f"{found.reason:#x} {found.one(P.REASON_STRING)}")
                self.ledger.refuse(self.name, one.number)
        if found.kind == Kind.PUBREC and found.reason < 0x80:
            one.is_received = True
            self._send(ack(Kind.PUBREL, found.packet_id))
        else:
            del self._under_way[found.packet_id]
            self.flush()

    def _publish(self) -> None:
        number = self.ledger.send(self.name)
        if not self.qos:
            self._send(self._packet(0, number, dup=False))
            return
        while (next_id := self._next_id % 65535 + 1) in self._under_way:
            self._next_id = next_id
        self._next_id = next_id
        self._under_way[next_id] = Outgoing(number)
        self._send(self._packet(next_id, number, dup=False))

    def _packet(self, packet_id: int, number: int, *, dup: bool) -> bytes:
        payload = f"{self.name} {number} ".encode() + b"." * (number * 37 % 200)
        return publish(self.topic, payload, qos=self.qos, packet_id=packet_id, dup=dup)


class Crowd:
    """Runs travellers; a test calls its methods from its own thread."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.travellers: dict[str, Traveller] = {}
        self.lock = threading.RLock()
        """Held by whoever uses the ledger."""
        self._is_over = False
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def sender(self, name: str, edge: Door, *, topic: str, qos: int = 1, rate: float = 0.0) -> Traveller:
        """Somebody who sends, if the rate says so at once."""
        with self.lock:
            self.ledger.open(name, qos)
            return self._add(Traveller(name, self.ledger, topic, qos, rate=rate), edge)

    def taker(self, name: str, edge: Door, *filters: str, of: tuple[str, ...] = ()) -> Traveller:
        """Somebody who gets all that senders send from now on: comes back when it hears each of them."""
        with self.lock:
            made = self._add(Traveller(name, self.ledger, filters=filters), edge)
        self.wait(lambda: made.is_listening, f"{name} listens")
        self.tune_in(name, *of)
        return made

    def tune_in(self, taker: str, *senders: str) -> None:
        """Let senders send until a taker hears them: so long its wish is on its way to their edges. From then on all counts."""
        for sender in senders:
            until = time.monotonic() + WAIT_S
            while not self.hears(taker, sender):
                assert time.monotonic() < until, f"{taker} never hears {sender}"
                self.burst(1, sender)
                time.sleep(5 * LOOK_S)
            with self.lock:
                self.ledger.ask(taker, sender)

    def hears(self, taker: str, sender: str) -> bool:
        """Whether anything of a sender has reached a taker."""
        with self.lock:
            return bool(self.ledger.seen(taker, sender))

    def note(self, taker: str, payload: bytes, *, connection: int) -> None:
        """A taker that is not of the crowd got a message."""
        sender, number = payload.split(b" ")[:2]
        with self.lock:
            self.ledger.see(taker, sender.decode(), int(number), connection=connection, is_repetition=False)

    def move(self, name: str, edge: Door, how: Leave = Leave.ABRUPTLY) -> None:
        """Be somewhere else."""
        with self.lock:
            one = self.travellers[name]
            one.leave(how)
            one.port, one._again_at = edge.tcp, 0.0

    def arrive(self, name: str, edge: Door, how: Leave = Leave.ABRUPTLY, *, within_s: float = WAIT_S) -> bool:
        """Be somewhere else and let in; whether the session was there."""
        one = self.travellers[name]
        before = len(one.presents)
        self.move(name, edge, how)
        self.wait(lambda: len(one.presents) > before, f"{name} is let in", within_s=within_s)
        return one.presents[-1]

    def set_rate(self, rate: float, *names: str) -> None:
        """Let some send at another rate."""
        with self.lock:
            for name in names:
                self.travellers[name].rate = rate

    def burst(self, count: int, *names: str) -> None:
        """Let some send as fast as it goes."""
        with self.lock:
            for name in names:
                self.travellers[name].burst(count)

    def wait(self, is_so: Callable[[], bool], what: str, *, within_s: float = WAIT_S) -> None:
        """Until something holds of the crowd or the ledger."""
        until = time.monotonic() + within_s
        while True:
            with self.lock:
                if self._fault is not None:
                    raise AssertionError(f"the crowd ended: {self._fault}") from self._fault
                if is_so():
                    return
                assert time.monotonic() < until, f"never: {what}\n" + "\n".join(self.ledger.faults()[:30])
            time.sleep(LOOK_S)

    def wait_seen(self, taker: str, sender: str, more: int) -> None:
        """Until a taker has seen so many more."""
        with self.lock:
            before = len(self.ledger.seen(taker, sender))
        self.wait(lambda: len(self.ledger.seen(taker, sender)) >= before + more, f"{taker} sees {more} more of {sender}")

    def finish(self, *, within_s: float = 40.0) -> None:
        """Send no more; come back when all that was acknowledged has arrived, or will not."""
        with self.lock:
            for one in self.travellers.values():
                one.stop()
        self.wait(lambda: all(one.is_quiet for one in self.travellers.values()), "all is settled", within_s=within_s)
        until = time.monotonic() + within_s
        while time.monotonic() < until and not self._is_complete():
            time.sleep(LOOK_S)
        time.sleep(0.3)  # what comes twice comes now

    def check(self) -> None:
        """Nothing lost, doubled, out of order or made up."""
        with self.lock:
            assert self._fault is None, self._fault
            faults = self.ledger.faults()
            assert not faults, "\n".join(faults[:30])

    def close(self) -> None:
        """End all connections."""
        self._is_over = True
        self._thread.join()
        for one in self.travellers.values():
            one.end()

    def _is_complete(self) -> bool:
        with self.lock:
            return self.ledger.is_complete()

    def _add(self, traveller: Traveller, edge: Door) -> Traveller:
        traveller.port = edge.tcp
        self.travellers[traveller.name] = traveller
        return traveller

    def _run(self) -> None:
        try:
            while not self._is_over:
                with self.lock:
                    sockets = {one.line: one for one in self.travellers.values() if one.line is not None}
                ready = _readable(sockets)
                with self.lock:
                    now = time.monotonic()
                    for found in ready:
                        if sockets[found].line is found:
                            sockets[found].read(now)
                    for one in self.travellers.values():
                        one.step(now)
        except BaseException as fault:  # noqa: BLE001  # told to the test's thread
            self._fault = fault


def _readable(sockets: "dict[socket.socket, Traveller]") -> list[socket.socket]:
    with selectors.DefaultSelector() as looking:
        for one in sockets:
            with contextlib.suppress(ValueError, OSError):  # closed meanwhile
                looking.register(one, selectors.EVENT_READ)
        if not looking.get_map():
            time.sleep(LOOK_S)
            return []
        return [key.fileobj for key, _ in looking.select(LOOK_S)]  # type: ignore[misc]


@contextlib.contextmanager
def crowd() -> Iterator[Crowd]:
    """A crowd whose connections are closed in the end."""
    made = Crowd()
    try:
        yield made
    finally:
        made.close()
