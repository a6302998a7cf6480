"""Predicates: conditions under which a bin is hot, as a text such as `witnesses >= 3 and reports >= 5` (M24).

    predicate   = conjunction { "or" conjunction }                     not binds before and, and before or
    conjunction = part { "and" part }
    part        = "not" part | "(" predicate ")" | comparison
    comparison  = operand ( "<" | "<=" | ">" | ">=" | "==" | "!=" ) operand
    operand     = number | reports | witnesses | weight | radius_m | age_s | mean_F | min_F | max_F | sum_F | count_F

F is a field of the payload. Where no report had it, count_F is 0 and a comparison with any other aggregate of it is false,
whatever the operator.
"""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from typing import Final, NoReturn, TypeAlias, assert_never

PREDICATE_CHARACTERS_MAX: Final = 1_000
PREDICATE_DEPTH_MAX: Final = 32
"""Maximum nested parentheses and negations."""

AGGREGATES: Final = ("reports", "witnesses", "weight", "radius_m", "age_s")
FIELD_AGGREGATES: Final = ("mean_", "min_", "max_", "sum_", "count_")

COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip

_TOKEN: Final = re.compile(r"\s*(-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|[A-Za-z_][A-Za-z0-9_]*|[<>=!]=|[<>()]|\S|$)")
_WORDS: Final = ("and", "or", "not")


class BadPredicate(ValueError):
    """A text that is not a predicate; `at` is the position of the fault (counted from 0)."""

    def __init__(self, detail: str, at: int) -> None:
        super().__init__(detail)
        self.at = at


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands, each the name of an aggregate or a number, and a comparison operator."""

    left: str | float
    sign: str
    right: str | float


@dataclass(frozen=True, slots=True)
class AllOf:
    """True where all parts are."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True where any part is."""

    parts: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Negation:
    """True where the part is not."""

    part: "Predicate"


Predicate: TypeAlias = Comparison | AllOf | AnyOf | Negation

ValueOf: TypeAlias = Callable[[str], float | None]
"""Returns the value of an aggregate by its name; None if no report had the field."""


def holds(predicate: Predicate, value_of: ValueOf) -> bool:
    """Return whether the predicate holds for a bin; aggregates are only computed if needed."""
    match predicate:
        case Comparison(left, mark, right):
            one = value_of(left) if isinstance(left, str) else left
            other = value_of(right) if isinstance(right, str) else right
            return one is not None and other is not None and COMPARE[mark](one, other)
        case AllOf(parts):
            return all(holds(part, value_of) for part in parts)
        case AnyOf(parts):
            return any(holds(part, value_of) for part in parts)
        case Negation(part):
            return not holds(part, value_of)
        case _:
            assert_never(predicate)


def fields_of(predicate: Predicate) -> frozenset[str]:
    """Return the fields of the payload that it refers to: cells must have tallies of them."""
    match predicate:
        case Comparison(left, _, right):
            names = [name for name in (left, right) if isinstance(name, str) and name not in AGGREGATES]
            return frozenset(name.partition("_")[2] for name in names)
        case AllOf(parts) | AnyOf(parts):
            return frozenset().union(*map(fields_of, parts))
        case Negation(part):
            return fields_of(part)
        case _:
            assert_never(predicate)


def min_reports(predicate: Predicate) -> float:
    """Return a lower bound: a bin with fewer reports is never hot."""
    match predicate:
        case Comparison(str() as name, mark, float() as number):
            return number if mark in (">=", ">", "==") and _is_counted(name) else 0.0
        case Comparison(float() as number, mark, str() as name):
            return number if mark in ("<=", "<", "==") and _is_counted(name) else 0.0
        case Comparison():
            return 0.0
        case AllOf(parts):
            return max(map(min_reports, parts))
        case AnyOf(parts):
            return min(map(min_reports, parts))
        case Negation():
            return 0.0
        case _:
            assert_never(predicate)


def _is_counted(name: str) -> bool:
    """Return whether the aggregate is never greater than the number of reports."""
    return name in ("reports", "witnesses", "weight") or name.startswith("count_")


def parse_predicate(text: str) -> Predicate:
    """Return the predicate of a text; raises `BadPredicate` with the position of the fault."""
    if len(text) > PREDICATE_CHARACTERS_MAX:
        detail = f"the predicate has {len(text)} characters, {PREDICATE_CHARACTERS_MAX} are allowed"
        raise BadPredicate(detail, PREDICATE_CHARACTERS_MAX)
    reader = _PredicateParser(text)
    predicate = reader.disjunction(0)
    if reader.token:
        reader.refuse("and, or, or the end")
    return predicate


class _PredicateParser:
    """A text and its next token; every method reads one rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self.token, self.at = "", 0
        self._advance()

    def disjunction(self, depth: int) -> Predicate:
        parts = [self._conjunction(depth)]
        while self._maybe_word("or"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def refuse(self, expected: str, hint: str = "") -> NoReturn:
        found = repr(self.token[:20]) if self.token else "the end"
        raise BadPredicate(f"found {found} at {self.at} of the predicate, expected {expected}{hint}", self.at)

    def _conjunction(self, depth: int) -> Predicate:
        parts = [self._part(depth)]
        while self._maybe_word("and"):
            parts.append(self._part(depth))
        return parts[0] if len(parts) == 1 else AllOf(tuple(parts))

    def _part(self, depth: int) -> Predicate:
        start = self.at
        if depth > PREDICATE_DEPTH_MAX:
            raise BadPredicate(f"parentheses and negations are nested over {PREDICATE_DEPTH_MAX} deep at {start}", start)
        if self._maybe_word("not"):
            return Negation(self._part(depth + 1))
        if not self._maybe_word("("):
            return self._comparison()
        inner = self.disjunction(depth + 1)
        if not self._maybe_word(")"):
            self.refuse(f"and, or, or the ) of the ( at {start}")
        return inner

    def _comparison(self) -> Comparison:
        left = self._operand()
        mark = self.token
        if mark not in COMPARE:
            self.refuse(f"one of {' '.join(COMPARE)}")
        self._advance()
        return Comparison(left, mark, self._operand())

    def _operand(self) -> str | float:
        token = self.token
        if token[:1].isdigit() or (token[:1] == "-" and len(token) > 1):
            if not isfinite(float(token)):
                self.refuse("a number that is not so large")
            self._advance()
            return float(token)
        if not token.isidentifier() or token in _WORDS:
            self.refuse("an aggregate or a number")
        is_of_a_field = any(token.startswith(how) and token != how for how in FIELD_AGGREGATES)
        if token not in AGGREGATES and not is_of_a_field:
            near = get_close_matches(token, AGGREGATES, 1)
            kinds = f"{', '.join(AGGREGATES)} or {', '.join(how + 'FIELD' for how in FIELD_AGGREGATES)}"
            self.refuse(kinds, f"; did you mean {near[0]!r}?" if near else "")
        self._advance()
        return token

    def _maybe_word(self, word: str) -> bool:
        if self.token != word:
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        found = _TOKEN.match(self._text, self._end)
        assert found is not None, "there is a token, or the end"
        self.token, self.at, self._end = found.group(1), found.start(1), found.end()
