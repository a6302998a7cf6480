"""A diff as bytes for browsers: what is said in JSON, then vehicles as they are.

4 bytes   n, the length of the JSON, little-endian; a multiple of 4, so that words of vehicles lie on words
n bytes   JSON: {"at", "whole", "tables", "gone", "names"}, filled up with spaces
the rest  vehicles, 20 bytes each, as in `ROW`
"""

import orjson

from milepost.dashboard.scene import Diff


def frame_of(diff: Diff) -> bytes:
    """The bytes of a diff."""
    vehicles = diff.vehicles
    said = orjson.dumps(
        {
            "at": diff.at_ms,
            "whole": diff.is_whole,
            "tables": diff.tables,
            "gone": vehicles.gone,
            "names": {str(number): name for number, name in vehicles.names.items()},
        }
    )
    said += b" " * (-len(said) % 4)
    return len(said).to_bytes(4, "little") + said + vehicles.rows.tobytes()
