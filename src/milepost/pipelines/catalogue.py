"""Which pipelines there are, and the topics that they read and write."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from milepost.backbone.log import TopicSettings
from milepost.hub.incidents.desk import CELLS
from milepost.model.telling import DELIVERIES, REPORTS, REPUTATION
from milepost.pipelines.archive import job as archive
from milepost.pipelines.hazards import job as hazards
from milepost.pipelines.letters import job as letters
from milepost.pipelines.letters.schema import LETTERS_TOPIC
from milepost.pipelines.plans import Plan
from milepost.pipelines.positions import job as positions
from milepost.pipelines.positions.schema import HANDOVERS_TOPIC, HOLES_TOPIC, LAST_TOPIC, SPEEDS_TOPIC
from milepost.pipelines.records.transform import MESSAGES_TOPIC
from milepost.pipelines.reputation import job as reputation
from milepost.pipelines.settings import PipelineSettings

JOBS: Final[Mapping[str, Callable[[PipelineSettings], list[Plan]]]] = {
    "hazards": hazards.plans,
    "positions": positions.plans,
    "reputation": reputation.plans,
    "archive": archive.plans,
    "letters": letters.plans,
}
"""The pipelines that are streams."""

_DAY_S: Final = 86_400

TOPICS: Final[Mapping[str, TopicSettings | None]] = {
    MESSAGES_TOPIC: None,
    REPORTS: TopicSettings(retention_s=_DAY_S),
    DELIVERIES: TopicSettings(retention_s=_DAY_S),
    CELLS: TopicSettings(retention_s=_DAY_S),
    REPUTATION: TopicSettings(is_compacted=True),
    LAST_TOPIC: TopicSettings(is_compacted=True),
    HANDOVERS_TOPIC: TopicSettings(retention_s=7 * _DAY_S),
    SPEEDS_TOPIC: TopicSettings(retention_s=7 * _DAY_S),
    HOLES_TOPIC: TopicSettings(retention_s=7 * _DAY_S),
    LETTERS_TOPIC: TopicSettings(retention_s=7 * _DAY_S),
}
"""How long topics keep what; those without a word here are as they are."""


def plans_of(names: Sequence[str], settings: PipelineSettings) -> list[Plan]:
    """The queries of pipelines."""
    return [plan for name in names for plan in JOBS[name](settings)]
