"""Recent: the last records of the site's order, at hand for endpoints that arrive and must not miss what was said meanwhile."""

from bisect import bisect_left
from collections import deque
from itertools import islice
from typing import Final, NamedTuple

from milepost.edge.site.limits import SiteLimits
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.sites import Extra, Said

EXTRAS_MAX: Final = 1_000
"""So many of what the centre found for endpoints."""


class Read(NamedTuple):
    """A message that was read at an offset."""

    offset: int
    appended_at: Instant
    size: int
    said: Said
    is_new: bool = True
    """Whether it was not read before, from elsewhere in the log."""


class Recent:
    """So many records, and so many bytes; older ones are to be read again from the log."""

    def __init__(self, limits: SiteLimits) -> None:
        self._limits = limits
        self._reads: deque[Read] = deque()
        self._bytes = 0
        self._extras: deque[tuple[int, Extra]] = deque()
        self._first: int | None = None
        self._next = 0

    def begin(self, offset: int) -> None:
        """Records from an offset on will come."""
        self._first = self._next = offset

    def put(self, read: Read) -> None:
        """One more."""
        self._reads.append(read)
        self._bytes += read.size
        while len(self._reads) > self._limits.recent_records_max or self._bytes > self._limits.recent_bytes_max:
            gone = self._reads.popleft()
            self._bytes -= gone.size
            self._first = gone.offset + 1

    def put_extra(self, offset: int, extra: Extra) -> None:
        """Something that the centre found for one endpoint."""
        self._extras.append((offset, extra))
        if len(self._extras) > EXTRAS_MAX:
            self._first = max(self._first or 0, self._extras.popleft()[0] + 1)

    def extras_for(self, endpoint: EndpointId) -> list[Extra]:
        """What the centre found for an endpoint."""
        return [extra for _, extra in self._extras if extra.endpoint == endpoint]

    def reaches(self, offset: int) -> bool:
        """Whether everything from an offset on is at hand."""
        return self._first is not None and self._first <= offset

    def reaches_time(self, instant: Instant) -> bool:
        """Whether everything that was appended since an instant is at hand."""
        return bool(self._reads) and self._reads[0].appended_at < instant

    def offsets(self) -> dict[tuple[str, int], int]:
        """Where each was first read, by edge and number."""
        return {(str(read.said.sender), read.said.number): read.offset for read in self._reads if read.is_new}

    def since(self, offset: int) -> list[Read]:
        """What was read from an offset on."""
        at = bisect_left(self._reads, offset, key=lambda read: read.offset)
        return list(islice(self._reads, at, None))

    def since_time(self, instant: Instant) -> list[Read]:
        """What was appended at an instant or later."""
        at = bisect_left(self._reads, instant, key=lambda read: read.appended_at)
        return list(islice(self._reads, at, None))
