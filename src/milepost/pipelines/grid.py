"""The grid of `milepost.model.incidents.grid` as Spark expressions, bit by bit the same squares.

What must hold: nothing but whole numbers and + - × ÷ of doubles, in the order in which the model does them.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

_TURN: Final = 3_600_000_000
_HALF: Final = _TURN // 2

_STEPS: Final = (
    ("_up", "cast((latitude + 90D) * 1e7D as bigint)"),
    ("_over", f"cast((longitude + 180D) * 1e7D as bigint) % {_TURN}L"),
    ("row", f"least(_up div height, ({_HALF}L + height - 1) div height - 1)"),
    ("_x", "(2L * row + 1L) * height / 2e7D - 90D"),
    (
        "_columns",
        f"greatest(1L, cast(({_TURN}L div height) * ((32400D - 4D * _x * _x) / (32400D + _x * _x)) as bigint))",
    ),
    ("column", f"_over * _columns div {_TURN}L"),
    ("north", "_up - row * height"),
    ("east", f"_over - column * {_TURN}L div _columns"),
)


def with_square(places: DataFrame) -> DataFrame:
    """Adds `row`, `column`, `north` and `east` to rows with `latitude`, `longitude` and the grid's `height` (`Grid.height`)."""
    found = places
    for name, expression in _STEPS:
        found = found.withColumn(name, expr(expression))
    return found.drop("_up", "_over", "_x", "_columns")
