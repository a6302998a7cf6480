"""Alerts: to ten thousand endpoints at once, beside a loop in C; and to one, while an edge is busy with others' reports."""

import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import numpy as np
from milepost_experiments.papers.load.in_process_edge import Indoors
from milepost_experiments.papers.mercury.probes import PAUSE_S_MAX, emergency, probe

from bench.udp_load.programs import program_fan
from milepost.broker.emergency import AlertRule
from milepost.listeners.udp.batch_io import ADDRESS_BYTES, Outbound, sockaddr_of
from milepost.listeners.udp.sender import Octets
from milepost.listeners.udp.socket import bind_at
from milepost.model import Place
from milepost_experiments.papers.load.edges import serving
from milepost_experiments.papers.load.endpoints import SPEED_MPS, Endpoint, open_all, write_sessions
from milepost_experiments.papers.load.programs import LoadFailed, source

FAR_M = 100_000.0
AWAY = Place(45.0, -100.0)
SINK_BYTES = 4 << 20
"""Sinks are as in udp_fan.c: so many that none has more waiting than half of this."""
OVERHEAD_BYTES = 1024
WAITING_MAX = 1_000_000
SIZES = {False: 200, True: 450}
"""Bytes of an alert, about: with seals it is signed."""
FAN_TURNS = 3
FAN_S_MAX = 70.0
LOAD_PER_S = 5_000
DATA_BYTES = 33
"""What a seal adds to a datagram."""


@dataclass(frozen=True, slots=True)
class Fanned:
    """Milliseconds, medians: ours from the first to the last handed over, the whole turn, and the loop in C."""

    sends_ms: float
    turn_ms: float
    floor_ms: float
    size: int


class Watched:
    """A post on a socket that notes when the first and the last datagram of a crowd was handed over."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound
        self.clear()

    def clear(self) -> None:
        self.began = self.ended = 0.0
        self.count = self.size = 0

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Each head, followed by the same tail."""
        self._begin(len(heads), heads.shape[1] + len(tail))
        return self._end(self._outbound.send_shared(heads, tail, addresses))

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Each datagram to its address."""
        self._begin(len(datagrams), len(datagrams[0]))
        return self._end(self._outbound.send_many(datagrams, addresses))

    def _begin(self, count: int, size: int) -> None:
        if count > 1 and not self.began:
            self.began, self.size = time.perf_counter(), size

    def _end(self, taken: int) -> int:
        if taken > 1:
            self.ended, self.count = time.perf_counter(), self.count + taken
        return taken


def fan_out(receivers: int, *, is_sealed: bool, rounds: int) -> Fanned:
    """One emergency, and an alert to everybody; we and the loop in C take turns."""
    with ExitStack() as stack:
        indoors = stack.enter_context(Indoors(is_sealed=is_sealed))
        indoors.broker.alerts.rules = (AlertRule("Emergency", radius_m=FAR_M),)
        sinks = [stack.enter_context(bind_at("127.0.0.1", 0)) for _ in range(sink_count(receivers, SIZES[is_sealed]))]
        addresses = addresses_of(sinks, receivers)
        endpoints = [Endpoint(number, indoors.realm) for number in range(receivers)]
        indoors.open_all(endpoints, addresses)
        indoors.post = watched = Watched(Outbound(stack.enter_context(bind_at("127.0.0.1", 0))))
        found, floor, size = [], list[float](), 0
        for _ in range(FAN_TURNS):
            ours = [alert_round(indoors, watched, endpoints[0], addresses[:1], sinks) for _ in range(rounds + 1)]
            found += ours[1:]  # the first warms up
            size = watched.size - (DATA_BYTES if is_sealed else 0)
            floor.append(fan_in_c(size, receivers, rounds, is_sealed=is_sealed))
    return Fanned(median(sends for sends, _ in found), median(turn for _, turn in found), median(floor), size)


def alert_round(
    indoors: Indoors, watched: Watched, endpoint: Endpoint, address: Octets, sinks: list[socket.socket]
) -> tuple[float, float]:
    """Milliseconds of the sends, and from the emergency to the last of them."""
    data, receivers = emergency(endpoint), len(indoors.door.session_table)
    watched.clear()
    began = time.perf_counter()
    indoors.hear([data], address)
    arrived = sum(emptied(sink) for sink in sinks)
    if watched.count != receivers or arrived < receivers:
        raise LoadFailed(f"the alert was handed over {watched.count} times and came {arrived} times, to {receivers} endpoints")
    return (watched.ended - watched.began) * 1e3, (watched.ended - began) * 1e3


def fan_in_c(size: int, receivers: int, rounds: int, *, is_sealed: bool) -> float:
    """Milliseconds that the loop in C takes."""
    with program_fan(size, receivers, "--rounds", rounds) as fan:
        found = fan.answer(FAN_S_MAX)
    if found["failed"] or found["dropped"]:
        raise LoadFailed(f"the loop in C lost some: {found}")
    taken_ms: float = found["sealed_ms" if is_sealed else "plain_ms"]
    return taken_ms


def sink_count(receivers: int, size: int) -> int:
    """As many sinks as udp_fan opens."""
    return 1 + receivers // (SINK_BYTES // 2 // (2 * size + OVERHEAD_BYTES))


def addresses_of(sinks: list[socket.socket], receivers: int) -> Octets:
    """Receivers share the sinks, in turn."""
    rows = [np.frombuffer(sockaddr_of(*sink.getsockname()), np.uint8) for sink in sinks]
    found: Octets = np.stack([rows[at % len(rows)] for at in range(receivers)])
    assert found.shape == (receivers, ADDRESS_BYTES)
    return found


def emptied(sink: socket.socket) -> int:
    """Take what waits there; gives how much it was."""
    for count in range(WAITING_MAX):
        try:
            sink.recv(1)
        except BlockingIOError:
            return count
    raise LoadFailed("a sink does not get empty")


@dataclass(frozen=True, slots=True)
class Answered:
    """Milliseconds from sending an emergency to receiving its alert, of all probes, sorted; and what the load was."""

    times_ms: list[float]
    reports_per_s: float
    busy: float

    def share(self, share: float) -> float:
        """The time that so many of all were within."""
        return self.times_ms[min(len(self.times_ms) - 1, int(share * len(self.times_ms)))]


def answer_under_load(probes: int, sessions: int) -> Answered:
    """Emergencies at random moments while others report."""
    with serving(is_sealed=True) as edge:
        endpoints = [Endpoint(number, edge.realm) for number in range(sessions)]
        prober = Endpoint(sessions, edge.realm, AWAY)
        open_all([*endpoints, prober], edge.port)
        path = edge.folder / "sessions"
        write_sessions(path, endpoints)
        seconds = 2.0 + probes * PAUSE_S_MAX * 2
        words = ("--rate", LOAD_PER_S, "--sealed", 1, "--counter", 1, "--walk-mps", SPEED_MPS)
        with source(edge.port, seconds, path, *words):
            time.sleep(0.5)
            before = edge.look()
            times = probe(prober, edge.port, probes)
            after = edge.look()
        took_s = after.at_s - before.at_s
        if refused := after.of("refused_total"):
            raise LoadFailed(f"the edge refused {refused:.0f} times")
        reports = after.of("reports_total") - before.of("reports_total")
        return Answered(sorted(times), reports / took_s, (after.cpu_s - before.cpu_s) / took_s)
