"""Metrics for Prometheus: families of samples, and their text format, version 0.0.4.

Names come from the code, so an invalid one fails an assertion; label values may come from peers, and are escaped.
"""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


class MetricType(Enum):
    """Metric types of Prometheus."""

    COUNTER = "counter"
    """Only grows; its name ends in _total."""
    GAUGE = "gauge"
    """Goes up and down."""
    HISTOGRAM = "histogram"
    """Counts by bucket, with a sum; created by `histogram`."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of a family."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name, distinguished by their labels."""

    name: str
    kind: MetricType
    what: str
    """The help text: what is counted or measured, and in which unit."""
    samples: Sequence[Sample]

    def __post_init__(self) -> None:
        assert _NAME.fullmatch(self.name), self.name
        assert self.kind is not MetricType.COUNTER or self.name.endswith("_total"), self.name
        for sample in self.samples:
            assert all(_LABEL.fullmatch(name) for name, _ in sample.labels), sample.labels


def counter(name: str, what: str, value: float) -> Family:
    """Return a counter without labels."""
    return Family(name, MetricType.COUNTER, what, [Sample(value)])


def gauge(name: str, what: str, value: float) -> Family:
    """Return a gauge without labels."""
    return Family(name, MetricType.GAUGE, what, [Sample(value)])


def labelled(name: str, kind: MetricType, what: str, label: str, values: Iterable[tuple[str, float]]) -> Family:
    """Return a family whose samples differ in one label."""
    return Family(name, kind, what, [Sample(value, ((label, which),)) for which, value in values])


def histogram(name: str, what: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Family:
    """Return a histogram; *counts* are per bucket, not cumulative, and have one more than *bounds*, for values above all."""
    assert len(counts) == len(bounds) + 1, name
    samples, so_far = [], 0
    for bound, count in zip((*bounds, math.inf), counts, strict=True):
        so_far += count
        samples.append(Sample(so_far, (("le", _number(bound)),), "_bucket"))
    return Family(name, MetricType.HISTOGRAM, what, [*samples, Sample(total, (), "_sum"), Sample(so_far, (), "_count")])


def exposition(families: Iterable[Family]) -> bytes:
    """Return the page for /metrics."""
    return "".join(line for family in families for line in _lines(family)).encode(errors="backslashreplace")


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.what.translate(_HELP_ESCAPES)}\n"
    yield f"# TYPE {family.name} {family.kind.value}\n"
    for sample in family.samples:
        labels = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels)
        shown = f"{{{labels}}}" if labels else ""
        yield f"{family.name}{sample.suffix}{shown} {_number(sample.value)}\n"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
