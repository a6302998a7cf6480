"""Incidents of one rule, or of two side by side: a table and a picture."""

from collections.abc import Sequence
from typing import Final

from milepost.model.instants import Instant
from milepost.pipelines.backtest.comparing import Life, Pair
from milepost.pipelines.pictures import Dot, Page, html
from milepost.wire.times import instant_to_text

HEAD: Final = ("in", "kind", "raised by A", "raised by B", "over", "place", "radius", "reports", "witnesses")

_SORTS: Final = {"A": "bad", "B": "other", "both": "good"}
_LEGEND: Final = (("bad", "only in A"), ("other", "only in B"), ("good", "in both"))


def row(pair: Pair) -> tuple[str, ...]:
    """One line of the table."""
    life = pair.life
    return (
        pair.where,
        life.kind,
        _raised(pair.a),
        _raised(pair.b),
        _spelled(life.cleared_at),
        f"{life.centre.latitude:.5f},{life.centre.longitude:.5f}",
        f"{life.radius_m:.0f} m",
        str(life.reports),
        str(life.witnesses),
    )


def counts(pairs: Sequence[Pair]) -> str:
    """In one line."""
    in_a, in_b, both = (sum(pair.where == where for pair in pairs) for where in _SORTS)
    return f"{len(pairs)} incidents: {in_a} only in A, {in_b} only in B, {both} in both"


def page(title: str, pairs: Sequence[Pair]) -> str:
    """The picture and the table as one page."""
    rows = [row(pair) for pair in pairs]
    dots = [
        Dot(pair.life.centre, _SORTS[pair.where], " · ".join(cells), pair.life.radius_m)
        for pair, cells in zip(pairs, rows, strict=True)
    ]
    return html(Page(f"{title}: {counts(pairs)}", dots, _LEGEND, HEAD, rows))


def _raised(life: Life | None) -> str:
    return _spelled(None if life is None else life.raised_at)


def _spelled(instant: Instant | None) -> str:
    return "-" if instant is None else instant_to_text(instant)
