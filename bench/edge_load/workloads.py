"""What is measured, one work at a time: how a broker is loaded, what figure comes out, what our goal for it is."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.edge_load.brokers import Broker, Setting
from bench.edge_load.generator import Step, loading
from bench.edge_load.search import Held, highest, is_disturbed
from bench.edge_load.servers import Server, serving
from bench.harness import QUICK
from milepost_experiments.papers.load.programs import LoadFailed

STEP_S, WARM_S = (0.8, 0.2) if QUICK else (1.0, 0.25)
NARROWINGS, NARROWINGS_OF_OTHERS = (2, 1) if QUICK else (4, 1)
LATER_GROWTH = 1.1
ROUNDS = 1 if QUICK else 2
LATENCY_S = 2.0 if QUICK else 3.0
BURST = 4
LATENCY_TRIES_MAX = 3
TRIPS_S = 1.5 if QUICK else 2.0
TRIPS_WARM_S = 0.3
KEPT_S = 0.5
CLIENTS = 100
IDLE_CLIENTS = 2_000 if QUICK else 10_000
STORM_CLIENTS = 2_000 if QUICK else 5_000
AT_A_TIME = 64
SETTLE_S = 1.0 if QUICK else 2.0

JUDGED = ("milepost", "mosquitto20", "mosquitto21")
"""Whose figures goals are judged by: measured in every round and more finely; the others once."""

BETTER, DEBIAN = "the better Mosquitto", "mosquitto20"


@dataclass(frozen=True, slots=True)
class Figure:
    """What one broker reached in one round; `busy` is the generator's share of its core, `load` the broker's."""

    value: float
    remark: str = ""
    busy: float = 0.0
    load: float = 0.0
    held: Held | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """How many times better than a Mosquitto, or how small our own figure."""

    ratio_min: float = 0.0
    stretch: float = 0.0
    against: str = BETTER
    ours_max: float | None = None
    words: str = ""


Measure = Callable[[Broker, Path, Figure | None], dict[str, Figure]]
"""Measures one broker: a figure for each line of the work. It is told what an earlier round found."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    title: str
    unit: str
    goal: Goal | None = None
    less_is_better: bool = False
    gather: Callable[[list[float]], float] = max


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of load and the lines it fills."""

    key: str
    lines: dict[str, Line]
    measure: Measure
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class Traffic:
    """Who sends to whom, and how."""

    shape: str
    qos: int = 0
    burst: int = 1


def rate_work(key: str, title: str, traffic: Traffic, goal: Goal, start: float, setting: Setting | None = None) -> Work:
    """Most deliveries a second with p99 under 10 ms."""

    def measure(broker: Broker, shared: Path, before: Figure | None) -> dict[str, Figure]:
        with serving(broker, setting or Setting(), shared) as server:
            offer = Offering(server, traffic)
            narrowings = NARROWINGS if broker.key in (*JUDGED, "relay") else NARROWINGS_OF_OTHERS
            try:
                if before is None or before.held is None:
                    held = highest(offer, start * broker.pace, narrowings=narrowings)
                else:
                    first = before.held.offered * LATER_GROWTH
                    held = highest(offer, first, narrowings=1, growth=LATER_GROWTH**2, known=before.held)
            finally:
                offer.stop()
        if held is None:
            raise LoadFailed("not even the lowest rate was held")
        step = held.step
        remark = f"p50 {step.p50_us / 1e3:.2f} ms, p99 {step.p99_us / 1e3:.2f} ms"
        return {key: Figure(step.rate, remark, step.busy, offer.loads.get(held.offered, before.load if before else 0.0), held)}

    return Work(key, {key: Line(title, "deliveries/s", goal)}, measure, rounds=ROUNDS)


class Offering:
    """Offers rates to a server over connections that stay; a server that was swamped gets a new process and new connections."""

    def __init__(self, server: Server, traffic: Traffic) -> None:
        self._server = server
        self._burst = traffic.burst
        self._words = ("fan", server.port, int(server.setting.is_tls), traffic.qos, traffic.shape)
        self._context = loading(*self._words)
        self._load = self._context.__enter__()
        self._load.answer()
        self.loads: dict[float, float] = {}

    def __call__(self, rate: float) -> Step | None:
        try:
            cpu_s, started = self._server.cpu_s(), time.monotonic()
            step = self._load.step(rate, STEP_S, WARM_S, self._burst)
            self.loads[rate] = (self._server.cpu_s() - cpu_s) / (time.monotonic() - started)
        except (LoadFailed, OSError):
            self._renew()
            return None
        if step.is_hopeless and not step.is_whole:
            self._renew()
        return step

    def _renew(self) -> None:
        self.stop()
        self._server.kill()
        self._server.start()
        self._context = loading(*self._words)
        self._load = self._context.__enter__()
        self._load.answer()

    def stop(self) -> None:
        self._context.__exit__(None, None, None)


def measure_latency(broker: Broker, shared: Path, before: Figure | None) -> dict[str, Figure]:
    """100 publishers, 20 messages a second each, to 20 subscribers: no stress, so what counts is how soon."""
    del before
    with serving(broker, Setting(), shared) as server, loading("fan", server.port, 0, 0, "fanout") as load:
        load.answer()
        step, share = load.step(CLIENTS * 20, 0.5, 0.1), 0.0
        for _ in range(LATENCY_TRIES_MAX):
            cpu_s = server.cpu_s()
            step = load.step(CLIENTS * 20, LATENCY_S, WARM_S)
            share = (server.cpu_s() - cpu_s) / LATENCY_S
            if not is_disturbed(step):
                break
    if step.is_hopeless or not step.is_whole:
        raise LoadFailed("too much for it" if step.is_hopeless else "not all messages arrived")
    return {"latency": Figure(step.p50_us, f"p99 {step.p99_us / 1e3:.2f} ms", step.busy, share)}


def measure_trips(broker: Broker, shared: Path, before: Figure | None) -> dict[str, Figure]:
    """PUBLISH to PUBACK at QoS 1, the messages kept for sessions that are away."""
    del before
    found = {}
    for key, in_flight in (("trips", 1), ("trips20", 20)):
        with (
            serving(broker, Setting(keeps=True), shared) as server,
            loading("trips", server.port, CLIENTS, in_flight, TRIPS_S, TRIPS_WARM_S) as load,
        ):
            cpu_s, started = server.cpu_s(), time.monotonic()
            said = load.answer()
            share = (server.cpu_s() - cpu_s) / (time.monotonic() - started)
        if said["acked"] != said["sent"]:
            raise LoadFailed("not all messages were acknowledged")
        found[key] = Figure(
            said["rate"], f"p50 {said['p50_us'] / 1e3:.2f} ms, p99 {said['p99_us'] / 1e3:.2f} ms", said["busy"], share
        )
    return found


def measure_kept(broker: Broker, shared: Path, before: Figure | None) -> dict[str, Figure]:
    """Acknowledged messages that are gone after `kill -9`."""
    del before
    with serving(broker, Setting(keeps=True), shared) as server:
        with loading("trips", server.port, CLIENTS, 1, KEPT_S, 0.0) as load:
            said = load.answer()
            server.kill()
        server.start()
        with loading("collect", server.port, said["sent"]) as load:
            found = load.answer()
    lost = said["acked"] - found["kept"]
    return {"kept": Figure(100.0 * lost / said["acked"], f"{lost:,} of {said['acked']:,}, {found['again']:,} came twice")}


def measure_idle(broker: Broker, shared: Path, before: Figure | None) -> dict[str, Figure]:
    """Memory before and after many clients have come to stay, each with a subscription of its own."""
    del before
    with serving(broker, Setting(), shared) as server:
        time.sleep(SETTLE_S)
        base = server.resident_bytes()
        with loading("storm", server.port, IDLE_CLIENTS, AT_A_TIME) as load:
            load.answer()
            time.sleep(SETTLE_S)
            each = (server.resident_bytes() - base) / IDLE_CLIENTS
    return {"base": Figure(base / 1e6), "idle": Figure(each)}


def measure_storm(broker: Broker, shared: Path, before: Figure | None) -> dict[str, Figure]:
    """Until everyone is connected and subscribed."""
    del before
    with serving(broker, Setting(), shared) as server, loading("storm", server.port, STORM_CLIENTS, AT_A_TIME) as load:
        said = load.answer()
    return {"storm": Figure(said["seconds"], f"{STORM_CLIENTS / said['seconds']:,.0f} clients/s", said["busy"])}


def all_works() -> list[Work]:
    """Every work, in the order of the goals."""
    again = Goal(1.0, words="at least 1x")
    not_slower = Goal(1 / 1.2, words="at most 1.2x the time")
    storm_goal = Goal(1 / 3, 1 / 2, words="at most 3x the time (stretch 2x)")
    json_title = "fan-in 100 to 1, JSON checked by us"
    kept_title = "acknowledged QoS 1 messages lost by kill -9"
    return [
        rate_work("fanout", "fan-out, 100 publishers to 20, one message at a time", Traffic("fanout"), Goal(10, 20), 4_000),
        rate_work(
            "bursts",
            f"fan-out, 100 publishers to 20, {BURST} messages at a time",
            Traffic("fanout", burst=BURST),
            Goal(10, 20),
            4_000,
        ),
        rate_work("groups", "each message to 10 of 100", Traffic("groups"), Goal(6, 10), 4_000),
        rate_work("qos1", "fan-out at QoS 1", Traffic("fanout", qos=1), Goal(4, 8), 2_000),
        rate_work("tls", "fan-out over TLS", Traffic("fanout"), Goal(4, 10), 2_000, Setting(is_tls=True)),
        rate_work("json", json_title, Traffic("fanin"), Goal(1.2, 1.6, DEBIAN), 20_000, Setting(checks_json=True)),
        Work(
            "trips",
            {
                "trips": Line("QoS 1 kept, 100 clients, 1 in flight", "publishes/s", again),
                "trips20": Line("QoS 1 kept, 100 clients, 20 in flight", "publishes/s", again),
            },
            measure_trips,
            rounds=ROUNDS,
        ),
        Work("kept", {"kept": Line(kept_title, "%", Goal(ours_max=0.0), less_is_better=True, gather=max)}, measure_kept),
        Work(
            "latency",
            {"latency": Line("2,000 messages/s to 20: p50", "µs", not_slower, True, median)},
            measure_latency,
            rounds=ROUNDS,
        ),
        Work(
            "idle",
            {
                "base": Line("memory of an idle broker", "MB", Goal(ours_max=40.0), True, median),
                "idle": Line(f"memory a connection, {IDLE_CLIENTS:,} idle", "bytes", Goal(ours_max=3_000.0), True, median),
            },
            measure_idle,
        ),
        Work(
            "storm",
            {"storm": Line(f"{STORM_CLIENTS:,} clients connect and subscribe", "s", storm_goal, True, median)},
            measure_storm,
            rounds=ROUNDS,
        ),
    ]
