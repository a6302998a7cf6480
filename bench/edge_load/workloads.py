"""The workloads: how a broker is loaded, what is measured, and the goal for Milepost."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.edge_load.brokers import Broker, Features
from bench.edge_load.generator import Step, running_load
from bench.edge_load.search import SustainedRate, highest_rate, is_disturbed
from bench.edge_load.servers import Server, running_broker
from bench.harness import QUICK
from milepost_experiments.papers.load.programs import LoadFailed

STEP_S, WARM_S = (0.8, 0.2) if QUICK else (1.0, 0.25)
NARROWINGS, NARROWINGS_OF_OTHERS = (2, 1) if QUICK else (4, 1)
LATER_GROWTH = 1.1
ROUNDS = 1 if QUICK else 2
LATENCY_S = 2.0 if QUICK else 3.0
BURST = 4
LATENCY_TRIES_MAX = 3
ROUNDTRIPS_S = 1.5 if QUICK else 2.0
ROUNDTRIPS_WARM_S = 0.3
STORED_S = 0.5
CLIENTS = 100
IDLE_CLIENTS = 2_000 if QUICK else 10_000
STORM_CLIENTS = 2_000 if QUICK else 5_000
CONNECTING_MAX = 64
SETTLE_S = 1.0 if QUICK else 2.0

EVALUATED = ("milepost", "milepost-rules", "mosquitto20", "mosquitto21")
"""Brokers whose results decide goals: measured in every round and more finely; the others once."""

BETTER_MOSQUITTO, DEBIAN_MOSQUITTO = "the better Mosquitto", "mosquitto20"


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one broker in one round; `busy` is the generator's share of its core, `load` the broker's."""

    value: float
    remark: str = ""
    busy: float = 0.0
    load: float = 0.0
    sustained: SustainedRate | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """A minimum ratio to a Mosquitto, or a maximum of Milepost's own value."""

    ratio_min: float = 0.0
    stretch: float = 0.0
    against: str = BETTER_MOSQUITTO
    ours_max: float | None = None
    text: str = ""


Measure = Callable[[Broker, Path, Measurement | None], dict[str, Measurement]]
"""Measures one broker, given its result of an earlier round; returns a result for each line of the workload."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    title: str
    unit: str
    goal: Goal | None = None
    less_is_better: bool = False
    combine: Callable[[list[float]], float] = max


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of load, and its lines in the table."""

    key: str
    lines: dict[str, Line]
    measure: Measure
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class Traffic:
    """The shape of the traffic, its QoS and burst size."""

    shape: str
    qos: int = 0
    burst: int = 1


def rate_workload(key: str, title: str, traffic: Traffic, goal: Goal, start: float, features: Features | None = None) -> Workload:
    """Return a workload that measures the maximum deliveries per second with p99 under 10 ms."""

    def measure(broker: Broker, shared: Path, before: Measurement | None) -> dict[str, Measurement]:
        with running_broker(broker, features or Features(), shared) as server:
            offer = RateOffering(server, traffic)
            narrowings = NARROWINGS if broker.key in (*EVALUATED, "relay") else NARROWINGS_OF_OTHERS
            try:
                if before is None or before.sustained is None:
                    sustained = highest_rate(offer, start * broker.start_factor, narrowings=narrowings)
                else:
                    first = before.sustained.offered * LATER_GROWTH
                    sustained = highest_rate(offer, first, narrowings=1, growth=LATER_GROWTH**2, known=before.sustained)
            finally:
                offer.stop()
        if sustained is None:
            raise LoadFailed("even the lowest rate was not sustained")
        step = sustained.step
        remark = f"p50 {step.p50_us / 1e3:.2f} ms, p99 {step.p99_us / 1e3:.2f} ms"
        load = offer.loads.get(sustained.offered, before.load if before else 0.0)
        return {key: Measurement(step.rate, remark, step.busy, load, sustained)}

    return Workload(key, {key: Line(title, "deliveries/s", goal)}, measure, rounds=ROUNDS)


class RateOffering:
    """Offers rates to a server over persistent connections; an overloaded server is restarted and connected again."""

    def __init__(self, server: Server, traffic: Traffic) -> None:
        self._server = server
        self._burst = traffic.burst
        self._arguments = ("throughput", server.port, int(server.features.is_tls), traffic.qos, traffic.shape)
        self._context = running_load(*self._arguments)
        self._load = self._context.__enter__()
        self._load.read_answer()
        self.loads: dict[float, float] = {}

    def __call__(self, rate: float) -> Step | None:
        try:
            cpu_s, started = self._server.cpu_s(), time.monotonic()
            step = self._load.step(rate, STEP_S, WARM_S, self._burst)
            self.loads[rate] = (self._server.cpu_s() - cpu_s) / (time.monotonic() - started)
        except (LoadFailed, OSError):
            self._renew()
            return None
        if step.is_overloaded and not step.is_complete:
            self._renew()
        return step

    def _renew(self) -> None:
        self.stop()
        self._server.kill()
        self._server.start()
        self._context = running_load(*self._arguments)
        self._load = self._context.__enter__()
        self._load.read_answer()

    def stop(self) -> None:
        self._context.__exit__(None, None, None)


def measure_latency(broker: Broker, shared: Path, before: Measurement | None) -> dict[str, Measurement]:
    """Measure the latency at a low load: 100 publishers, 20 messages per second each, to 20 subscribers."""
    del before
    with running_broker(broker, Features(), shared) as server, running_load("throughput", server.port, 0, 0, "fanout") as load:
        load.read_answer()
        step, share = load.step(CLIENTS * 20, 0.5, 0.1), 0.0
        for _ in range(LATENCY_TRIES_MAX):
            cpu_s = server.cpu_s()
            step = load.step(CLIENTS * 20, LATENCY_S, WARM_S)
            share = (server.cpu_s() - cpu_s) / LATENCY_S
            if not is_disturbed(step):
                break
    if step.is_overloaded or not step.is_complete:
        raise LoadFailed("overloaded" if step.is_overloaded else "not all messages arrived")
    return {"latency": Measurement(step.p50_us, f"p99 {step.p99_us / 1e3:.2f} ms", step.busy, share)}


def measure_roundtrips(broker: Broker, shared: Path, before: Measurement | None) -> dict[str, Measurement]:
    """Measure PUBLISH to PUBACK at QoS 1, with messages stored for offline sessions."""
    del before
    found = {}
    for key, in_flight in (("roundtrips", 1), ("roundtrips20", 20)):
        with (
            running_broker(broker, Features(is_durable=True), shared) as server,
            running_load("roundtrips", server.port, CLIENTS, in_flight, ROUNDTRIPS_S, ROUNDTRIPS_WARM_S) as load,
        ):
            cpu_s, started = server.cpu_s(), time.monotonic()
            answer = load.read_answer()
            share = (server.cpu_s() - cpu_s) / (time.monotonic() - started)
        if answer["acked"] != answer["sent"]:
            raise LoadFailed("not all messages were acknowledged")
        found[key] = Measurement(
            answer["rate"], f"p50 {answer['p50_us'] / 1e3:.2f} ms, p99 {answer['p99_us'] / 1e3:.2f} ms", answer["busy"], share
        )
    return found


def measure_stored(broker: Broker, shared: Path, before: Measurement | None) -> dict[str, Measurement]:
    """Measure the share of acknowledged messages that are lost by `kill -9`."""
    del before
    with running_broker(broker, Features(is_durable=True), shared) as server:
        with running_load("roundtrips", server.port, CLIENTS, 1, STORED_S, 0.0) as load:
            answer = load.read_answer()
            server.kill()
        server.start()
        with running_load("collect", server.port, answer["sent"]) as load:
            found = load.read_answer()
    lost = answer["acked"] - found["received"]
    return {
        "stored": Measurement(
            100.0 * lost / answer["acked"], f"{lost:,} of {answer['acked']:,}, {found['duplicates']:,} duplicated"
        )
    }


def measure_idle(broker: Broker, shared: Path, before: Measurement | None) -> dict[str, Measurement]:
    """Measure memory without clients, and per idle connection with one subscription each."""
    del before
    with running_broker(broker, Features(), shared) as server:
        time.sleep(SETTLE_S)
        base = server.resident_bytes()
        with running_load("storm", server.port, IDLE_CLIENTS, CONNECTING_MAX) as load:
            load.read_answer()
            time.sleep(SETTLE_S)
            each = (server.resident_bytes() - base) / IDLE_CLIENTS
    return {"base": Measurement(base / 1e6), "idle": Measurement(each)}


def measure_storm(broker: Broker, shared: Path, before: Measurement | None) -> dict[str, Measurement]:
    """Measure the time until all clients are connected and subscribed."""
    del before
    with (
        running_broker(broker, Features(), shared) as server,
        running_load("storm", server.port, STORM_CLIENTS, CONNECTING_MAX) as load,
    ):
        answer = load.read_answer()
    return {"storm": Measurement(answer["seconds"], f"{STORM_CLIENTS / answer['seconds']:,.0f} clients/s", answer["busy"])}


def all_workloads() -> list[Workload]:
    """Return all workloads, in the order of the goals."""
    no_slower = Goal(1.0, text="at least 1x")
    not_slower = Goal(1 / 1.2, text="at most 1.2x the time")
    storm_goal = Goal(1 / 3, 1 / 2, text="at most 3x the time (stretch 2x)")
    json_title = "fan-in 100 to 1, JSON validated by Milepost"
    loss_title = "acknowledged QoS 1 messages lost by kill -9"
    return [
        rate_workload("fanout", "fan-out, 100 publishers to 20, one message at a time", Traffic("fanout"), Goal(10, 20), 4_000),
        rate_workload(
            "bursts",
            f"fan-out, 100 publishers to 20, {BURST} messages at a time",
            Traffic("fanout", burst=BURST),
            Goal(10, 20),
            4_000,
        ),
        rate_workload("groups", "each message to 10 of 100", Traffic("groups"), Goal(6, 10), 4_000),
        rate_workload("qos1", "fan-out at QoS 1", Traffic("fanout", qos=1), Goal(4, 8), 2_000),
        rate_workload("tls", "fan-out over TLS", Traffic("fanout"), Goal(4, 10), 2_000, Features(is_tls=True)),
        rate_workload(
            "json", json_title, Traffic("fanin"), Goal(1.2, 1.6, DEBIAN_MOSQUITTO), 20_000, Features(validates_json=True)
        ),
        Workload(
            "roundtrips",
            {
                "roundtrips": Line("QoS 1 stored, 100 clients, 1 in flight", "publishes/s", no_slower),
                "roundtrips20": Line("QoS 1 stored, 100 clients, 20 in flight", "publishes/s", no_slower),
            },
            measure_roundtrips,
            rounds=ROUNDS,
        ),
        Workload(
            "stored", {"stored": Line(loss_title, "%", Goal(ours_max=0.0), less_is_better=True, combine=max)}, measure_stored
        ),
        Workload(
            "latency",
            {"latency": Line("2,000 messages/s to 20: p50", "µs", not_slower, True, median)},
            measure_latency,
            rounds=ROUNDS,
        ),
        Workload(
            "idle",
            {
                "base": Line("memory of an idle broker", "MB", Goal(ours_max=40.0), True, median),
                "idle": Line(f"memory per connection, {IDLE_CLIENTS:,} idle", "bytes", Goal(ours_max=3_000.0), True, median),
            },
            measure_idle,
        ),
        Workload(
            "storm",
            {"storm": Line(f"{STORM_CLIENTS:,} clients connect and subscribe", "s", storm_goal, True, median)},
            measure_storm,
            rounds=ROUNDS,
        ),
    ]
