"""The stretches of an upstream as columns of small whole numbers: alerts go out over radio, where every byte counts.

What must hold:
- degrees are written to 10^-7 (a centimetre), metres and seconds to a tenth: what is read and written again stays as it is;
- how many points there are is counted before anything is built.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas import Stretch, Upstream
from milepost.model.areas.upstream import check_upstream_size
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.wire._generated import datagram_pb2 as pb

_A_DEGREE: Final = 10_000_000
_A_TENTH: Final = 10
_STEP_MAX: Final = 360 * _A_DEGREE


def write_upstream(area: Upstream, part: pb.Upstream) -> None:
    """Fill in the stretches."""
    stretches = area.stretches
    part.points.extend([len(stretch.path) for stretch in stretches])
    part.latitudes.extend(_steps([place.latitude for stretch in stretches for place in stretch.path]))
    part.longitudes.extend(_steps([place.longitude for stretch in stretches for place in stretch.path]))
    part.half_widths.extend([max(1, _tenths(stretch.half_width_m)) for stretch in stretches])
    part.start_seconds.extend([_tenths(stretch.start_s) for stretch in stretches])
    part.end_seconds.extend([_tenths(stretch.end_s) for stretch in stretches])
    part.start_metres.extend([_tenths(stretch.start_m) for stretch in stretches])
    part.end_metres.extend([_tenths(stretch.end_m) for stretch in stretches])


def read_upstream(part: pb.Upstream) -> Upstream:
    """The upstream that a part holds."""
    points = list(part.points)
    columns = (part.half_widths, part.start_seconds, part.end_seconds, part.start_metres, part.end_metres)
    if any(len(column) != len(points) for column in columns):
        raise Malformed(Reason.FIELD_RANGE, f"Upstream has {len(points)} stretches, but not as many of every column")
    if not len(part.latitudes) == len(part.longitudes) == sum(points):
        raise Malformed(Reason.FIELD_RANGE, f"Upstream has {len(part.latitudes)} latitudes for {sum(points)} points")
    check_upstream_size(len(points), sum(points))
    latitudes, longitudes = _degrees(part.latitudes, "latitudes"), _degrees(part.longitudes, "longitudes")
    places = list(map(Place, latitudes, longitudes))
    stretches, first = [], 0
    for count, *numbers in zip(points, *columns, strict=True):
        path = tuple(places[first : first + count])
        half_width_m, start_s, end_s, start_m, end_m = (number / _A_TENTH for number in numbers)
        stretches.append(Stretch(path, half_width_m, start_s, end_s, start_m, end_m))
        first += count
    return Upstream(tuple(stretches))


def _tenths(number: float) -> int:
    return round(number * _A_TENTH)


def _steps(degrees: list[float]) -> list[int]:
    whole: NDArray[np.int64] = np.rint(np.array(degrees) * _A_DEGREE).astype(np.int64)
    steps: list[int] = np.diff(whole, prepend=0).tolist()
    return steps


def _degrees(steps: Sequence[int], name: str) -> list[float]:
    column = np.array(steps, np.int64)
    if column.size and not -_STEP_MAX <= column.min() <= column.max() <= _STEP_MAX:
        raise Malformed(Reason.COORDINATE_RANGE, f"a step of the {name} is longer than once around the Earth")
    degrees: list[float] = (np.cumsum(column) / _A_DEGREE).tolist()
    return degrees
