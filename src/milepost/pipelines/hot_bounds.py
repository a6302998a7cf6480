"""Which cells of the past a replay needs: those around bins that may have been hot. All others stay in Spark.

    arrivals ─▶ totals by square and span ─▶ totals of 3 x 3 squares and the slots of a bin ─▶ may it be hot? ─▶ squares around it

A span is half the slots of a bin. The totals of a bin are taken over more squares and slots than it has, and its predicate is
compiled to a condition that is true if the predicate holds for *some* of these reports: so a bin that is left out is not hot at
any time, early or at the end of a slot, whichever of its reports have arrived or were left out.

*Invariants:*
- for each bin that may be hot in a slot, all reports around it are returned that the incident engine has stored at any time in
  which it evaluates that slot; the engine therefore decides alike with and without the other reports;
- the condition is plain SQL over `reports` and, for the field number N, `count_N`, `least_N` and `greatest_N`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, assert_never

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.model.incidents import TALLY_PARTS, EventKind, Predicate
from milepost.model.incidents.predicates import AllOf, AnyOf, Comparison, Negation
from milepost.pipelines.hazards import CLOCK_AHEAD_S_MAX, tallied_fields

SPAN_KEY: Final = ("kind", "span", "row", "column")

_POLAR_ROWS: Final = 4
"""Rows around a pole in which all bins may be hot: their neighbours have far fewer squares, or more."""
_CIRCLE: Final = 3_600_000_000


def spans_needed(spots: DataFrame, kinds: Sequence[EventKind], *, allowed_lateness_s: float) -> DataFrame:
    """Return the SPAN_KEYs whose reports a replay needs, from rows with `span`, `height`, `row`, `column` and `values`."""
    numbers = {name: number for number, name in enumerate(tallied_fields(kinds))}
    totals = spots.groupBy(*SPAN_KEY, "height").agg(f.count(f.lit(1)).alias("reports"), *_first_totals(len(numbers)))
    again = _further_totals(len(numbers))
    is_own = f.max("is_own").alias("is_own")
    bins = _in_later_spans(totals, kinds).withColumn("is_own", f.lit(True)).groupBy(*SPAN_KEY, "height").agg(is_own, *again)
    bins = around(bins, is_centre="is_own").groupBy(*SPAN_KEY, "height").agg(is_own, *again)
    hot = bins.where("is_own").where(_may_be_hot(kinds, numbers)).select(*SPAN_KEY, "height")
    needed = around(hot).withColumn("span", f.explode(_by_kind(kinds, lambda kind: _stored_spans(kind, allowed_lateness_s))))
    return needed.select(*SPAN_KEY).distinct()


def span_of(kinds: Sequence[EventKind]) -> Column:
    """Return the span of a row with `kind` and `slot`."""
    return f.floor(f.col("slot") / _by_kind(kinds, lambda kind: f.lit(_slots_in_span(kind))))


def _slots_in_span(kind: EventKind) -> int:
    return max(1, kind.slots // 2)


def _in_later_spans(totals: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """Return the totals once for each span with slots whose bins have these reports."""

    def spans(kind: EventKind) -> Column:
        return f.sequence(f.col("span"), f.col("span") - (-(kind.slots - 1) // _slots_in_span(kind)))

    return totals.withColumn("span", f.explode(_by_kind(kinds, spans)))


def _stored_spans(kind: EventKind, allowed_lateness_s: float) -> Column:
    """Return the spans of all cells that the engine may have stored when it evaluates a slot of the span."""
    waiting = int((allowed_lateness_s + CLOCK_AHEAD_S_MAX) // kind.interval_s) + 1
    before, after = (-(-slots // _slots_in_span(kind)) for slots in (kind.slots - 1 + waiting, waiting))
    return f.sequence(f.col("span") - before, f.col("span") + after)


def around(rows: DataFrame, *, is_centre: str | None = None) -> DataFrame:
    """Return rows once for each square around theirs, a few more than its block; *is_centre* is false in all but the first.

    In the rows to the north and south, the block of a square has the columns from one before to one after the one abreast of
    its middle, and the squares whose block has this one are among those from two before to two after.
    """
    found = []
    for step, columns in ((0, (0, -1, 1)), (-1, (-2, -1, 0, 1, 2)), (1, (-2, -1, 0, 1, 2))):
        abreast = "column" if step == 0 else f"(2 * column + 1) * _columns_{step + 1} div (2 * _columns_1)"
        for further in columns:
            column = f"pmod({abreast} + {further}L, _columns_{step + 1})"
            found.append(f.expr(f"struct(row + {step}L as row, {column} as column, {step == 0 and further == 0} as is_centre)"))
    widths = {f"_columns_{step + 1}": f.expr(_columns_sql(f"(row + {step}L)")) for step in (-1, 0, 1)}
    placed = rows.withColumns(widths).withColumn("_near", f.explode(f.array(*found)))
    placed = placed.withColumns({"row": f.col("_near.row"), "column": f.col("_near.column")})
    if is_centre is not None:
        placed = placed.withColumn(is_centre, f.col(is_centre) & f.col("_near.is_centre"))
    return placed.drop("_near", *widths)


def _columns_sql(row: str) -> str:
    """Return the number of squares in a row, as in `milepost.model.incidents.grid`."""
    middle = f"((2L * {row} + 1L) * height / 2e7D - 90D)"
    narrower = f"((32400D - 4D * {middle} * {middle}) / (32400D + {middle} * {middle}))"
    return f"greatest(1L, cast(({_CIRCLE}L div height) * {narrower} as bigint))"


def _first_totals(fields: int) -> list[Column]:
    how = {"count": f.count, "least": f.min, "greatest": f.max}
    values = [f.col("values")[number] for number in range(fields)]
    return [function(value).alias(f"{name}_{number}") for number, value in enumerate(values) for name, function in how.items()]


def _further_totals(fields: int) -> list[Column]:
    how = {"count": f.sum, "least": f.min, "greatest": f.max}
    names = [(f"{name}_{number}", function) for number in range(fields) for name, function in how.items()]
    return [f.sum("reports").alias("reports"), *(function(name).alias(name) for name, function in names)]


def _may_be_hot(kinds: Sequence[EventKind], numbers: Mapping[str, int]) -> Column:
    def condition(kind: EventKind) -> Column:
        polar = f"row < {_POLAR_ROWS} or row >= {kind.grid.rows - _POLAR_ROWS}"
        return f.expr(f"{polar} or {may_hold(kind.condition, numbers)}")

    return _by_kind(kinds, condition)


def _by_kind(kinds: Sequence[EventKind], value_of: Callable[[EventKind], Column]) -> Column:
    first, *others = kinds
    found = f.when(f.col("kind") == first.name, value_of(first))
    for kind in others:
        found = found.when(f.col("kind") == kind.name, value_of(kind))
    return found


def may_hold(predicate: Predicate, numbers: Mapping[str, int]) -> str:
    """Return SQL that is true if the predicate holds for some reports, at least one, of those that the totals are of."""
    match predicate:
        case Comparison(left, sign, right):
            return _may_compare(_range(left, numbers), sign, _range(right, numbers))
        case AllOf(parts):
            return f"({' and '.join(may_hold(part, numbers) for part in parts)})"
        case AnyOf(parts):
            return f"({' or '.join(may_hold(part, numbers) for part in parts)})"
        case Negation(part):
            return f"(not {_must_hold(part, numbers)})"
        case _:
            assert_never(predicate)


def _must_hold(predicate: Predicate, numbers: Mapping[str, int]) -> str:
    """Return SQL that is true only if the predicate holds for any of the reports."""
    match predicate:
        case Comparison(left, sign, right):
            return _must_compare(_range(left, numbers), sign, _range(right, numbers))
        case AllOf(parts):
            return f"({' and '.join(_must_hold(part, numbers) for part in parts)})"
        case AnyOf(parts):
            return f"({' or '.join(_must_hold(part, numbers) for part in parts)})"
        case Negation(part):
            return f"(not {may_hold(part, numbers)})"
        case _:
            assert_never(predicate)


class _Range(NamedTuple):
    """Bounds of an aggregate over any of the reports, in SQL, and a condition under which it has a value for all of them."""

    least: str
    greatest: str
    is_known: str = "true"


def _range(operand: str | float, numbers: Mapping[str, int]) -> _Range | None:
    """Return the bounds of an operand, or `None` if there are none."""
    if isinstance(operand, float):
        number = f"{operand:.17e}"  # a double in SQL, not a decimal
        return _Range(number, number)
    if operand in ("radius_m", "age_s"):
        return None
    if operand in ("reports", "witnesses", "weight"):
        return _Range("0" if operand == "weight" else "1", "reports")
    how, _, name = operand.partition("_")
    count, least, greatest = (f"{total}_{numbers[name]}" for total in ("count", "least", "greatest"))
    is_known = f"{count} = reports"
    if how == "count":
        return _Range(f"(case when {is_known} then 1 else 0 end)", count)
    if how == "sum":
        least = f"{least} * (case when {least} < 0 then {count} else 1 end)"
        greatest = f"{greatest} * (case when {greatest} > 0 then {count} else 1 end)"
    return _Range(f"({least} / {TALLY_PARTS}e0)", f"({greatest} / {TALLY_PARTS}e0)", is_known)


def _may_compare(one: _Range | None, sign: str, other: _Range | None) -> str:
    if one is None or other is None:
        return "true"
    match sign:
        case "<" | "<=":
            found = f"{one.least} {sign} {other.greatest}"
        case ">" | ">=":
            found = f"{one.greatest} {sign} {other.least}"
        case "==":
            found = f"{one.least} <= {other.greatest} and {other.least} <= {one.greatest}"
        case _:
            found = f"{one.least} <> {other.greatest} or {other.least} <> {one.greatest}"
    return f"coalesce({found}, false)"


def _must_compare(one: _Range | None, sign: str, other: _Range | None) -> str:
    if one is None or other is None:
        return "false"
    match sign:
        case "<" | "<=":
            found = f"{one.greatest} {sign} {other.least}"
        case ">" | ">=":
            found = f"{one.least} {sign} {other.greatest}"
        case "==":
            found = f"{one.least} = {other.greatest} and {other.least} = {one.greatest}"
        case _:
            found = f"({one.greatest} < {other.least} or {other.greatest} < {one.least})"
    return f"coalesce({found} and {one.is_known} and {other.is_known}, false)"
