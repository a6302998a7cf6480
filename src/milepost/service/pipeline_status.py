"""`milepost pipeline status`: what the pipelines of a site said of themselves last, as a table."""

import json
from pathlib import Path
from time import time_ns
from typing import Any, Final

from milepost.service.faults import StartFault
from milepost.service.settings import Settings
from milepost.service.terminal import say

STATUS_FILE: Final = "status.json"
OLD_S: Final = 15.0
"""A process that has said nothing for so long does not run."""

_HEADS: Final = ("query", "state", "mode", "batch", "rows/s", "lag", "remembered", "late", "restarts")


def status(settings: Settings) -> int:
    """Show it; gives the exit status: 0 if all queries run."""
    path = Path(settings.pipelines.folder) / STATUS_FILE
    try:
        told: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise StartFault(
            f"no pipelines have run in {settings.pipelines.folder}: start them, `milepost pipeline run all`"
        ) from None
    except (OSError, ValueError) as fault:
        raise StartFault(f"{path} cannot be read: {fault}") from None
    age_s = (time_ns() - told["at_ns"]) / 1e9
    is_old = age_s > OLD_S
    say(f"pipelines of site {told['site']}, " + (f"not running: last heard of {age_s:,.0f} s ago" if is_old else "running"))
    for line in table(told["queries"]):
        say(line)
    return 1 if is_old or any(one["state"] != "running" for one in told["queries"]) else 0


def table(queries: list[dict[str, Any]]) -> list[str]:
    """The lines: one for each query, and one for each fault."""
    rows = [_HEADS, *(_row(one) for one in queries)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADS))]
    lines = [
        "  ".join(_padded(cell, width, at) for at, (cell, width) in enumerate(zip(row, widths, strict=True))) for row in rows
    ]
    return [line.rstrip() for line in lines] + [f"{one['name']}: {one['fault']}" for one in queries if one["fault"]]


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    counts = (one["batch"], round(one["rows_per_s"]), one["lag"], one["state_rows"], one["late_rows"], one["restarts"])
    return (one["name"], one["state"], one["mode"], *("?" if count is None else f"{count:,}" for count in counts))


def _padded(cell: str, width: int, at: int) -> str:
    return f"{cell:<{width}}" if at < 3 else f"{cell:>{width}}"
