"""The matching engine: the receivers of a message, and the endpoints inside an area.

    message -> satisfied queries (`formulas`) -> their rows, those with an area by place (`reaches`) -> time window
            -> within the message's own area -> one row per shared subscription -> receivers

Invariants:
- a row is a subscription; rows, endpoints and queries are numbers, reused after their release;
- a row is indexed by its query, in `_open` if it has no area, else in `_located`;
- no code here reads the clock, and no operation scans all rows.
Endpoints are numbers below `endpoints_max`; this module must not know their identities and sessions.
"""

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milepost.matching.columns import Lists, Rows, RowsByQuery, column, numbers_of
from milepost.matching.formulas import Formulas
from milepost.matching.points import Numbers, PointIndex
from milepost.matching.reaches import Reaches
from milepost.model.addresses import ToContent
from milepost.model.areas import Area, Around
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.subscriptions import Subscription
from milepost.model.time_windows import ALWAYS

_STRETCH_BITS: Final = 36
_FORGOTTEN_MAX: Final = 64
"""Maximum empty stretches in the heap beyond twice those in use."""


class Endings:
    """Expiry times of at most `limit` rows.

    Rows are bucketed by the stretch of time (69 s) in which they end: adding and removing one is O(1), and the search for expired
    rows touches only stretches that have passed.
    """

    def __init__(self, limit: int) -> None:
        self.end: NDArray[np.int64] = column(limit, np.int64)
        """Expiry time of each row."""
        self._lists = Lists(limit, limit)
        self._position = numbers_of(column(limit, np.int32))
        self._stretches: dict[int, int] = {}
        self._order: list[int] = []

    def put(self, row: int, end: Instant) -> None:
        """Add the expiry time of a row."""
        self.end[row] = end
        if end == FOREVER:
            return
        stretch = end >> _STRETCH_BITS
        which = self._stretches.get(stretch)
        if which is None:
            which = self._stretches[stretch] = self._lists.new()
            heappush(self._order, stretch)
        self._position[row] = self._lists.append(which, row)

    def take_away(self, row: int) -> None:
        """Remove the expiry time of a row."""
        end = int(self.end[row])
        if end == FOREVER:
            return
        stretch = end >> _STRETCH_BITS
        which = self._stretches[stretch]
        moved = self._lists.remove(which, self._position[row])
        if moved >= 0:
            self._position[moved] = self._position[row]
        if not self._lists.length(which):
            self._lists.drop(self._stretches.pop(stretch))
            if len(self._order) > 2 * len(self._stretches) + _FORGOTTEN_MAX:
                self._order = sorted(self._stretches)

    def over(self, now: Instant, limit: int) -> list[int]:
        """Return up to `limit` expired rows of the oldest stretch; empty only if no row has expired."""
        while self._order and self._order[0] <= now >> _STRETCH_BITS:
            which = self._stretches.get(self._order[0])
            if which is not None:
                rows = self._lists.view(which)
                over: list[int] = rows[self.end[rows] < now][:limit].tolist()
                return over
            heappop(self._order)
        return []


class Shares:
    """Shared subscriptions: a share is a name and a query; each message goes to one of its rows, round-robin."""

    def __init__(self, limit: int) -> None:
        self._share = column(limit, np.int32)  # by row; 0 is none
        self._turn = numbers_of(column(limit + 1, np.int64))  # by share
        self._members: dict[int, int] = {}
        self._named: dict[tuple[str, int], int] = {}
        self._names: dict[int, tuple[str, int]] = {}
        self._free: list[int] = []
        self.count = 0
        """Number of shares."""

    def join(self, row: int, name: str, query: int) -> None:
        """Add a row to the share of this name and query."""
        share = self._named.get((name, query))
        if share is None:
            share = self._free.pop() if self._free else self.count + 1
            self._named[name, query] = share
            self._names[share] = (name, query)
            self._turn[share] = 0
            self.count += 1
        self._members[share] = self._members.get(share, 0) + 1
        self._share[row] = share

    def leave(self, row: int) -> None:
        """Remove a row from its share."""
        share = int(self._share[row])
        self._share[row] = 0
        self._members[share] -= 1
        if not self._members[share]:
            del self._members[share], self._named[self._names.pop(share)]
            self._free.append(share)
            self.count -= 1

    def of(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the share of each row, 0 for none."""
        shares: NDArray[np.int32] = self._share[rows]
        return shares

    def one_of_each(self, rows: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return all rows without a share, and the next row of each share in rotation."""
        shares = self._share[rows]
        if not shares.any():
            return rows
        chosen = []
        for share in np.unique(shares[shares > 0]).tolist():
            members = np.sort(rows[shares == share])
            chosen.append(members[self._turn[share] % members.size])
            self._turn[share] += 1
        return np.concatenate((rows[shares == 0], np.array(chosen, np.int32)))


@dataclass(slots=True, eq=False)  # not frozen: that would double the construction time
class Takers:
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

    def most(self, values: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the maximum of the rows' values (such as the QoS) for each receiver."""
        return values if self.starts is None else np.maximum.reduceat(values, self.starts)


NOBODY = Takers(np.empty(0, np.int32), np.empty(0, np.int32), None)


def group(rows: NDArray[np.int32], owners: NDArray[np.int32], scratch: NDArray[np.int32]) -> Takers:
    """Group matched rows by owner; `scratch` has an element for every possible owner."""
    if owners.size < 2:
        return Takers(owners, rows, None)
    turn = np.arange(owners.size, dtype=np.int32)
    scratch[owners] = turn
    if (scratch[owners] == turn).all():
        return Takers(owners, rows, None)
    order = np.argsort(owners, kind="stable")
    rows, owners = rows[order], owners[order]
    starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    return Takers(owners[starts], rows, starts)


NEGATED_ONLY_MAX: Final = 16
"""Maximum subscriptions per endpoint that every message must be checked against."""

EXPIRE_A_TURN: Final = 256
"""Maximum subscriptions expired in one call: under ten milliseconds of work."""

_LIVE, _LOCATED, _TIMED, _SHARED, _KEYLESS = 1, 2, 4, 8, 16


@dataclass(frozen=True, slots=True)
class Limits:
    """Capacity of the engine; memory is committed only as it fills."""

    subscriptions_max: int = 1 << 20
    endpoints_max: int = 1 << 20
    atoms_max: int = 1 << 20
    """Distinct tags and topic filters in all subscriptions together."""


class Matcher:
    """Subscriptions and positions of endpoints, up to a million of each, updated one by one and queried at any time."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        rows_max, endpoints_max = self.limits.subscriptions_max, self.limits.endpoints_max
        self._formulas = Formulas(rows_max, self.limits.atoms_max)
        self._endpoints = PointIndex(endpoints_max)
        self._reaches = Reaches(rows_max, endpoints_max, self._endpoints)
        self._endings = Endings(rows_max)
        self._shares = Shares(rows_max)
        self._open = RowsByQuery(rows_max)
        self._located = RowsByQuery(rows_max)
        self._is_true = column(rows_max, np.bool_)  # by query, while a message is matched
        # by row
        self._query = column(rows_max, np.int32)
        self._owner = column(rows_max, np.int32)
        self._start = column(rows_max, np.int64)
        self._label = column(rows_max, np.uint32)
        self._qos = column(rows_max, np.uint8)
        self._traits = numbers_of(column(rows_max, np.uint8))
        # by endpoint
        self._keyless = numbers_of(column(endpoints_max, np.uint8))
        self._scratch = column(endpoints_max, np.int32)
        self._free: list[int] = []
        self._made = 0
        self._timed = 0
        self.epoch = 0
        """Version of the subscriptions; a change invalidates cached matches."""

    def __len__(self) -> int:
        return self._made - len(self._free)

    def add(self, owner: int, subscription: Subscription) -> int:
        """Add a subscription of an endpoint; return its row, the handle for changes and removal."""
        self._check_room(owner)
        query = self._formulas.ask(subscription.query)
        traits = _LIVE
        if self._formulas.is_keyless(query):
            if self._keyless[owner] >= NEGATED_ONLY_MAX:
                self._formulas.drop(query)
                raise Malformed(Reason.NEGATED_ONLY_FULL, f"{NEGATED_ONLY_MAX} queries of negations alone are in use")
            self._keyless[owner] += 1
            traits |= _KEYLESS
        row = self._free.pop() if self._free else self._made
        self._made = max(self._made, row + 1)
        self._query[row], self._owner[row] = query, owner
        self._label[row], self._qos[row] = subscription.id, subscription.qos
        self._start[row] = subscription.time_window.start
        self._endings.put(row, subscription.time_window.end)
        if subscription.time_window != ALWAYS:
            self._timed += 1
            traits |= _TIMED
        if subscription.share is not None:
            self._shares.join(row, subscription.share, query)
            traits |= _SHARED
        self._traits[row] = traits
        self._enlist(row, subscription.area)
        self.epoch += 1
        return row

    def remove(self, row: int) -> None:
        """Remove a subscription."""
        self._check_live(row)
        traits = self._traits[row]
        self._unlist(row)
        self._endings.take_away(row)
        if traits & _TIMED:
            self._timed -= 1
        if traits & _KEYLESS:
            self._keyless[int(self._owner[row])] -= 1
        if traits & _SHARED:
            self._shares.leave(row)
        self._formulas.drop(int(self._query[row]))
        self._traits[row] = 0
        self._free.append(row)
        self.epoch += 1

    def relocate(self, row: int, area: Area | Around | None) -> None:
        """Replace the area of a subscription; None removes it."""
        self._check_live(row)
        self._unlist(row)
        self._enlist(row, area)
        self.epoch += 1

    def expire(self, now: Instant) -> list[int]:
        """Remove subscriptions whose time window has ended, a limited number per call; return their rows, empty when done."""
        over = self._endings.over(now, EXPIRE_A_TURN)
        for row in over:
            self.remove(row)
        return over

    def move(self, endpoints: ArrayLike, latitudes: ArrayLike, longitudes: ArrayLike) -> None:
        """Update the positions of endpoints, from a batch of reports in the order of arrival."""
        self._endpoints.move(endpoints, latitudes, longitudes)

    def forget(self, endpoints: ArrayLike) -> None:
        """Remove the positions of endpoints."""
        self._endpoints.remove(endpoints)

    def who_is_in(self, area: Area) -> Numbers:
        """Return the endpoints inside an area by their last report, each once, unordered."""
        return self._endpoints.inside(area)

    def who_wants(self, message: Message, now: Instant) -> Takers:
        """Return the endpoints with a matching subscription, each once, with all its matching subscriptions.

        A subscription matches if topic and tags satisfy its query, its area (if any) contains the message's place, and its
        time window contains the message's `seen_at` and has not ended. An expired message matches nothing. If the message is
        addressed to content within an area, receivers outside are excluded.
        """
        rows = self.rows_wanting(message, now)
        if self._shares.count:
            rows = self._shares.one_of_each(rows)
        return group(rows, self._owner.take(rows), self._scratch)

    def rows_wanting(self, message: Message, now: Instant) -> Rows:
        """Return the matching subscriptions, with all rows of each share: for callers with their own rotation of shares."""
        if message.is_expired(now):
            return NOBODY.rows
        rows = self._rows_for(message)
        if self._timed:
            rows = rows[(self._start[rows] <= message.seen_at) & (self._endings.end[rows] >= max(now, message.seen_at))]
        address = message.address
        if isinstance(address, ToContent) and address.within is not None:
            is_known, places = self._endpoints.where(self._owner[rows])
            rows = rows[is_known & address.within.contains(places)]
        return rows

    def is_lasting(self, message: Message) -> bool:
        """Whether messages that differ only in source, time and content match the same rows until the epoch changes."""
        is_placed = message.place is not None and self.has_areas
        if message.tags or is_placed or message.address != ToContent():
            return False
        return not self._timed or not any(self._traits[row] & _TIMED for row in self._rows_for(message).tolist())

    @property
    def has_areas(self) -> bool:
        """Whether any subscription has an area."""
        return self._located.count > 0

    def owners_of(self, rows: Rows) -> Rows:
        """Return the owner of each subscription."""
        return self._owner.take(rows)

    def shares_of(self, rows: Rows) -> NDArray[np.int32]:
        """Return the share number of each subscription, 0 for none."""
        return self._shares.of(rows)

    def qos_of(self, takers: Takers) -> NDArray[np.uint8]:
        """Return the highest subscribed QoS of each receiver."""
        return takers.most(self._qos[takers.rows])

    def labels_of(self, rows: Rows) -> NDArray[np.uint32]:
        """Return the subscription ids set by the owners, 0 for none."""
        labels: NDArray[np.uint32] = self._label[rows]
        return labels

    def _rows_for(self, message: Message) -> Rows:
        """Return the rows whose query is satisfied and whose area, if any, contains the message's place."""
        plain, others = self._formulas.true_for(message.topic, message.tags)
        rows = self._open.of_many(others) if others.size else NOBODY.rows
        if plain:
            some = self._open.of(plain)
            rows = np.concatenate((some, rows)) if rows.size else some
        if self._located.count and message.place is not None:
            queries = np.concatenate((np.array(plain, np.int32), others))
            rows = np.concatenate((rows, self._rows_around(queries, message.place)))
        return rows

    def _rows_around(self, queries: NDArray[np.int32], place: Place) -> Rows:
        """Return the rows of some queries whose area contains a place; looks up by query or by place, whichever is cheaper."""
        if self._located.total(queries) <= self._reaches.direct_max:
            rows = self._located.of_many(queries)
        else:
            rows = self._reaches.rows_over(place)
            self._is_true[queries] = True
            rows = rows[self._is_true[self._query[rows]]]
            self._is_true[queries] = False
        return rows[self._reaches.holds(rows, place)] if rows.size else rows

    def _enlist(self, row: int, area: Area | Around | None) -> None:
        query = int(self._query[row])
        if area is None:
            self._open.put(query, row)
            return
        self._located.put(query, row)
        self._reaches.put(row, int(self._owner[row]), area)
        self._traits[row] |= _LOCATED

    def _unlist(self, row: int) -> None:
        query = int(self._query[row])
        if not self._traits[row] & _LOCATED:
            self._open.take_away(query, row)
            return
        self._located.take_away(query, row)
        self._reaches.take_away(row)
        self._traits[row] &= ~_LOCATED

    def _check_room(self, owner: int) -> None:
        if not 0 <= owner < self.limits.endpoints_max:
            raise Malformed(Reason.ENDPOINTS_FULL, f"endpoints are numbered 0 to {self.limits.endpoints_max - 1}")
        if len(self) >= self.limits.subscriptions_max:
            raise Malformed(Reason.SUBSCRIPTIONS_FULL, f"all {self.limits.subscriptions_max} subscriptions are taken")

    def _check_live(self, row: int) -> None:
        is_live = 0 <= row < self._made and self._traits[row] & _LIVE
        assert is_live, f"row {row} is not a subscription"
