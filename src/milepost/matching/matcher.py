"""The matching engine: the receivers of a message, and the endpoints inside an area.

    message -> satisfied queries (`query_index`) -> their rows, those with an area by place (`area_index`) -> time window
            -> within the message's own area -> one row per shared subscription -> receivers

Invariants:
- a row is a subscription; rows, endpoints and queries are numbers, reused after their release;
- a row is indexed by its query, in `_without_area` if it has no area, else in `_with_area`;
- no code here reads the clock, and no operation scans all rows.
Endpoints are numbers below `endpoints_max`; this module must not know their identities and sessions.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milepost.matching.area_index import AreaIndex
from milepost.matching.columns import ListPool, Rows, RowsByQuery, column, element_view
from milepost.matching.points import Numbers, PointIndex
from milepost.matching.query_index import QueryIndex
from milepost.model.addresses import ToContent
from milepost.model.areas import Area, Around
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.subscriptions import Subscription
from milepost.model.time_windows import ALWAYS

_INTERVAL_BITS: Final = 36
_EMPTY_MAX: Final = 64
"""Maximum empty intervals in the heap beyond twice those in use."""


class ExpiryIndex:
    """Expiry times of at most `limit` rows.

    Rows are bucketed by the interval (69 s) in which they end: adding and removing one is O(1), and the search for expired
    rows touches only intervals that have passed.
    """

    def __init__(self, limit: int) -> None:
        self.end: NDArray[np.int64] = column(limit, np.int64)
        """Expiry time of each row."""
        self._lists = ListPool(limit, limit)
        self._position = element_view(column(limit, np.int32))
        self._intervals: dict[int, int] = {}
        self._heap: list[int] = []

    def add(self, row: int, end: Instant) -> None:
        """Add the expiry time of a row."""
        self.end[row] = end
        if end == FOREVER:
            return
        interval = end >> _INTERVAL_BITS
        list_id = self._intervals.get(interval)
        if list_id is None:
            list_id = self._intervals[interval] = self._lists.new()
            heappush(self._heap, interval)
        self._position[row] = self._lists.append(list_id, row)

    def remove(self, row: int) -> None:
        """Remove the expiry time of a row."""
        end = int(self.end[row])
        if end == FOREVER:
            return
        interval = end >> _INTERVAL_BITS
        list_id = self._intervals[interval]
        moved = self._lists.remove(list_id, self._position[row])
        if moved >= 0:
            self._position[moved] = self._position[row]
        if not self._lists.length(list_id):
            self._lists.drop(self._intervals.pop(interval))
            if len(self._heap) > 2 * len(self._intervals) + _EMPTY_MAX:
                self._heap = sorted(self._intervals)

    def expired(self, now: Instant, limit: int) -> list[int]:
        """Return up to `limit` expired rows of the oldest interval; empty only if no row has expired."""
        while self._heap and self._heap[0] <= now >> _INTERVAL_BITS:
            list_id = self._intervals.get(self._heap[0])
            if list_id is not None:
                rows = self._lists.view(list_id)
                expired: list[int] = rows[self.end[rows] < now][:limit].tolist()
                return expired
            heappop(self._heap)
        return []


class ShareGroups:
    """Shared subscriptions: a share is a name and a query; each message goes to one of its rows, round-robin."""

    def __init__(self, limit: int) -> None:
        self._share = column(limit, np.int32)  # by row; 0 is none
        self._rotation = element_view(column(limit + 1, np.int64))  # by share
        self._members: dict[int, int] = {}
        self._by_name: dict[tuple[str, int], int] = {}
        self._names: dict[int, tuple[str, int]] = {}
        self._free: list[int] = []
        self.count = 0
        """Number of shares."""

    def join(self, row: int, name: str, query: int) -> None:
        """Add a row to the share of this name and query."""
        share = self._by_name.get((name, query))
        if share is None:
            share = self._free.pop() if self._free else self.count + 1
            self._by_name[name, query] = share
            self._names[share] = (name, query)
            self._rotation[share] = 0
            self.count += 1
        self._members[share] = self._members.get(share, 0) + 1
        self._share[row] = share

    def leave(self, row: int) -> None:
        """Remove a row from its share."""
        share = int(self._share[row])
        self._share[row] = 0
        self._members[share] -= 1
        if not self._members[share]:
            del self._members[share], self._by_name[self._names.pop(share)]
            self._free.append(share)
            self.count -= 1

    def of(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the share of each row, 0 for none."""
        shares: NDArray[np.int32] = self._share[rows]
        return shares

    def choose_one_of_each(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return all rows without a share, and the next row of each share in rotation."""
        shares = self._share[rows]
        if not shares.any():
            return rows
        chosen = []
        for share in np.unique(shares[shares > 0]).tolist():
            members = np.sort(rows[shares == share])
            chosen.append(members[self._rotation[share] % members.size])
            self._rotation[share] += 1
        return np.concatenate((rows[shares == 0], np.array(chosen, np.int32)))


@dataclass(slots=True, eq=False)  # not frozen: that would double the construction time
class MatchedReceivers:
    """The receivers of a message, each endpoint once, with all its matching subscriptions.

    owners   7    3    9          one entry per receiver
    starts   0    1    3          index of the receiver's first row; None if each receiver has exactly one
    rows     12 | 4  8 | 5        subscriptions, grouped by receiver
    """

    owners: NDArray[np.int32]
    rows: NDArray[np.int32]
    starts: NDArray[np.int64] | None

    def __len__(self) -> int:
        return self.owners.size

    def rows_of(self, index: int) -> NDArray[np.int32]:
        """Return the subscriptions of the receiver at an index."""
        if self.starts is None:
            return self.rows[index : index + 1]
        end = self.starts[index + 1] if index + 1 < self.starts.size else self.rows.size
        return self.rows[self.starts[index] : end]

    def maximum(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the maximum of the rows' values (such as the QoS) for each receiver."""
        return values if self.starts is None else np.maximum.reduceat(values, self.starts)


NO_RECEIVERS = MatchedReceivers(np.empty(0, np.int32), np.empty(0, np.int32), None)


def group_by_owner(rows: NDArray[np.int32], owners: NDArray[np.int32], scratch: NDArray[np.int32]) -> MatchedReceivers:
    """Group matched rows by owner; `scratch` has an element for every possible owner."""
    if owners.size < 2:
        return MatchedReceivers(owners, rows, None)
    positions = np.arange(owners.size, dtype=np.int32)
    scratch[owners] = positions
    if (scratch[owners] == positions).all():
        return MatchedReceivers(owners, rows, None)
    order = np.argsort(owners, kind="stable")
    rows, owners = rows[order], owners[order]
    starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    return MatchedReceivers(owners[starts], rows, starts)


NEGATED_ONLY_MAX: Final = 16
"""Maximum subscriptions per endpoint that every message must be checked against."""

EXPIRED_PER_CALL_MAX: Final = 256
"""Maximum subscriptions expired in one call: under ten milliseconds of work."""

_IN_USE, _WITH_AREA, _TIMED, _SHARED, _NEGATED_ONLY = 1, 2, 4, 8, 16


@dataclass(frozen=True, slots=True)
class MatcherLimits:
    """Capacity of the engine; memory is committed only as it fills."""

    subscriptions_max: int = 1 << 20
    endpoints_max: int = 1 << 20
    atoms_max: int = 1 << 20
    """Distinct tags and topic filters in all subscriptions together."""


class Matcher:
    """Subscriptions and positions of endpoints, up to a million of each, updated one by one and queried at any time."""

    def __init__(self, limits: MatcherLimits | None = None) -> None:
        self.limits = limits or MatcherLimits()
        rows_max, endpoints_max = self.limits.subscriptions_max, self.limits.endpoints_max
        self._queries = QueryIndex(rows_max, self.limits.atoms_max)
        self._endpoints = PointIndex(endpoints_max)
        self._areas = AreaIndex(rows_max, endpoints_max, self._endpoints)
        self._expiries = ExpiryIndex(rows_max)
        self._groups = ShareGroups(rows_max)
        self._without_area = RowsByQuery(rows_max)
        self._with_area = RowsByQuery(rows_max)
        self._is_true = column(rows_max, np.bool_)  # by query, while a message is matched
        # by row
        self._query = column(rows_max, np.int32)
        self._owner = column(rows_max, np.int32)
        self._start = column(rows_max, np.int64)
        self._subscription_id = column(rows_max, np.uint32)
        self._qos = column(rows_max, np.uint8)
        self._traits = element_view(column(rows_max, np.uint8))
        # by endpoint
        self._negated_only = element_view(column(endpoints_max, np.uint8))
        self._scratch = column(endpoints_max, np.int32)
        self._free: list[int] = []
        self._allocated = 0
        self._timed = 0
        self.epoch = 0
        """Version of the subscriptions; a change invalidates cached matches."""

    def __len__(self) -> int:
        return self._allocated - len(self._free)

    def add(self, owner: int, subscription: Subscription) -> int:
        """Add a subscription of an endpoint; return its row, the handle for changes and removal."""
        self._check_room(owner)
        query = self._queries.acquire(subscription.query)
        traits = _IN_USE
        if self._queries.has_negated_only_clause(query):
            if self._negated_only[owner] >= NEGATED_ONLY_MAX:
                self._queries.release(query)
                raise Malformed(
                    Reason.NEGATED_ONLY_FULL, f"the endpoint has {NEGATED_ONLY_MAX} queries of negations alone already"
                )
            self._negated_only[owner] += 1
            traits |= _NEGATED_ONLY
        row = self._free.pop() if self._free else self._allocated
        self._allocated = max(self._allocated, row + 1)
        self._query[row], self._owner[row] = query, owner
        self._subscription_id[row], self._qos[row] = subscription.id, subscription.qos
        self._start[row] = subscription.time_window.start
        self._expiries.add(row, subscription.time_window.end)
        if subscription.time_window != ALWAYS:
            self._timed += 1
            traits |= _TIMED
        if subscription.share is not None:
            self._groups.join(row, subscription.share, query)
            traits |= _SHARED
        self._traits[row] = traits
        self._index(row, subscription.area)
        self.epoch += 1
        return row

    def remove(self, row: int) -> None:
        """Remove a subscription."""
        self._check_in_use(row)
        traits = self._traits[row]
        self._unindex(row)
        self._expiries.remove(row)
        if traits & _TIMED:
            self._timed -= 1
        if traits & _NEGATED_ONLY:
            self._negated_only[int(self._owner[row])] -= 1
        if traits & _SHARED:
            self._groups.leave(row)
        self._queries.release(int(self._query[row]))
        self._traits[row] = 0
        self._free.append(row)
        self.epoch += 1

    def relocate(self, row: int, area: Area | Around | None) -> None:
        """Replace the area of a subscription; None removes it."""
        self._check_in_use(row)
        self._unindex(row)
        self._index(row, area)
        self.epoch += 1

    def expire(self, now: Instant) -> list[int]:
        """Remove subscriptions whose time window has ended, a limited number per call; return their rows, empty when done."""
        expired = self._expiries.expired(now, EXPIRED_PER_CALL_MAX)
        for row in expired:
            self.remove(row)
        return expired

    def move(self, endpoints: ArrayLike, latitudes: ArrayLike, longitudes: ArrayLike) -> None:
        """Update the positions of endpoints, from a batch of reports in the order of arrival."""
        self._endpoints.move(endpoints, latitudes, longitudes)

    def forget(self, endpoints: ArrayLike) -> None:
        """Remove the positions of endpoints."""
        self._endpoints.remove(endpoints)

    def find_inside(self, area: Area) -> Numbers:
        """Return the endpoints inside an area by their last report, each once, unordered."""
        return self._endpoints.inside(area)

    def find_receivers(self, message: Message, now: Instant) -> MatchedReceivers:
        """Return the endpoints with a matching subscription, each once, with all its matching subscriptions.

        A subscription matches if topic and tags satisfy its query, its area (if any) contains the message's place, and its
        time window contains the message's `seen_at` and has not ended. An expired message matches nothing. If the message is
        addressed to content within an area, receivers outside are excluded.
        """
        rows = self.find_rows(message, now)
        if self._groups.count:
            rows = self._groups.choose_one_of_each(rows)
        return group_by_owner(rows, self._owner.take(rows), self._scratch)

    def find_rows(self, message: Message, now: Instant) -> Rows:
        """Return the matching subscriptions, with all rows of each share: for callers with their own rotation of shares."""
        if message.is_expired(now):
            return NO_RECEIVERS.rows
        rows = self._rows_for(message)
        if self._timed:
            rows = rows[(self._start[rows] <= message.seen_at) & (self._expiries.end[rows] >= max(now, message.seen_at))]
        address = message.address
        if isinstance(address, ToContent) and address.within is not None:
            is_known, places = self._endpoints.positions_of(self._owner[rows])
            rows = rows[is_known & address.within.contains(places)]
        return rows

    def is_cacheable(self, message: Message) -> bool:
        """Whether messages that differ only in source, time and content match the same rows until the epoch changes."""
        is_placed = message.place is not None and self.has_areas
        if message.tags or is_placed or message.address != ToContent():
            return False
        return not self._timed or not any(self._traits[row] & _TIMED for row in self._rows_for(message).tolist())

    @property
    def has_areas(self) -> bool:
        """Whether any subscription has an area."""
        return self._with_area.count > 0

    def owners_of(self, rows: Rows) -> Rows:
        """Return the owner of each subscription."""
        return self._owner.take(rows)

    def shares_of(self, rows: Rows) -> NDArray[np.int32]:
        """Return the share number of each subscription, 0 for none."""
        return self._groups.of(rows)

    def qos_of(self, receivers: MatchedReceivers) -> NDArray[np.uint8]:
        """Return the highest subscribed QoS of each receiver."""
        return receivers.maximum(self._qos[receivers.rows])

    def subscription_ids_of(self, rows: Rows) -> NDArray[np.uint32]:
        """Return the subscription ids set by the owners, 0 for none."""
        subscription_ids: NDArray[np.uint32] = self._subscription_id[rows]
        return subscription_ids

    def _rows_for(self, message: Message) -> Rows:
        """Return the rows whose query is satisfied and whose area, if any, contains the message's place."""
        simple, others = self._queries.satisfied_by(message.topic, message.tags)
        rows = self._without_area.of_many(others) if others.size else NO_RECEIVERS.rows
        if simple:
            simple_rows = self._without_area.of(simple)
            rows = np.concatenate((simple_rows, rows)) if rows.size else simple_rows
        if self._with_area.count and message.place is not None:
            queries = np.concatenate((np.array(simple, np.int32), others))
            rows = np.concatenate((rows, self._rows_with_area(queries, message.place)))
        return rows

    def _rows_with_area(self, queries: NDArray[np.int32], place: Place) -> Rows:
        """Return the rows of some queries whose area contains a place; looks up by query or by place, whichever is cheaper."""
        if self._with_area.total(queries) <= self._areas.direct_max:
            rows = self._with_area.of_many(queries)
        else:
            rows = self._areas.candidates_near(place)
            self._is_true[queries] = True
            rows = rows[self._is_true[self._query[rows]]]
            self._is_true[queries] = False
        return rows[self._areas.contains(rows, place)] if rows.size else rows

    def _index(self, row: int, area: Area | Around | None) -> None:
        query = int(self._query[row])
        if area is None:
            self._without_area.add(query, row)
            return
        self._with_area.add(query, row)
        self._areas.add(row, int(self._owner[row]), area)
        self._traits[row] |= _WITH_AREA

    def _unindex(self, row: int) -> None:
        query = int(self._query[row])
        if not self._traits[row] & _WITH_AREA:
            self._without_area.remove(query, row)
            return
        self._with_area.remove(query, row)
        self._areas.remove(row)
        self._traits[row] &= ~_WITH_AREA

    def _check_room(self, owner: int) -> None:
        if not 0 <= owner < self.limits.endpoints_max:
            raise Malformed(Reason.ENDPOINTS_FULL, f"endpoint numbers are 0 to {self.limits.endpoints_max - 1}")
        if len(self) >= self.limits.subscriptions_max:
            raise Malformed(Reason.SUBSCRIPTIONS_FULL, f"the edge has {self.limits.subscriptions_max} subscriptions already")

    def _check_in_use(self, row: int) -> None:
        is_in_use = 0 <= row < self._allocated and self._traits[row] & _IN_USE
        assert is_in_use, f"row {row} is not a subscription"
