"""The columns of hazards.

messages ─▶ EVENT_ROW ─▶ one groupBy ─▶ CELL_ROW ─▶ JSON, as `wire.incidents.cell_from_json` reads it
"""

from typing import Final

EVENT_ROW: Final = """
    kind string, endpoint string, seen_at_us bigint, latitude double, longitude double, fields map<string, double>
"""
"""One report of an event. `kind` is the name of an `EventKind`, `fields` the numbers that its payload has, or nothing."""

KEY: Final = ("kind", "slot", "slot_ends", "row", "column")
"""By which events are gathered."""

CELL_ROW: Final = """
    kind string, slot bigint, row bigint, column bigint, reports bigint, witnesses array<string>, witness_count int,
    north_sum bigint, east_sum bigint, extent array<bigint>, first_at string, last_at string
"""
"""One cell, with the members of its JSON but for `type`; see docs/reference/incidents.md. Where predicates ask about fields there
is also `tallies`, a structure with a member for each of them."""
