"""What the demo is asked for."""

from dataclasses import dataclass
from pathlib import Path

from milepost.service.site_settings import Backbone


@dataclass(frozen=True, slots=True)
class Options:
    """How large, how long, on what."""

    vehicles: int
    seconds: int | None
    """Nothing: until somebody stops it."""
    backbone: Backbone
    sumo: Path | None
    """A scenario of somebody's; nothing: the town that comes with SUMO."""
    seed: int
    out: Path
    port: int | None
    """Of the map; nothing: the usual one, or one that is free."""
