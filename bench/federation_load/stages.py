"""Where the time goes between two sites: of single messages it is known when each log got them, alone and under DPSMD's load.

    publisher ─▶ edge: in, outbox ─▶ log ─▶ centre ─▶ log ─▶ edge: out ─▶ subscriber
                                      └ appended_at    └ appended_at

Nobody reads the logs for it while it is measured. Kafka's times are whole milliseconds: half of one is added.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import median

from milepost_experiments.papers.load.testbed import Kafka, Plan, standing

from bench.harness import QUICK
from milepost.config.site_settings import Backbone, SiteLog
from milepost.eventlog.log import Log, read_to_end
from milepost.model.durability import Durability
from milepost.model.sites import CROSS_HUB, ForwardedMessage
from milepost.runtime.site_logs import open_log
from milepost.wire.records import from_record
from milepost_experiments.papers.dpsmd.measurements import GAP_MS, MOST, WARM_PACKETS
from milepost_experiments.papers.load.programs import LoadFailed, loading

SAMPLES = 60 if QUICK else 300
EACH_S = 0.02
LOAD_PACKETS = int(SAMPLES * EACH_S * 1_000 / GAP_MS) + 20
TOPIC = "bench/stage"
MARK = b"stage-"
PATIENCE_S = 10.0
MILLISECOND_NS = 1_000_000
NAMES = ("edge in, outbox", "log, centre", "log, edge out")

Times = dict[int, int]
"""When each message was somewhere, by its number."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Medians in milliseconds, in the order of `NAMES`, and of the whole."""

    backbone: Backbone
    is_loaded: bool
    parts_ms: tuple[float, ...]
    whole_ms: float
    samples: int


def measure(backbone: Backbone, kafka: Kafka | None) -> list[Stages]:
    """Alone, and under load."""
    with (
        standing(Plan((1, 1), backbone), kafka) as town,
        loading("spread", *town.ports, 0, MOST[0]) as load,
    ):
        load.ask(MOST[1], WARM_PACKETS, GAP_MS)
        found = [_stages(backbone, town.ports, town.logs, is_loaded=False)]
        beside = threading.Thread(target=load.ask, args=(MOST[1], LOAD_PACKETS, GAP_MS))
        beside.start()
        try:
            found.append(_stages(backbone, town.ports, town.logs, is_loaded=True))
        finally:
            beside.join()
        town.check()
    return found


def medians_ms(places: list[Times]) -> tuple[float, ...]:
    """From place to place, over the messages that were everywhere, and from the first to the last."""
    everywhere = set.intersection(*(set(times) for times in places))
    ways = [*pairwise(places), (places[0], places[-1])]
    return tuple(median((later[one] - earlier[one]) / 1e6 for one in everywhere) for earlier, later in ways)


def numbers_in(data: bytes) -> list[int]:
    """The numbers of our messages in some bytes, whatever is around them."""
    return [int(part[:8]) for part in data.split(MARK)[1:] if part[:8].isdigit()]


def _stages(backbone: Backbone, ports: list[int], sites: list[SiteLog], *, is_loaded: bool) -> Stages:
    sent: Times = {}
    received: Times = {}
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(_opened(site)) for site in sites]
        giver = stack.enter_context(_client(ports[0], "stage-giver", {}))
        taker = stack.enter_context(_client(ports[1], "stage-taker", received))
        taker.sendall(_packet(0x82, b"\x00\x01" + _text(TOPIC) + b"\x00"))
        _open_way(giver, received)
        firsts = [log.ends(CROSS_HUB)[1] for log in logs]
        _send_all(giver, sent, received)
        late_ns = MILLISECOND_NS // 2 if backbone is Backbone.KAFKA else 0
        appended = [_appended(log, first, late_ns) for log, first in zip(logs, firsts, strict=True)]
    places = [sent, *appended, received]
    if (least := min(len(times) for times in places)) < SAMPLES // 2:
        raise LoadFailed(f"stages: only {least} of {SAMPLES} messages were found everywhere")
    *parts, whole = medians_ms(places)
    return Stages(backbone, is_loaded, tuple(parts), whole, least)


def _open_way(giver: socket.socket, received: Times) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not received:
        if time.monotonic() > deadline:
            raise LoadFailed("stages: no message arrives")
        giver.sendall(_publish(0))
        time.sleep(0.1)


def _send_all(giver: socket.socket, sent: Times, received: Times) -> None:
    began = time.monotonic()
    for number in range(1, SAMPLES + 1):
        time.sleep(max(0.0, began + number * EACH_S - time.monotonic()))
        sent[number] = time.time_ns()
        giver.sendall(_publish(number))
    deadline = time.monotonic() + PATIENCE_S
    while len(received) <= SAMPLES and time.monotonic() < deadline:
        time.sleep(0.05)


def _appended(log: Log, first: int, late_ns: int) -> Times:
    """When our messages stood in a log."""
    found: Times = {}
    for record in chain.from_iterable(read_to_end(log, CROSS_HUB, first)):
        for number in _numbers_of(record.value):
            found.setdefault(number, record.appended_at + late_ns)
    return found


def _numbers_of(value: bytes | None) -> Iterable[int]:
    if value is None or TOPIC.encode() not in value:  # the load's
        return ()
    said = from_record(value)
    return numbers_in(said.message.body) if isinstance(said, ForwardedMessage) else ()


@contextlib.contextmanager
def _opened(site: SiteLog) -> Iterator[Log]:
    log = open_log(site, Durability.PROCESS_CRASH, "bench")
    try:
        yield log
    finally:
        log.close()


@contextlib.contextmanager
def _client(port: int, name: str, received: Times) -> Iterator[socket.socket]:
    """An MQTT connection; what comes in is looked through for our messages."""
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(_packet(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + _text(name)))
        reader = threading.Thread(target=_hear, args=(stream, received))
        reader.start()
        try:
            yield stream
        finally:
            stream.shutdown(socket.SHUT_RDWR)
            reader.join()


def _hear(stream: socket.socket, received: Times) -> None:
    rest = b""
    with contextlib.suppress(OSError):
        while data := stream.recv(65_536):
            now_ns = time.time_ns()
            for number in numbers_in(rest + data):
                received.setdefault(number, now_ns)
            rest = (rest + data)[-len(MARK) - 8 :]


def _publish(number: int) -> bytes:
    return _packet(0x30, _text(TOPIC) + MARK + f"{number:08}".encode())


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first, len(body))) + body


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()
