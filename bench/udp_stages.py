"""Where the time of a report goes at the UDP door: receive, open, decode, vet, track, each in µs of processor time.

`python -m bench.udp_stages` prints a table. Socket and door are in this process, on one core; from the other one udp-source sends
more than they take. `--profile` adds what cProfile says, which makes small functions look slower than they are.
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

from milepost_experiments.papers.load.in_process_edge import Indoors, spread_addresses
from rich.console import Console
from rich.table import Table

from bench.udp_load.reports import COUNTERS_A_ROUND, source_to
from milepost.broker import presence as watching_module
from milepost.broker.presence import Presence, Tracks
from milepost.listeners.udp import inbound as hearing_module
from milepost.listeners.udp.batch_io import Inbound
from milepost.listeners.udp.inbound import InboundQueue
from milepost.listeners.udp.receiver import PlainReader, SealedReader
from milepost.listeners.udp.socket import BATCH, bind_at
from milepost.matching.matcher import Matcher
from milepost.model import Instant
from milepost.vetting import Buckets
from milepost_experiments.papers.load.endpoints import Endpoint, write_sessions
from milepost_experiments.papers.load.programs import BROKER_CORE, udp_source

WARM_S, MEASURE_S, ROUNDS = 0.3, 1.0, 3
SIZES, TURNS, SESSIONS = (1, 4, 16, 64, 256), 100, 1_000

STAGES: tuple[tuple[str, object, str], ...] = (
    ("receive: system call", Inbound, "receive"),
    ("receive: bytes of each", Inbound, "all_data"),
    ("open", SealedReader, "read"),
    ("open", PlainReader, "read"),
    ("hear", InboundQueue, "hear"),
    ("rates of networks", InboundQueue, "_over_rate"),
    ("decode", hearing_module, "columns_of"),
    ("take", Presence, "take"),
    ("rates of endpoints", Buckets, "take"),
    ("rounds", watching_module, "in_rounds"),
    ("last reports", Tracks, "before"),
    ("vet", watching_module, "vet_reports"),
    ("track", Tracks, "put"),
    ("move on the map", Matcher, "move"),
)
"""What is timed, and under which name; a name's time has that of the names inside it."""

Spent = dict[str, float]


class Work(NamedTuple):
    """How many sessions, and whether each key is kept ready."""

    sessions: int
    is_sealed: bool
    openers_max: int = 20_000

    def __str__(self) -> str:
        keys = "" if self.openers_max >= self.sessions else ", no key ready"
        return f"{self.sessions:,} {'sealed' if self.is_sealed else 'plain'}{keys}"


WORKS = (Work(1_000, True), Work(10_000, True), Work(10_000, True, 1), Work(10_000, False))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.udp_stages", description=__doc__)
    parser.add_argument("--profile", action="store_true", help="print what cProfile says, too")
    asked = parser.parse_args()
    udp_source()
    os.sched_setaffinity(0, {BROKER_CORE})
    show({work: measure(work, is_profiled=asked.profile) for work in WORKS})
    show_turns(turns_us())


def measure(work: Work, *, is_profiled: bool) -> Spent:
    """The rounds of one work: the least of each figure, since noise only adds."""
    with (
        tempfile.TemporaryDirectory(prefix="udp-") as folder,
        Indoors(is_sealed=work.is_sealed, openers_max=work.openers_max) as indoors,
    ):
        endpoints = [Endpoint(number, indoors.realm) for number in range(work.sessions)]
        indoors.open_all(endpoints, spread_addresses(work.sessions))
        path = Path(folder) / "sessions"
        write_sessions(path, endpoints)
        found = [flood(indoors, path, number * COUNTERS_A_ROUND) for number in range(1, ROUNDS + 1)]
        if is_profiled:
            profile(indoors, path, work)
        assert not indoors.broker.counts.refused, indoors.broker.counts.refused
    return {name: min(one[name] for one in found) for name in found[0]}


def flood(indoors: Indoors, path: Path, counter: int) -> Spent:
    """µs a report by stage while more come than can be taken."""
    spent: Spent = defaultdict(float)
    with bind_at("127.0.0.1", 0) as bound, ExitStack() as stack:
        inbound, port = Inbound(bound, batch=BATCH), bound.getsockname()[1]
        seconds = WARM_S + MEASURE_S
        stack.enter_context(source_to(port, path, counter, seconds, is_sealed=indoors.realm is not None))
        serve(indoors, inbound, WARM_S)
        for name, where, what in STAGES:
            stack.enter_context(patch.object(where, what, timed(getattr(where, what), name, spent)))
        before, began = indoors.broker.counts.reports, time.process_time()
        serve(indoors, inbound, MEASURE_S)
        spent["all"] = time.process_time() - began
        reports = indoors.broker.counts.reports - before
    return {name: value / reports * 1e6 for name, value in spent.items()}


def serve(indoors: Indoors, inbound: Inbound, seconds: float) -> None:
    """Turns, one batch in each."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        count = inbound.receive()
        now = Instant(time.time_ns())
        if count:
            indoors.door.on_batch(inbound.all_data(), inbound.addresses[:count], now)
        indoors.settling.settle(now)


def timed(call: Callable[..., Any], name: str, spent: Spent) -> Callable[..., Any]:
    """The same function, with its time added up."""

    def timed_call(*words: Any, **options: Any) -> Any:
        began = time.process_time()
        found = call(*words, **options)
        spent[name] += time.process_time() - began
        return found

    return timed_call


def profile(indoors: Indoors, path: Path, work: Work) -> None:
    """What cProfile says."""
    profiler = cProfile.Profile()
    counter = (ROUNDS + 1) * COUNTERS_A_ROUND
    with bind_at("127.0.0.1", 0) as bound:
        inbound, port = Inbound(bound, batch=BATCH), bound.getsockname()[1]
        with source_to(port, path, counter, WARM_S + MEASURE_S, is_sealed=work.is_sealed):
            serve(indoors, inbound, WARM_S)
            before = indoors.broker.counts.reports
            profiler.enable()
            serve(indoors, inbound, MEASURE_S)
            profiler.disable()
    print(f"{work}: {indoors.broker.counts.reports - before:,} reports")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def show(found: dict[Work, Spent]) -> None:
    table = Table(title="bench udp_stages: µs a report", title_justify="left")
    table.add_column("stage")
    for work in found:
        table.add_column(str(work), justify="right")
    columns = [parts(spent) for spent in found.values()]
    for name in columns[0]:
        table.add_row(name, *(f"{column[name]:.2f}" for column in columns))
    Console(width=120).print(table)


def turns_us() -> dict[int, float]:
    """µs of a turn by how many reports it takes, without a socket."""
    with Indoors(is_sealed=True) as indoors:
        endpoints, addresses = [Endpoint(number, indoors.realm) for number in range(SESSIONS)], spread_addresses(SESSIONS)
        indoors.open_all(endpoints, addresses)
        found = {}
        for size in SIZES:
            spent = []
            for start in range(0, TURNS * size, size):
                rows = [at % SESSIONS for at in range(start, start + size)]
                datagrams = [endpoints[row].report(Instant(time.time_ns())) for row in rows]
                spent.append(indoors.hear(datagrams, addresses[rows]) * 1e6)
            found[size] = median(spent)
        assert not indoors.broker.counts.refused, indoors.broker.counts.refused
    return found


def show_turns(found: dict[int, float]) -> None:
    table = Table(title="µs of a turn by how many sealed reports it takes, receiving left out", title_justify="left")
    for heading in ("reports", "turn", "each"):
        table.add_column(heading, justify="right")
    for size, turn_us in found.items():
        table.add_row(str(size), f"{turn_us:.0f}", f"{turn_us / size:.2f}")
    Console(width=120).print(table)


def parts(spent: Spent) -> Spent:
    """Each stage without those inside it."""
    taking = ("rates of endpoints", "rounds", "last reports", "vet", "track", "move on the map")
    hearing = ("rates of networks", "decode", "take")
    rows = {name: spent[name] for name in ("receive: system call", "receive: bytes of each", "open")}
    rows["hear: addresses, lists"] = spent["hear"] - sum(spent[name] for name in hearing)
    rows |= {name: spent[name] for name in ("rates of networks", "decode", *taking)}
    rows["take: the rest"] = spent["take"] - sum(spent[name] for name in taking)
    rows["the rest: settling, turns"] = spent["all"] - sum(rows.values())
    return rows | {"all": spent["all"]}


if __name__ == "__main__":
    main()
