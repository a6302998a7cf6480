"""Two rules side by side: incidents that only the one raises, only the other, or both.

What must hold: each incident stands in one line. Two are the same if they are of one kind, at one time and at one place; of
several that might be, those whose beginnings are nearest go together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from milepost.model.incidents import Phase
from milepost.model.instants import FOREVER, Instant
from milepost.model.places import Place, distance_m
from milepost.model.sites import Said
from milepost.wire.records import from_record


@dataclass(frozen=True, slots=True)
class Life:
    """An incident as its alerts tell it."""

    id: str
    kind: str
    raised_at: Instant
    cleared_at: Instant | None
    centre: Place
    radius_m: float
    """The greatest it had."""
    reports: int
    witnesses: int
    """The most there were."""

    def is_with(self, other: "Life") -> bool:
        """Whether both may be the same thing on the road."""
        if self.kind != other.kind:
            return False
        is_at_one_time = self.raised_at <= (other.cleared_at or FOREVER) and other.raised_at <= (self.cleared_at or FOREVER)
        return is_at_one_time and distance_m(self.centre, other.centre) <= self.radius_m + other.radius_m


class Pair(NamedTuple):
    """The same incident by two rules, or what only one of them has."""

    a: Life | None
    b: Life | None

    @property
    def where(self) -> str:
        """`A`, `B` or `both`."""
        return "both" if self.a and self.b else "A" if self.a else "B"

    @property
    def life(self) -> Life:
        """By the first rule that has it."""
        found = self.a or self.b
        assert found is not None, "somebody raised it"
        return found


def lives(alerts: Iterable[bytes]) -> list[Life]:
    """What alerts tell, in the order in which incidents were raised."""
    found: dict[str, Life] = {}
    for record in alerts:
        said = from_record(record)
        assert isinstance(said, Said), "alerts are said"
        message = said.message
        assert message.place is not None, "alerts have a place"
        name, radius_m = str(message.fields["incident"]), float(message.fields["radius_m"])
        reports, witnesses = (int(message.fields[field]) for field in ("reports", "witnesses"))
        one = found.get(name)
        if one is None:
            kind = str(message.fields["kind"])
            one = Life(name, kind, message.seen_at, None, message.place, radius_m, reports, witnesses)
        is_over = message.fields["phase"] == Phase.CLEARED.value
        found[name] = replace(
            one,
            cleared_at=message.seen_at if is_over else None,
            radius_m=max(radius_m, one.radius_m),
            reports=max(reports, one.reports),
            witnesses=max(witnesses, one.witnesses),
        )
    return list(found.values())


def pairs(a: Sequence[Life], b: Sequence[Life]) -> list[Pair]:
    """All incidents of two rules, in the order in which they were raised."""
    near = [
        (abs(one.raised_at - other.raised_at), i, j) for i, one in enumerate(a) for j, other in enumerate(b) if one.is_with(other)
    ]
    with_a: dict[int, int] = {}
    taken: set[int] = set()
    for _, i, j in sorted(near):
        if i not in with_a and j not in taken:
            with_a[i] = j
            taken.add(j)
    found = [Pair(one, b[with_a[i]] if i in with_a else None) for i, one in enumerate(a)]
    found += [Pair(None, other) for j, other in enumerate(b) if j not in taken]
    return sorted(found, key=lambda pair: (pair.life.raised_at, pair.life.id))
