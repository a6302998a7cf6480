"""The time of single messages between two sites, by stage, without other load and under DPSMD's load.

    publisher ─▶ edge: in, outbox ─▶ log ─▶ central hub ─▶ log ─▶ edge: out ─▶ subscriber
                                      └ appended_at         └ appended_at

The logs are read only after the measurement. Times of Kafka are whole milliseconds: half a millisecond is added.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import median

from bench.harness import QUICK
from milepost.config.site_settings import LogType, SiteLog
from milepost.eventlog.log import Log, read_to_end
from milepost.model.durability import Durability
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.runtime.site_logs import open_log
from milepost.wire.records import from_record
from milepost_experiments.papers.dpsmd.measurements import GAP_MS, LARGEST, WARM_PACKETS
from milepost_experiments.papers.load.programs import LoadFailed, running_load
from milepost_experiments.papers.load.testbed import Kafka, Topology, running_testbed

SAMPLES = 60 if QUICK else 300
EACH_S = 0.02
LOAD_PACKETS = int(SAMPLES * EACH_S * 1_000 / GAP_MS) + 20
TOPIC = "bench/stage"
MARKER = b"stage-"
TIMEOUT_S = 10.0
MILLISECOND_NS = 1_000_000
NAMES = ("edge in, outbox", "log, central hub", "log, edge out")

Times = dict[int, int]
"""The time of each message at one place, by its number."""


@dataclass(frozen=True, slots=True)
class Stages:
    """Medians in milliseconds, in the order of `NAMES`, and of the total."""

    log_type: LogType
    is_loaded: bool
    parts_ms: tuple[float, ...]
    total_ms: float
    samples: int


def measure(log_type: LogType, kafka: Kafka | None) -> list[Stages]:
    """Measure without other load, and under load."""
    with (
        running_testbed(Topology((1, 1), log_type), kafka) as testbed,
        running_load("latency", *testbed.ports, 0, LARGEST[0]) as load,
    ):
        load.request(LARGEST[1], WARM_PACKETS, GAP_MS)
        results = [_stages(log_type, testbed.ports, testbed.logs, is_loaded=False)]
        background_load = threading.Thread(target=load.request, args=(LARGEST[1], LOAD_PACKETS, GAP_MS))
        background_load.start()
        try:
            results.append(_stages(log_type, testbed.ports, testbed.logs, is_loaded=True))
        finally:
            background_load.join()
        testbed.check()
    return results


def medians_ms(places: list[Times]) -> tuple[float, ...]:
    """Return the medians from place to place, and from first to last, over messages seen at all places."""
    complete = set.intersection(*(set(times) for times in places))
    stretches = [*pairwise(places), (places[0], places[-1])]
    return tuple(median((later[one] - earlier[one]) / 1e6 for one in complete) for earlier, later in stretches)


def numbers_in(data: bytes) -> list[int]:
    """Return the numbers of the test messages in some bytes."""
    return [int(part[:8]) for part in data.split(MARKER)[1:] if part[:8].isdigit()]


def _stages(log_type: LogType, ports: list[int], sites: list[SiteLog], *, is_loaded: bool) -> Stages:
    sent: Times = {}
    received: Times = {}
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(_opened(files)) for files in sites]
        publisher = stack.enter_context(_client(ports[0], "stage-publisher", {}))
        subscriber = stack.enter_context(_client(ports[1], "stage-subscriber", received))
        subscriber.sendall(_packet(0x82, b"\x00\x01" + _text(TOPIC) + b"\x00"))
        _wait_for_route(publisher, received)
        firsts = [log.ends(CROSS_HUB)[1] for log in logs]
        _send_all(publisher, sent, received)
        late_ns = MILLISECOND_NS // 2 if log_type is LogType.KAFKA else 0
        appended = [_appended(log, first, late_ns) for log, first in zip(logs, firsts, strict=True)]
    places = [sent, *appended, received]
    if (least := min(len(times) for times in places)) < SAMPLES // 2:
        raise LoadFailed(f"stages: only {least} of {SAMPLES} messages were seen at all places")
    *parts, total = medians_ms(places)
    return Stages(log_type, is_loaded, tuple(parts), total, least)


def _wait_for_route(publisher: socket.socket, received: Times) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not received:
        if time.monotonic() > deadline:
            raise LoadFailed("stages: no message arrives at the subscriber")
        publisher.sendall(_publish(0))
        time.sleep(0.1)


def _send_all(publisher: socket.socket, sent: Times, received: Times) -> None:
    began = time.monotonic()
    for number in range(1, SAMPLES + 1):
        time.sleep(max(0.0, began + number * EACH_S - time.monotonic()))
        sent[number] = time.time_ns()
        publisher.sendall(_publish(number))
    deadline = time.monotonic() + TIMEOUT_S
    while len(received) <= SAMPLES and time.monotonic() < deadline:
        time.sleep(0.05)


def _appended(log: Log, first: int, late_ns: int) -> Times:
    """Return when the test messages were appended to a log."""
    results: Times = {}
    for record in chain.from_iterable(read_to_end(log, CROSS_HUB, first)):
        for number in _numbers_of(record.value):
            results.setdefault(number, record.appended_at + late_ns)
    return results


def _numbers_of(value: bytes | None) -> Iterable[int]:
    if value is None or TOPIC.encode() not in value:  # a message of the load
        return ()
    answer = from_record(value)
    return numbers_in(answer.message.body) if isinstance(answer, ForwardedMessage) else ()


@contextlib.contextmanager
def _opened(files: SiteLog) -> Iterator[Log]:
    log = open_log(files, Durability.PROCESS_CRASH, "bench")
    try:
        yield log
    finally:
        log.close()


@contextlib.contextmanager
def _client(port: int, name: str, received: Times) -> Iterator[socket.socket]:
    """Open an MQTT connection for the block; received data is searched for test messages."""
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.sendall(_packet(0x10, _text("MQTT") + b"\x04\x02\x00\x00" + _text(name)))
        reader = threading.Thread(target=_receive, args=(stream, received))
        reader.start()
        try:
            yield stream
        finally:
            stream.shutdown(socket.SHUT_RDWR)
            reader.join()


def _receive(stream: socket.socket, received: Times) -> None:
    rest = b""
    with contextlib.suppress(OSError):
        while data := stream.recv(65_536):
            now_ns = time.time_ns()
            for number in numbers_in(rest + data):
                received.setdefault(number, now_ns)
            rest = (rest + data)[-len(MARKER) - 8 :]


def _publish(number: int) -> bytes:
    return _packet(0x30, _text(TOPIC) + MARKER + f"{number:08}".encode())


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first, len(body))) + body


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()
