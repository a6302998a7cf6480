"""The time of a report at the UDP listener by stage: receive, decrypt, decode, vet, track, each in CPU µs.

`python -m bench.udp_stages` prints a table. Socket and listener are in this process, on one core; udp-source on another one sends
more than they can process. `--profile` adds the output of cProfile, which makes small functions seem slower than they are.
"""

import argparse
import cProfile
import os
import pstats
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from bench.udp_load.reports import COUNTERS_PER_ROUND, source_to
from milepost.broker import presence as presence_module
from milepost.broker.presence import LastReports, Presence
from milepost.listeners.udp import inbound as inbound_module
from milepost.listeners.udp.batch_io import BatchReceiver
from milepost.listeners.udp.decryption import PlainReader, SealedReader
from milepost.listeners.udp.inbound import InboundQueue
from milepost.listeners.udp.socket import BATCH, bind_at
from milepost.matching.matcher import Matcher
from milepost.model import Instant
from milepost.vetting import Buckets
from milepost_experiments.papers.load.endpoints import Endpoint, write_sessions
from milepost_experiments.papers.load.in_process_edge import InProcessEdge, spread_addresses
from milepost_experiments.papers.load.programs import BROKER_CORE, udp_source

WARM_S, MEASURE_S, ROUNDS = 0.3, 1.0, 3
SIZES, TICKS, SESSIONS = (1, 4, 16, 64, 256), 100, 1_000

STAGES: tuple[tuple[str, object, str], ...] = (
    ("receive: system call", BatchReceiver, BatchReceiver.receive.__name__),
    ("receive: bytes of each", BatchReceiver, BatchReceiver.all_data.__name__),
    ("decrypt", SealedReader, SealedReader.read.__name__),
    ("decrypt", PlainReader, PlainReader.read.__name__),
    ("handle", InboundQueue, InboundQueue.handle.__name__),
    ("rates of networks", InboundQueue, "_over_rate"),
    ("decode", inbound_module, "columns_of"),
    ("process", Presence, Presence.process.__name__),
    ("rates of endpoints", Buckets, Buckets.take.__name__),
    ("rounds", presence_module, "in_rounds"),
    ("last reports", LastReports, LastReports.previous_of.__name__),
    ("vet", presence_module, "vet_reports"),
    ("track", LastReports, LastReports.put.__name__),
    ("move on the map", Matcher, Matcher.move.__name__),
)
"""The timed functions and their names; the time of a function includes that of nested ones."""

Spent = dict[str, float]


class Workload(NamedTuple):
    """The number of sessions, and whether all ciphers are cached."""

    sessions: int
    is_encrypted: bool
    cached_ciphers_max: int = 20_000

    def __str__(self) -> str:
        keys = "" if self.cached_ciphers_max >= self.sessions else ", ciphers not cached"
        return f"{self.sessions:,} {'encrypted' if self.is_encrypted else 'plain'}{keys}"


WORKLOADS = (Workload(1_000, True), Workload(10_000, True), Workload(10_000, True, 1), Workload(10_000, False))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.udp_stages", description=__doc__)
    parser.add_argument("--profile", action="store_true", help="also print the output of cProfile")
    arguments = parser.parse_args()
    udp_source()
    os.sched_setaffinity(0, {BROKER_CORE})
    show({workload: measure(workload, is_profiled=arguments.profile) for workload in WORKLOADS})
    show_tick_times(tick_times_us())


def measure(workload: Workload, *, is_profiled: bool) -> Spent:
    """Run all rounds of one workload; return the minimum of each value, because noise only adds time."""
    with (
        tempfile.TemporaryDirectory(prefix="udp-") as folder,
        InProcessEdge(is_encrypted=workload.is_encrypted, cached_ciphers_max=workload.cached_ciphers_max) as edge,
    ):
        endpoints = [Endpoint(number, edge.realm) for number in range(workload.sessions)]
        edge.open_all(endpoints, spread_addresses(workload.sessions))
        path = Path(folder) / "sessions"
        write_sessions(path, endpoints)
        found = [flood(edge, path, number * COUNTERS_PER_ROUND) for number in range(1, ROUNDS + 1)]
        if is_profiled:
            profile(edge, path, workload)
        assert not edge.broker.counts.refused, edge.broker.counts.refused
    return {name: min(one[name] for one in found) for name in found[0]}


def flood(edge: InProcessEdge, path: Path, counter: int) -> Spent:
    """Return µs per report by stage, while more reports arrive than can be processed."""
    spent: Spent = defaultdict(float)
    with bind_at("127.0.0.1", 0) as bound, ExitStack() as stack:
        inbound, port = BatchReceiver(bound, batch=BATCH), bound.getsockname()[1]
        seconds = WARM_S + MEASURE_S
        stack.enter_context(source_to(port, path, counter, seconds, is_encrypted=edge.realm is not None))
        serve(edge, inbound, WARM_S)
        for name, where, what in STAGES:
            stack.enter_context(patch.object(where, what, timed(getattr(where, what), name, spent)))
        before, began = edge.broker.counts.reports, time.process_time()
        serve(edge, inbound, MEASURE_S)
        spent["all"] = time.process_time() - began
        reports = edge.broker.counts.reports - before
    return {name: value / reports * 1e6 for name, value in spent.items()}


def serve(edge: InProcessEdge, inbound: BatchReceiver, seconds: float) -> None:
    """Run ticks, one batch in each."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        count = inbound.receive()
        now = Instant(time.time_ns())
        if count:
            edge.listener.on_batch(inbound.all_data(), inbound.addresses[:count], now)
        edge.tick_loop.commit(now)


def timed(call: Callable[..., Any], name: str, spent: Spent) -> Callable[..., Any]:
    """Return the function with its time added up."""

    def timed_call(*positional: Any, **options: Any) -> Any:
        began = time.process_time()
        found = call(*positional, **options)
        spent[name] += time.process_time() - began
        return found

    return timed_call


def profile(edge: InProcessEdge, path: Path, workload: Workload) -> None:
    """Print the profile of cProfile."""
    profiler = cProfile.Profile()
    counter = (ROUNDS + 1) * COUNTERS_PER_ROUND
    with bind_at("127.0.0.1", 0) as bound:
        inbound, port = BatchReceiver(bound, batch=BATCH), bound.getsockname()[1]
        with source_to(port, path, counter, WARM_S + MEASURE_S, is_encrypted=workload.is_encrypted):
            serve(edge, inbound, WARM_S)
            before = edge.broker.counts.reports
            profiler.enable()
            serve(edge, inbound, MEASURE_S)
            profiler.disable()
    print(f"{workload}: {edge.broker.counts.reports - before:,} reports")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def show(found: dict[Workload, Spent]) -> None:
    table = Table(title="Benchmark: UDP stages, µs per report", title_justify="left")
    table.add_column("stage")
    for workload in found:
        table.add_column(str(workload), justify="right")
    columns = [parts(spent) for spent in found.values()]
    for name in columns[0]:
        table.add_row(name, *(f"{column[name]:.2f}" for column in columns))
    Console(width=120).print(table)


def tick_times_us() -> dict[int, float]:
    """Return the µs of a tick by its number of reports, without a socket."""
    with InProcessEdge(is_encrypted=True) as edge:
        endpoints, addresses = [Endpoint(number, edge.realm) for number in range(SESSIONS)], spread_addresses(SESSIONS)
        edge.open_all(endpoints, addresses)
        found = {}
        for size in SIZES:
            spent = []
            for start in range(0, TICKS * size, size):
                rows = [at % SESSIONS for at in range(start, start + size)]
                datagrams = [endpoints[row].report(Instant(time.time_ns())) for row in rows]
                spent.append(edge.run_tick(datagrams, addresses[rows]) * 1e6)
            found[size] = median(spent)
        assert not edge.broker.counts.refused, edge.broker.counts.refused
    return found


def show_tick_times(found: dict[int, float]) -> None:
    table = Table(title="µs of a tick by its number of encrypted reports, without receiving", title_justify="left")
    for heading in ("reports", "tick", "per report"):
        table.add_column(heading, justify="right")
    for size, tick_us in found.items():
        table.add_row(str(size), f"{tick_us:.0f}", f"{tick_us / size:.2f}")
    Console(width=120).print(table)


def parts(spent: Spent) -> Spent:
    """Return each stage without the nested ones."""
    taking = ("rates of endpoints", "rounds", "last reports", "vet", "track", "move on the map")
    handling = ("rates of networks", "decode", "process")
    rows = {name: spent[name] for name in ("receive: system call", "receive: bytes of each", "decrypt")}
    rows["handle: addresses, lists"] = spent["handle"] - sum(spent[name] for name in handling)
    rows |= {name: spent[name] for name in ("rates of networks", "decode", *taking)}
    rows["process: other"] = spent["process"] - sum(spent[name] for name in taking)
    rows["other: commit, tick"] = spent["all"] - sum(rows.values())
    return rows | {"all": spent["all"]}


if __name__ == "__main__":
    main()
