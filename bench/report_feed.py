"""The cost of forwarding reports to pipelines: µs per report, and the ratio to the cost of a report without it.

`python -m bench.report_feed` prints a table. Encrypted reports of a thousand endpoints pass through the UDP listener, without
sockets, in ticks of different sizes; alternately with and without forwarding, so that both have the same noise. The edge has a
coverage, and there are two other edges. Goal: at most 0.25 of the cost of the report in ticks of 64 and more, as there are at
20,000 reports per second.
"""

import time
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from milepost.broker.presence import PlausibilityRules
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.areas import Circle
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.site_records import EdgeInfo, EdgeRef
from milepost.vetting import ReportLimits
from milepost_experiments.papers.load.endpoints import Endpoint
from milepost_experiments.papers.load.in_process_edge import InProcessEdge, spread_addresses

SESSIONS: Final = 1_000
SIZES: Final = (1, 16, 64, 256, 1_000)
REPORTS: Final = 20_000
HERE: Final = Place(40.7608, -111.891)
RATIO_MAX: Final = 0.25
GOAL_SIZE_MIN: Final = 64


class FeedBenchmark:
    """An in-process edge, and a site whose log accepts everything at once."""

    def __init__(self, edge: InProcessEdge) -> None:
        self._edge = edge
        broker = edge.broker
        self._endpoints = [Endpoint(number, edge.realm) for number in range(SESSIONS)]
        self._addresses = spread_addresses(SESSIONS)
        edge.open_all(self._endpoints, self._addresses)
        self._member = SiteMember(broker, EdgeRef("north", "edge-1"), SiteLimits(position_interval_s=0))
        self._on_reports, broker.federation = broker.presence.observer, None
        broker.presence.plausibility_rules = PlausibilityRules(Circle(HERE, 5_000), ReportLimits(move_mps_max=0))
        for name, longitude in (("edge-2", -111.8), ("edge-3", -111.7)):
            ref = EdgeRef("north", name)
            self._member.state.edges[ref] = EdgeInfo(ref, Circle(Place(40.7608, longitude), 5_000))

    def tick_s(self, start: int, size: int, *, is_forwarded: bool) -> float:
        """Return the CPU time of one tick, including the records for the log."""
        broker, outbox = self._edge.broker, self._member.state.outbox
        broker.presence.observer = self._on_reports if is_forwarded else None
        rows = [at % SESSIONS for at in range(start, start + size)]
        datagrams = [self._endpoints[row].report(Instant(time.time_ns())) for row in rows]
        spent_s = self._edge.run_tick(datagrams, self._addresses[rows])
        began = time.process_time()
        if is_forwarded:
            self._member.report_feed.tick(Instant(time.time_ns()))
            outbox.confirm(outbox.take_batch())
        return spent_s + time.process_time() - began

    def forwarded_count(self) -> int:
        """Return the number of forwarded reports."""
        return self._member.state.counts["reports_sent"]


def costs_us(bench: FeedBenchmark, size: int) -> tuple[float, float]:
    """Return µs per report without and with forwarding."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    for number in range(max(20, REPORTS // size // 2)):
        for is_forwarded in (False, True):
            spent[is_forwarded].append(bench.tick_s(number * size, size, is_forwarded=is_forwarded))
    # Records are written every 0.2 s or 1,000 reports: the mean includes them, a median would not.
    extras_s = [sum(some) / len(some) - median(some) for some in spent.values()]
    without_us = median(spent[False]) / size * 1e6
    with_us = (median(spent[True]) + max(0.0, extras_s[1] - extras_s[0])) / size * 1e6
    return without_us, with_us


def main() -> None:
    table = Table(title="Benchmark: report feed, µs per encrypted report", title_justify="left")
    for heading in ("reports per tick", "without", "with forwarding", "extra", "ratio", "goal met"):
        table.add_column(heading, justify="right")
    with InProcessEdge(is_encrypted=True) as edge:
        bench = FeedBenchmark(edge)
        for size in SIZES:
            without_us, with_us = costs_us(bench, size)
            extra_us = with_us - without_us
            is_met = "-" if size < GOAL_SIZE_MIN else "yes" if extra_us <= RATIO_MAX * without_us else "NO"
            table.add_row(
                str(size), f"{without_us:.2f}", f"{with_us:.2f}", f"{extra_us:.2f}", f"{extra_us / without_us:.2f}", is_met
            )
        assert bench.forwarded_count()
        assert not edge.broker.counts.refused, edge.broker.counts.refused
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
