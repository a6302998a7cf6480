"""Where the time goes between two sites: one message at a time is seen in the log of its site, in that of the other, and at last.

    publisher ─▶ edge: in, outbox ─▶ log ─┬─▶ centre ─▶ log ─┬─▶ edge: out ─▶ subscriber
                                          └ seen here        └ and here

A reader of our own follows both logs, as centre and edges do. The figures are medians, alone and under DPSMD's load.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from bench.edge_load.generator import LoadFailed
from bench.harness import QUICK
from bench.hub_load.generator import loading
from bench.hub_load.spread import GAP_MS, MOST
from bench.hub_load.towns import Kafka, Plan, standing
from milepost.backbone.log import Edge, LogLost, Record
from milepost.model.sites import CROSS_HUB, Said
from milepost.model.survives import Survives
from milepost.service.site_logs import open_log
from milepost.service.site_settings import Backbone, SiteLog
from milepost.wire.records import from_record

SAMPLES = 60 if QUICK else 300
EACH_S = 0.02
LOAD_PACKETS = int(SAMPLES * EACH_S * 1_000 / GAP_MS) + 20
TOPIC = "bench/stage"
MARK = "stage-"
PATIENCE_S = 10.0
NAMES = ("edge in, outbox, log", "centre, log", "edge out")


@dataclass(frozen=True, slots=True)
class Stages:
    """Medians in milliseconds, in the order of `NAMES`, and of the whole."""

    backbone: Backbone
    is_loaded: bool
    parts_ms: tuple[float, ...]
    whole_ms: float
    samples: int


class Sightings:
    """When each message was seen where; by its number, in the order of the way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seen_ns: dict[int, dict[int, int]] = {}

    def see(self, number: int, where: int, at_ns: int) -> None:
        """The first time counts."""
        with self._lock:
            self.seen_ns.setdefault(number, {}).setdefault(where, at_ns)

    def take(self, where: int, records: Sequence[Record]) -> None:
        """From a log."""
        now_ns = time.monotonic_ns()
        for record in records:
            if record.value is None or TOPIC.encode() not in record.value:  # the load's
                continue
            said = from_record(record.value)
            for number in numbers_in(said.message.body) if isinstance(said, Said) else ():
                self.see(number, where, now_ns)

    def whole(self) -> list[list[int]]:
        """Those that were seen everywhere: the times, in order."""
        return [[seen[at] for at in range(4)] for seen in self.seen_ns.values() if len(seen) == 4]


def numbers_in(data: bytes) -> list[int]:
    """The numbers of our messages in some bytes, whatever is around them."""
    return [int(part[:8]) for part in data.split(MARK.encode())[1:] if part[:8].isdigit()]


def parts_of(whole: list[list[int]]) -> tuple[float, ...]:
    """Medians of the differences, in milliseconds."""
    return tuple(median((times[at + 1] - times[at]) / 1e6 for times in whole) for at in range(len(NAMES)))


def measure(backbone: Backbone, kafka: Kafka | None) -> list[Stages]:
    """Alone, and under load."""
    with standing(Plan((1, 1), backbone), kafka) as town:
        with loading("spread", town.ports[0], town.ports[1], 0, MOST[0]) as load:
            load.ask(MOST[1], 10, GAP_MS)
            found = [_stages(backbone, town.ports, town.logs, is_loaded=False)]
            beside = threading.Thread(target=load.ask, args=(MOST[1], LOAD_PACKETS, GAP_MS))
            beside.start()
            try:
                found.append(_stages(backbone, town.ports, town.logs, is_loaded=True))
            finally:
                beside.join()
        town.check()
    return found


def _stages(backbone: Backbone, ports: list[int], logs: list[SiteLog], *, is_loaded: bool) -> Stages:
    sightings = Sightings()
    with contextlib.ExitStack() as stack:
        for at, log in enumerate(logs):
            stack.enter_context(_following(log, partial(sightings.take, at + 1)))
        giver = stack.enter_context(_client(ports[0], "stage-giver", sightings))
        taker = stack.enter_context(_client(ports[1], "stage-taker", sightings))
        taker.sendall(_subscribe(TOPIC))
        _send_all(giver, sightings)
        whole = sightings.whole()
    if len(whole) < SAMPLES // 2:
        raise LoadFailed(f"stages: only {len(whole)} of {SAMPLES} messages were seen everywhere")
    return Stages(backbone, is_loaded, parts_of(whole), median((times[-1] - times[0]) / 1e6 for times in whole), len(whole))


def _send_all(giver: socket.socket, sightings: Sightings) -> None:
    """Probes until one arrives, then the samples, then patience."""
    deadline, number = time.monotonic() + PATIENCE_S, 0
    while 3 not in sightings.seen_ns.get(0, {}) and time.monotonic() < deadline:
        giver.sendall(_publish(TOPIC, f"{MARK}{0:08}"))
        time.sleep(0.1)
    sightings.seen_ns.clear()
    began = time.monotonic()
    for number in range(1, SAMPLES + 1):
        time.sleep(max(0.0, began + number * EACH_S - time.monotonic()))
        sightings.see(number, 0, time.monotonic_ns())
        giver.sendall(_publish(TOPIC, f"{MARK}{number:08}"))
    while len(sightings.whole()) < SAMPLES and time.monotonic() < deadline + SAMPLES * EACH_S:
        time.sleep(0.05)


@contextlib.contextmanager
def _following(site: SiteLog, take: "partial[None]") -> Iterator[None]:
    log = open_log(site, Survives.PROCESS_CRASH, "bench")
    following = log.follow({CROSS_HUB: Edge.END}, take, _lost)
    try:
        yield
    finally:
        following.close()
        log.close()


def _lost(gap: LogLost) -> None:
    raise gap


@contextlib.contextmanager
def _client(port: int, name: str, sightings: Sightings) -> Iterator[socket.socket]:
    """An MQTT connection; what comes in is looked through for our messages."""
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(_packet(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + _text(name)))
        reader = threading.Thread(target=_hear, args=(stream, sightings))
        reader.start()
        try:
            yield stream
        finally:
            stream.shutdown(socket.SHUT_RDWR)
            reader.join()


def _hear(stream: socket.socket, sightings: Sightings) -> None:
    with contextlib.suppress(OSError):
        rest = b""
        while data := stream.recv(65_536):
            now_ns = time.monotonic_ns()
            for number in numbers_in(rest + data):
                sightings.see(number, 3, now_ns)
            rest = (rest + data)[-len(MARK) - 8 :]


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first, len(body))) + body


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()


def _subscribe(topic_filter: str) -> bytes:
    return _packet(0x82, b"\x00\x01" + _text(topic_filter) + b"\x00")


def _publish(topic: str, payload: str) -> bytes:
    return _packet(0x30, _text(topic) + payload.encode())
