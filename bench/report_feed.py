"""What it costs an edge to tell pipelines of reports: µs a report, and the ratio to what the report costs without it.

`python -m bench.report_feed` prints a table. Sealed reports of a thousand endpoints come through the UDP door, without sockets, in
turns of different sizes; with and without telling in turn, so that both have the same noise. The edge has a coverage, and there
are two others. Goal: at most 0.25 of the report's own cost in turns of 64 and more, as there are at 20,000 reports a second.
"""

import time
from statistics import median
from typing import Final

from milepost_experiments.papers.load.in_process_edge import Indoors, spread_addresses
from rich.console import Console
from rich.table import Table

from milepost.broker.presence import Ground
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.areas import Circle
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.sites import EdgeInfo, EdgeRef
from milepost.vetting import ReportLimits
from milepost_experiments.papers.load.endpoints import Endpoint

SESSIONS: Final = 1_000
SIZES: Final = (1, 16, 64, 256, 1_000)
REPORTS: Final = 20_000
HERE: Final = Place(40.7608, -111.891)
RATIO_MAX: Final = 0.25
FROM: Final = 64


class Bench:
    """A door, and a site whose log takes everything at once."""

    def __init__(self, indoors: Indoors) -> None:
        self._indoors = indoors
        broker = indoors.broker
        self._endpoints = [Endpoint(number, indoors.realm) for number in range(SESSIONS)]
        self._addresses = spread_addresses(SESSIONS)
        indoors.open_all(self._endpoints, self._addresses)
        self._member = SiteMember(broker, EdgeRef("north", "edge-1"), SiteLimits(places_s=0))
        self._heed, broker.federation = broker.watch.heed, None
        broker.watch.ground = Ground(Circle(HERE, 5_000), ReportLimits(move_mps_max=0))
        for name, longitude in (("edge-2", -111.8), ("edge-3", -111.7)):
            ref = EdgeRef("north", name)
            self._member.state.edges[ref] = EdgeInfo(ref, Circle(Place(40.7608, longitude), 5_000))

    def turn_s(self, start: int, size: int, *, is_told: bool) -> float:
        """How long one turn takes, and what it leaves to the log."""
        broker, outbox = self._indoors.broker, self._member.state.outbox
        broker.watch.heed = self._heed if is_told else None
        rows = [at % SESSIONS for at in range(start, start + size)]
        datagrams = [self._endpoints[row].report(Instant(time.time_ns())) for row in rows]
        spent_s = self._indoors.hear(datagrams, self._addresses[rows])
        began = time.process_time()
        if is_told:
            self._member.reporting.tick(Instant(time.time_ns()))
            outbox.taken(outbox.take())
        return spent_s + time.process_time() - began

    def told(self) -> int:
        """Reports that were told, of all."""
        return self._member.state.counts["reports_told"]


def costs_us(bench: Bench, size: int) -> tuple[float, float]:
    """µs a report without and with telling."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    for number in range(max(20, REPORTS // size // 2)):
        for is_told in (False, True):
            spent[is_told].append(bench.turn_s(number * size, size, is_told=is_told))
    # Telling happens every 0.2 s or 1,000 reports: the mean has it, a median would not.
    rests = [sum(some) / len(some) - median(some) for some in spent.values()]
    without_us = median(spent[False]) / size * 1e6
    with_us = (median(spent[True]) + max(0.0, rests[1] - rests[0])) / size * 1e6
    return without_us, with_us


def main() -> None:
    table = Table(title="bench telling: µs a sealed report", title_justify="left")
    for heading in ("reports a turn", "without", "with telling", "more", "ratio", "held"):
        table.add_column(heading, justify="right")
    with Indoors(is_sealed=True) as indoors:
        bench = Bench(indoors)
        for size in SIZES:
            without_us, with_us = costs_us(bench, size)
            more_us = with_us - without_us
            held = "-" if size < FROM else "yes" if more_us <= RATIO_MAX * without_us else "NO"
            table.add_row(str(size), f"{without_us:.2f}", f"{with_us:.2f}", f"{more_us:.2f}", f"{more_us / without_us:.2f}", held)
        assert bench.told()
        assert not indoors.broker.counts.refused, indoors.broker.counts.refused
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
