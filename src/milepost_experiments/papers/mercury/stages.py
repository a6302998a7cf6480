"""Stage times: the time that an emergency spends in each stage inside an edge (M31)."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any, Final

from milepost.broker.admission import AdmissionControl
from milepost.broker.alert_rules import AlertRule
from milepost.broker.presence import PlausibilityRules, Presence
from milepost.listeners.event_loop import TickCommitter
from milepost.listeners.udp import inbound
from milepost.listeners.udp.decryption import SealedReader
from milepost.trust.signing import Signer
from milepost_experiments.papers.load.endpoints import Endpoint
from milepost_experiments.papers.load.in_process_edge import InProcessEdge, spread_addresses
from milepost_experiments.papers.mercury.accuracy import quantile
from milepost_experiments.papers.mercury.probes import emergency
from milepost_experiments.papers.report import Table

_NEAR_M: Final = 1_000.0

STAGES: Final[tuple[tuple[str, Any, str], ...]] = (
    ("decrypt", SealedReader, SealedReader.read.__name__),
    ("decode", inbound, "decode"),
    ("admit: rate, plausibility, access, payload", AdmissionControl, AdmissionControl.refuse.__name__),
    ("match: endpoints in the area", Presence, Presence.find_inside.__name__),
    ("sign the alert", Signer, Signer.signed.__name__),
    ("deliver: encrypt, send", TickCommitter, TickCommitter.commit.__name__),
)
"""The timed functions, with the names of their stages."""


def stages_us(count: int) -> dict[str, list[float]]:
    """Return the microseconds of each stage for each emergency, with 1,000 endpoints, some of them near."""
    spent: dict[str, list[float]] = {name: [] for name in (*(name for name, _, _ in STAGES), "all")}
    with InProcessEdge(is_encrypted=True) as edge:
        edge.broker.configure(PlausibilityRules(), (AlertRule("Emergency", radius_m=_NEAR_M),))
        endpoints, addresses = [Endpoint(number, edge.realm) for number in range(1_000)], spread_addresses(1_000)
        edge.open_all(endpoints, addresses)
        with ExitStack() as stack:
            spent_now: dict[str, float] = {}
            for name, owner, function in STAGES:
                stack.enter_context(_timed(owner, function, name, spent_now))
            for number in range(count):
                row = number % len(endpoints)
                data = emergency(endpoints[row])
                spent_now.clear()
                began = time.perf_counter()
                edge.run_tick([data], addresses[row : row + 1])
                spent["all"].append((time.perf_counter() - began) * 1e6)
                for name, _, _ in STAGES:
                    spent[name].append(spent_now.get(name, 0.0) * 1e6)
                edge.collected.take()
    return spent


@contextmanager
def _timed(owner: Any, function: str, name: str, spent_now: dict[str, float]) -> Iterator[None]:
    """Add up the time spent in one function during the block."""
    call: Callable[..., Any] = getattr(owner, function)

    def timed_call(*arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*arguments, **options)
        finally:
            spent_now[name] = spent_now.get(name, 0.0) + time.perf_counter() - began

    setattr(owner, function, timed_call)
    try:
        yield
    finally:
        setattr(owner, function, call)


def stage_table(stages: dict[str, list[float]]) -> Table:
    """Return the table of each stage and the remainder."""
    names = [name for name in stages if name != "all"]
    rest = [whole - sum(stages[name][at] for name in names) for at, whole in enumerate(stages["all"])]
    rows = {**{name: stages[name] for name in names}, "other": rest, "all": stages["all"]}
    cells = tuple(
        (name, f"{median(times):.0f}", f"{quantile(sorted(times), 0.99):.0f}", f"{median(times) / median(stages['all']):.0%}")
        for name, times in rows.items()
    )
    notes = (
        "The edge's code in this process, without sockets: 1,000 endpoints over encrypted UDP, an alert to those within 1 km.",
    )
    return Table("Time of an emergency inside an edge, by stage: µs", ("stage", "p50", "p99", "share"), cells, notes)
