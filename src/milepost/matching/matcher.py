"""The engine: who wants this message, who is inside this area.

    message -> true queries (`formulas`) -> their rows, those with an area by place (`reaches`) -> frame
            -> within the message's own area -> one of each share -> takers

What must hold:
- a row is a subscription; rows, endpoints and queries are numbers, given out again after they were given up;
- a row stands under its query, in `_open` if it has no area, else in `_located`;
- nothing here asks the clock, and no operation walks over all rows.
Who an endpoint is and what its session does is known elsewhere: here it is a number below `endpoints_max`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milepost.matching.columns import column, numbers_of
from milepost.matching.endings import Endings
from milepost.matching.formulas import Formulas
from milepost.matching.points import Numbers, PointIndex
from milepost.matching.reaches import Reaches
from milepost.matching.rows import Rows, RowsByQuery
from milepost.matching.shares import Shares
from milepost.matching.takers import NOBODY, Takers, group
from milepost.model.addresses import ToContent
from milepost.model.areas import Area, Around
from milepost.model.frames import ALWAYS
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.subscriptions import Subscription

NEGATED_ONLY_MAX: Final = 16
"""The most subscriptions of one endpoint that every message must be checked against."""

EXPIRE_A_TURN: Final = 256
"""So many subscriptions are ended in one call: under ten milliseconds of work."""

_LIVE, _LOCATED, _FRAMED, _SHARED, _KEYLESS = 1, 2, 4, 8, 16


@dataclass(frozen=True, slots=True)
class Limits:
    """How much the engine may hold; memory is taken only as it fills."""

    subscriptions_max: int = 1 << 20
    endpoints_max: int = 1 << 20
    atoms_max: int = 1 << 20
    """Different tags and topic filters in all subscriptions together."""


class Matcher:
    """Subscriptions and the places of endpoints, up to a million of each, changed one by one and asked at any time."""

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
        self._framed = 0
        self.epoch = 0
        """Grows with every change of subscriptions: what was found out before may no longer hold."""

    def __len__(self) -> int:
        return self._made - len(self._free)

    def add(self, owner: int, subscription: Subscription) -> int:
        """Let an endpoint take part in what a subscription asks for; gives the row by which it is changed and removed."""
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
        self._start[row] = subscription.frame.start
        self._endings.put(row, subscription.frame.end)
        if subscription.frame != ALWAYS:
            self._framed += 1
            traits |= _FRAMED
        if subscription.share is not None:
            self._shares.join(row, subscription.share, query)
            traits |= _SHARED
        self._traits[row] = traits
        self._enlist(row, subscription.area)
        self.epoch += 1
        return row

    def remove(self, row: int) -> None:
        """End a subscription."""
        self._check_live(row)
        traits = self._traits[row]
        self._unlist(row)
        self._endings.take_away(row)
        if traits & _FRAMED:
            self._framed -= 1
        if traits & _KEYLESS:
            self._keyless[int(self._owner[row])] -= 1
        if traits & _SHARED:
            self._shares.leave(row)
        self._formulas.drop(int(self._query[row]))
        self._traits[row] = 0
        self._free.append(row)
        self.epoch += 1

    def relocate(self, row: int, area: Area | Around | None) -> None:
        """Give a subscription another area, or none."""
        self._check_live(row)
        self._unlist(row)
        self._enlist(row, area)
        self.epoch += 1

    def expire(self, now: Instant) -> list[int]:
        """End subscriptions whose frame is over, a limited number at a time; gives their rows, none when all are done."""
        over = self._endings.over(now, EXPIRE_A_TURN)
        for row in over:
            self.remove(row)
        return over

    def move(self, endpoints: ArrayLike, latitudes: ArrayLike, longitudes: ArrayLike) -> None:
        """Take note of where endpoints are, from a batch of reports in the order they came."""
        self._endpoints.move(endpoints, latitudes, longitudes)

    def forget(self, endpoints: ArrayLike) -> None:
        """Take note that nobody knows where endpoints are."""
        self._endpoints.remove(endpoints)

    def who_is_in(self, area: Area) -> Numbers:
        """The endpoints whose last report lies inside an area, each once, in no order."""
        return self._endpoints.inside(area)

    def who_wants(self, message: Message, now: Instant) -> Takers:
        """The endpoints with a subscription that matches, each once, with all its subscriptions that do.

        A subscription matches if its query is true for topic and tags, its area (if it has one) holds the message's place,
        its frame holds the instant at which the message was seen, and the frame is not over. A message that has expired
        matches nothing. If the message is addressed to content within an area, takers outside are left out.
        """
        rows = self.rows_wanting(message, now)
        if self._shares.count:
            rows = self._shares.one_of_each(rows)
        return group(rows, self._owner.take(rows), self._scratch)

    def rows_wanting(self, message: Message, now: Instant) -> Rows:
        """The subscriptions that match, of each share all of them: for whoever lets its members take turns by other rules."""
        if message.is_expired(now):
            return NOBODY.rows
        rows = self._rows_for(message)
        if self._framed:
            rows = rows[(self._start[rows] <= message.seen_at) & (self._endings.end[rows] >= max(now, message.seen_at))]
        address = message.address
        if isinstance(address, ToContent) and address.within is not None:
            is_known, places = self._endpoints.where(self._owner[rows])
            rows = rows[is_known & address.within.contains(places)]
        return rows

    def is_lasting(self, message: Message) -> bool:
        """Whether all messages like this one but for source, time and content match the same rows until the epoch changes."""
        is_placed = message.place is not None and self.has_areas
        if message.tags or is_placed or message.address != ToContent():
            return False
        return not self._framed or not any(self._traits[row] & _FRAMED for row in self._rows_for(message).tolist())

    @property
    def has_areas(self) -> bool:
        """Whether any subscription asks for an area."""
        return self._located.count > 0

    def owners_of(self, rows: Rows) -> Rows:
        """The endpoint that each subscription belongs to."""
        return self._owner.take(rows)

    def shares_of(self, rows: Rows) -> NDArray[np.int32]:
        """The number of the share that each subscription belongs to, 0 for none."""
        return self._shares.of(rows)

    def qos_of(self, takers: Takers) -> NDArray[np.uint8]:
        """The highest quality of service that each taker asked for."""
        return takers.most(self._qos[takers.rows])

    def labels_of(self, rows: Rows) -> NDArray[np.uint32]:
        """The ids that owners gave their subscriptions, 0 for none."""
        labels: NDArray[np.uint32] = self._label[rows]
        return labels

    def _rows_for(self, message: Message) -> Rows:
        """The rows whose query is true and whose area, if any, holds the message's place."""
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
        """The rows with an area that holds a place, of some queries: by query or by place, whichever is less work."""
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
