"""The disjunctive normal form: alternatives, each a set of atoms that must be true and a set that must be false (T13).

Invariants:
- clauses are ints during the expansion: bit i = atom i is required, bit i + n = atom i is excluded, n = number of atoms;
- after every step the clauses are minimal: no contradiction, no duplicate, none that is implied by a smaller one;
- no step has more than `CLAUSES_MAX` clauses and all steps together try at most `COMBINATIONS_MAX`, so a refusal is quick.
  The limit thus applies to every part of a formula, not only to the whole;
- neither the clauses nor a refusal depend on the order in which parts were written.

Only `a & !a` counts as a contradiction; that no topic matches both `topic:x` and `topic:y` is left to the matching engine.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from milepost.model.queries.formula import And, Atom, HasTag, Not, OnTopic, Or, Query
from milepost.model.reasons import Malformed, Reason

CLAUSES_MAX: Final = 64
LITERALS_MAX: Final = 256
"""Maximum atoms, required and excluded, in all clauses together."""

COMBINATIONS_MAX: Final = 16_384
"""Maximum pairs of clauses tried while expanding one formula."""

_COUNT_MAX: Final = 10**12
"""Upper limit of the count of alternatives in a refusal's detail."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One alternative: true where every required atom is true and every excluded one false."""

    required: frozenset[Atom] = frozenset()
    excluded: frozenset[Atom] = frozenset()

    def __str__(self) -> str:
        return " & ".join([*sorted(map(str, self.required)), *sorted(f"!{atom}" for atom in self.excluded)])


NormalForm: TypeAlias = tuple[Clause, ...]
"""Clauses of which at least one must be true, sorted by their printed form; never empty."""


def normal_form(query: Query) -> NormalForm:
    """Return the query's alternatives, minimal and sorted; raises `Malformed` if there are too many or no message can match."""
    atoms = sorted(set(atoms_of(query)), key=str)
    try:
        masks = Expansion({atom: number for number, atom in enumerate(atoms)}).clauses(query, True)
    except TooManyAlternatives:
        raise Malformed(Reason.QUERY_TOO_COMPLEX, _too_many(query)) from None
    if not masks:
        raise Malformed(Reason.QUERY_NEVER_TRUE, "every alternative contradicts itself")
    literals = sum(mask.bit_count() for mask in masks)
    if literals > LITERALS_MAX:
        detail = f"its {len(masks)} alternatives name {literals} tags and filters, {LITERALS_MAX} are allowed"
        raise Malformed(Reason.QUERY_TOO_COMPLEX, detail)
    return tuple(sorted((_clause(mask, atoms) for mask in masks), key=str))


def is_negated_only(clause: Clause) -> bool:
    """Return whether the clause has no required atom, so that no index entry can lead to it (T13)."""
    return not clause.required


def atoms_of(query: Query) -> Iterator[Atom]:
    """Yield the tags and filters of a formula, from left to right, duplicates included."""
    match query:
        case HasTag() | OnTopic():
            yield query
        case Not(part):
            yield from atoms_of(part)
        case And(parts) | Or(parts):
            for part in parts:
                yield from atoms_of(part)
        case _:
            assert_never(query)


class TooManyAlternatives(Exception):
    """A part of the formula has too many alternatives."""


@dataclass(slots=True)
class Expansion:
    """The expansion of one formula; `combinations` counts the pairs of clauses tried."""

    numbers: dict[Atom, int]
    combinations: int = field(default=0)

    def clauses(self, query: Query, is_asserted: bool) -> list[int]:
        """Return the minimal clauses of the formula, or of its negation."""
        match query:
            case HasTag() | OnTopic():
                return [1 << self.numbers[query] + (0 if is_asserted else len(self.numbers))]
            case Not(part):
                return self.clauses(part, not is_asserted)
            case And(parts) | Or(parts):
                each = [self.clauses(part, is_asserted) for part in parts]
                return self._any_of(each) if isinstance(query, Or) is is_asserted else self._all_of(each)
            case _:
                assert_never(query)

    def _any_of(self, each: list[list[int]]) -> list[int]:
        return self._minimal({mask for masks in each for mask in masks})

    def _all_of(self, each: list[list[int]]) -> list[int]:
        product = [0]
        for masks in sorted(each, key=lambda masks: (len(masks), masks)):  # the small ones first: they absorb most
            self.combinations += len(product) * len(masks)
            if self.combinations > COMBINATIONS_MAX:
                raise TooManyAlternatives
            product = self._minimal({one | other for one in product for other in masks})
        return product

    def _minimal(self, masks: Iterable[int]) -> list[int]:
        kept: list[int] = []
        # A clause can only be implied by a smaller one; so in order of size, an accepted clause is never removed.
        for mask in sorted(masks, key=lambda mask: (mask.bit_count(), mask)):
            if self._is_contradiction(mask) or any(small & mask == small for small in kept):
                continue
            kept.append(mask)
            if len(kept) > CLAUSES_MAX:
                raise TooManyAlternatives
        return kept

    def _is_contradiction(self, mask: int) -> bool:
        return bool(mask & mask >> len(self.numbers))  # excluded bits are above all required bits


def _clause(mask: int, atoms: list[Atom]) -> Clause:
    count = len(atoms)
    required = frozenset(atom for number, atom in enumerate(atoms) if mask >> number & 1)
    return Clause(required, frozenset(atom for number, atom in enumerate(atoms) if mask >> number + count & 1))


def _too_many(query: Query) -> str:
    count = _written_out(query, True)
    many = f"{count:,}" if count < _COUNT_MAX else f"over {_COUNT_MAX:,}"
    return f"expanded it has {many} alternatives, {CLAUSES_MAX} are allowed in it and in each of its parts"


def _written_out(query: Query, is_asserted: bool) -> int:
    """Return the number of alternatives before minimisation, up to `_COUNT_MAX`."""
    match query:
        case HasTag() | OnTopic():
            return 1
        case Not(part):
            return _written_out(part, not is_asserted)
        case And(parts) | Or(parts):
            count = 0 if (is_sum := isinstance(query, Or) is is_asserted) else 1
            for part in parts:
                more = _written_out(part, is_asserted)
                count = min(count + more if is_sum else count * more, _COUNT_MAX)
            return count
        case _:
            assert_never(query)
