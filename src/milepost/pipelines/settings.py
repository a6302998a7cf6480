"""The settings of the pipelines of a site."""

from dataclasses import dataclass

from milepost.model.incidents import EVENT_KINDS, EventKind


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """What all pipelines are told; `kinds` are those of the site's incidents."""

    folder: str = "data/pipelines"
    """Checkpoints and the archive are kept below it."""
    topics: tuple[str, ...] = ("#",)
    """Filters: which messages pipelines get to see."""
    late_s: float = 60.0
    """How much later than others a report may come and still count."""
    kinds: tuple[EventKind, ...] = EVENT_KINDS
