"""Alerts: to ten thousand endpoints at once, compared with a loop in C; and to one endpoint, while the edge is under load."""

import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

import numpy as np

from bench.udp_load.programs import start_fanout
from milepost.broker.alert_rules import AlertRule
from milepost.listeners.udp.batch_io import ADDRESS_BYTES, BatchSender, sockaddr_of
from milepost.listeners.udp.sender import Octets
from milepost.listeners.udp.socket import bind_at
from milepost.model import Place
from milepost_experiments.papers.load.edges import running_edge
from milepost_experiments.papers.load.endpoints import SPEED_MPS, Endpoint, open_all, write_sessions
from milepost_experiments.papers.load.in_process_edge import InProcessEdge
from milepost_experiments.papers.load.programs import LoadFailed, start_report_source
from milepost_experiments.papers.mercury.probes import PAUSE_S_MAX, emergency, probe

FAR_M = 100_000.0
PROBER_PLACE = Place(45.0, -100.0)
SINK_BYTES = 4 << 20
"""Receive buffer of a sink, as in udp_fanout.c: there are enough sinks that none is filled by more than half."""
OVERHEAD_BYTES = 1024
WAITING_MAX = 1_000_000
SIZES = {False: 200, True: 450}
"""Approximate size of an alert in bytes: with encryption it is signed."""
ALTERNATIONS = 3
FANOUT_S_MAX = 70.0
LOAD_PER_S = 5_000
DATA_BYTES = 33
"""Overhead of encryption per datagram."""


@dataclass(frozen=True, slots=True)
class FanoutResult:
    """Medians in milliseconds: from the first to the last datagram sent, the whole tick, and the loop in C."""

    sends_ms: float
    total_ms: float
    baseline_ms: float
    size: int


class TimedSender:
    """A sender on a socket that records when the first and the last datagram of a fan-out was sent."""

    def __init__(self, outbound: BatchSender) -> None:
        self._outbound = outbound
        self.clear()

    def clear(self) -> None:
        self.began = self.ended = 0.0
        self.count = self.size = 0

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Send each head, followed by the same tail."""
        self._begin(len(heads), heads.shape[1] + len(tail))
        return self._end(self._outbound.send_shared(heads, tail, addresses))

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Send each datagram to its address."""
        self._begin(len(datagrams), len(datagrams[0]))
        return self._end(self._outbound.send_many(datagrams, addresses))

    def _begin(self, count: int, size: int) -> None:
        if count > 1 and not self.began:
            self.began, self.size = time.perf_counter(), size

    def _end(self, sent_count: int) -> int:
        if sent_count > 1:
            self.ended, self.count = time.perf_counter(), self.count + sent_count
        return sent_count


def measure_fanout(receivers: int, *, is_encrypted: bool, rounds: int) -> FanoutResult:
    """Measure an emergency and its alert to all endpoints, alternately with the loop in C."""
    with ExitStack() as stack:
        edge = stack.enter_context(InProcessEdge(is_encrypted=is_encrypted))
        edge.broker.alerts.rules = (AlertRule("Emergency", radius_m=FAR_M),)
        sinks = [stack.enter_context(bind_at("127.0.0.1", 0)) for _ in range(sink_count(receivers, SIZES[is_encrypted]))]
        addresses = addresses_of(sinks, receivers)
        endpoints = [Endpoint(number, edge.realm) for number in range(receivers)]
        edge.open_all(endpoints, addresses)
        edge.sender = sender = TimedSender(BatchSender(stack.enter_context(bind_at("127.0.0.1", 0))))
        found, baseline, size = [], list[float](), 0
        for _ in range(ALTERNATIONS):
            ours = [alert_round(edge, sender, endpoints[0], addresses[:1], sinks) for _ in range(rounds + 1)]
            found += ours[1:]  # the first warms up
            size = sender.size - (DATA_BYTES if is_encrypted else 0)
            baseline.append(fanout_in_c(size, receivers, rounds, is_encrypted=is_encrypted))
    return FanoutResult(median(sends for sends, _ in found), median(total for _, total in found), median(baseline), size)


def alert_round(
    edge: InProcessEdge, sender: TimedSender, endpoint: Endpoint, address: Octets, sinks: list[socket.socket]
) -> tuple[float, float]:
    """Return the milliseconds of the sends, and from the emergency to the last of them."""
    data, receivers = emergency(endpoint), len(edge.listener.session_table)
    sender.clear()
    began = time.perf_counter()
    edge.run_tick([data], address)
    arrived = sum(drain(sink) for sink in sinks)
    if sender.count != receivers or arrived < receivers:
        raise LoadFailed(f"the alert was sent {sender.count} times and received {arrived} times, for {receivers} endpoints")
    return (sender.ended - sender.began) * 1e3, (sender.ended - began) * 1e3


def fanout_in_c(size: int, receivers: int, rounds: int, *, is_encrypted: bool) -> float:
    """Return the milliseconds of the loop in C."""
    with start_fanout(size, receivers, "--rounds", rounds) as fanout:
        found = fanout.read_answer(FANOUT_S_MAX)
    if found["failed"] or found["dropped"]:
        raise LoadFailed(f"the loop in C lost datagrams: {found}")
    time_ms: float = found["encrypted_ms" if is_encrypted else "plain_ms"]
    return time_ms


def sink_count(receivers: int, size: int) -> int:
    """Return the number of sinks, as in udp_fanout.c."""
    return 1 + receivers // (SINK_BYTES // 2 // (2 * size + OVERHEAD_BYTES))


def addresses_of(sinks: list[socket.socket], receivers: int) -> Octets:
    """Return the addresses of receivers, round-robin over the sinks."""
    rows = [np.frombuffer(sockaddr_of(*sink.getsockname()), np.uint8) for sink in sinks]
    found: Octets = np.stack([rows[at % len(rows)] for at in range(receivers)])
    assert found.shape == (receivers, ADDRESS_BYTES)
    return found


def drain(sink: socket.socket) -> int:
    """Receive all pending datagrams; return their number."""
    for count in range(WAITING_MAX):
        try:
            sink.recv(1)
        except BlockingIOError:
            return count
    raise LoadFailed("a sink cannot be drained")


@dataclass(frozen=True, slots=True)
class EmergencyResult:
    """Milliseconds from sending an emergency to receiving its alert, of all probes, sorted; and the load."""

    times_ms: list[float]
    reports_per_s: float
    busy: float

    def share(self, share: float) -> float:
        """Return a quantile of the times."""
        return self.times_ms[min(len(self.times_ms) - 1, int(share * len(self.times_ms)))]


def answer_under_load(probes: int, sessions: int) -> EmergencyResult:
    """Measure emergencies at random moments while other endpoints report."""
    with running_edge(is_encrypted=True) as edge:
        endpoints = [Endpoint(number, edge.realm) for number in range(sessions)]
        prober = Endpoint(sessions, edge.realm, PROBER_PLACE)
        open_all([*endpoints, prober], edge.port)
        path = edge.folder / "sessions"
        write_sessions(path, endpoints)
        seconds = 2.0 + probes * PAUSE_S_MAX * 2
        options = ("--rate", LOAD_PER_S, "--encrypted", 1, "--counter", 1, "--walk-mps", SPEED_MPS)
        with start_report_source(edge.port, seconds, path, *options):
            time.sleep(0.5)
            before = edge.snapshot()
            times = probe(prober, edge.port, probes)
            after = edge.snapshot()
        took_s = after.at_s - before.at_s
        if refused := after.of("refused_total"):
            raise LoadFailed(f"the edge refused {refused:.0f} datagrams")
        reports = after.of("reports_total") - before.of("reports_total")
        return EmergencyResult(sorted(times), reports / took_s, (after.cpu_s - before.cpu_s) / took_s)
