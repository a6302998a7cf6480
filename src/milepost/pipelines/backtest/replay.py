"""A replay: cells go through the incident desk as if they had just come, and the alerts come out.

What must hold:
- all cells of a slot are there before it is looked at: nothing is late in the past;
- the desk is the one that runs live, so that a record here is the record there, byte for byte, but for what the live one says
  early and says otherwise because of that: when cells came is not known.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from milepost.hub.incidents.approach import Approach
from milepost.hub.incidents.desk import IncidentDesk
from milepost.model.incidents import EventKind
from milepost.model.instants import FOREVER, Instant
from milepost.model.sites import CROSS_HUB


class Replay:
    """The past, told again to a desk that begins with nothing."""

    def __init__(self, site: str, kinds: Sequence[EventKind], approach: Approach | None = None) -> None:
        self._desk = IncidentDesk(site, kinds, late_s=0.0, since=FOREVER, approach=approach)

    def alerts(self, cells: Iterable[tuple[int, str]], until: Instant) -> Iterator[bytes]:
        """The alerts of cells that come in the order in which their slots ended, as the log of the site would have them."""
        for ends_ns, ended in groupby(cells, key=itemgetter(0)):
            if ends_ns > until:
                break
            before = Instant(ends_ns - 1)
            self._desk.tick(before)
            self._desk.take_cells([value.encode() for _, value in ended], before)
            yield from self._told()
        self._desk.tick(until)
        yield from self._told()

    @property
    def dropped(self) -> dict[str, int]:
        """How many cells were not taken, by why."""
        return {name: count for name, count in self._desk.dropped.items() if count}

    def _told(self) -> list[bytes]:
        return [append.value for append in self._desk.take_appends() if append.topic == CROSS_HUB]
