"""The settings of a site's incidents: what is an incident, and how long cells may take to arrive."""

from dataclasses import dataclass

from milepost.model.incidents import EVENT_KINDS, EventKind


@dataclass(frozen=True, slots=True)
class IncidentSettings:
    """For `milepost incidents run`, and for the pipeline that makes the cells."""

    late_s: float = 2.0
    kinds: tuple[EventKind, ...] = EVENT_KINDS
    roads: str = ""
    """A file with the road network; nothing: alerts go to circles."""
    upstream_s: float = 120.0
    """How many seconds of driving upstream of an incident alerts go."""

    def __post_init__(self) -> None:
        names = [kind.name for kind in self.kinds]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two kinds are named {min(twice)}")
        if not 1.0 <= self.upstream_s <= 3_600.0:
            raise ValueError(f"upstream_s is {self.upstream_s}, not in 1..3600")
