"""Stages: the time that an emergency spends in each stage inside an edge (M31)."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, Final

from milepost.broker.admission import Admission
from milepost.broker.emergency import AlertRule
from milepost.broker.presence import Ground, Presence
from milepost.listeners.event_loop import TickLoop
from milepost.listeners.udp import inbound as hearing
from milepost.listeners.udp.receiver import SealedReader
from milepost.trust.signing import Signer
from milepost_experiments.papers.load.endpoints import Endpoint
from milepost_experiments.papers.load.in_process_edge import Indoors, spread_addresses
from milepost_experiments.papers.mercury.accuracy import at_share
from milepost_experiments.papers.mercury.probes import emergency
from milepost_experiments.papers.report import Table

_NEAR_M: Final = 1_000.0

STAGES: Final[tuple[tuple[str, Any, str], ...]] = (
    ("open the seal", SealedReader, "read"),
    ("decode", hearing, "decode"),
    ("admit: rate, plausibility, access, payload", Admission, "refuse"),
    ("match: who is in the area", Presence, "who_is_in"),
    ("sign the alert", Signer, "signed"),
    ("deliver: seal, hand to the network", TickLoop, "settle"),
)
"""The timed functions, with the names of their stages."""


def stages_us(count: int) -> dict[str, list[float]]:
    """Return the microseconds of each stage for each emergency, with 1,000 endpoints, some of them near."""
    spent: dict[str, list[float]] = {name: [] for name in (*(name for name, _, _ in STAGES), "all")}
    with Indoors(is_sealed=True) as indoors:
        indoors.broker.configure(Ground(), (AlertRule("Emergency", radius_m=_NEAR_M),))
        endpoints, addresses = [Endpoint(number, indoors.realm) for number in range(1_000)], spread_addresses(1_000)
        indoors.open_all(endpoints, addresses)
        with ExitStack() as stack:
            now: dict[str, float] = {}
            for name, where, what in STAGES:
                stack.enter_context(_timed(where, what, name, now))
            for number in range(count):
                row = number % len(endpoints)
                data = emergency(endpoints[row])
                now.clear()
                began = time.perf_counter()
                indoors.hear([data], addresses[row : row + 1])
                spent["all"].append((time.perf_counter() - began) * 1e6)
                for name, _, _ in STAGES:
                    spent[name].append(now.get(name, 0.0) * 1e6)
                indoors.kept.take()
    return spent


@contextmanager
def _timed(where: Any, what: str, name: str, now: dict[str, float]) -> Iterator[None]:
    """Add up the time spent in one function during the block."""
    call: Callable[..., Any] = getattr(where, what)

    def timed_call(*words: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*words, **options)
        finally:
            now[name] = now.get(name, 0.0) + time.perf_counter() - began

    setattr(where, what, timed_call)
    try:
        yield
    finally:
        setattr(where, what, call)


def stage_table(stages: dict[str, list[float]]) -> Table:
    """Return the table of each stage and the remainder."""
    names = [name for name in stages if name != "all"]
    rest = [whole - sum(stages[name][at] for name in names) for at, whole in enumerate(stages["all"])]
    rows = {**{name: stages[name] for name in names}, "the rest": rest, "all": stages["all"]}
    cells = tuple(
        (name, f"{median(times):.0f}", f"{at_share(sorted(times), 0.99):.0f}", f"{median(times) / median(stages['all']):.0%}")
        for name, times in rows.items()
    )
    notes = ("The edge's own code in this process, without sockets: 1,000 sealed endpoints, an alert to those within 1 km.",)
    return Table("Where the time of an emergency goes inside an edge: µs", ("stage", "p50", "p99", "share"), cells, notes)
