"""The list of pipelines, and the topics that they read and write."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from milepost.eventlog.log import TopicSettings
from milepost.incidents.engine import CELLS
from milepost.model.pipeline_records import DELIVERIES, REPORTS, REPUTATION
from milepost.pipelines import dead_letters, hazards, positions
from milepost.pipelines.archive import ingest as archive
from milepost.pipelines.dead_letters import DEAD_LETTERS_TOPIC
from milepost.pipelines.plan import Plan
from milepost.pipelines.positions import HOLES_TOPIC, LAST_TOPIC, SPEEDS_TOPIC, STAYS_TOPIC
from milepost.pipelines.records import MESSAGES_TOPIC
from milepost.pipelines.reputation import pipeline as reputation
from milepost.pipelines.settings import PipelineSettings

PIPELINE_PLANS: Final[Mapping[str, Callable[[PipelineSettings], list[Plan]]]] = {
    "hazards": hazards.plans,
    "positions": positions.plans,
    "reputation": reputation.plans,
    "archive": archive.plans,
    "dead-letters": dead_letters.plans,
}
"""The streaming pipelines, by name."""

_DAY_S: Final = 86_400

TOPICS: Final[Mapping[str, TopicSettings | None]] = {
    MESSAGES_TOPIC: None,
    REPORTS: TopicSettings(retention_s=_DAY_S),
    DELIVERIES: TopicSettings(retention_s=_DAY_S),
    CELLS: TopicSettings(retention_s=_DAY_S),
    REPUTATION: TopicSettings(is_compacted=True),
    LAST_TOPIC: TopicSettings(is_compacted=True),
    STAYS_TOPIC: TopicSettings(retention_s=7 * _DAY_S),
    SPEEDS_TOPIC: TopicSettings(retention_s=7 * _DAY_S),
    HOLES_TOPIC: TopicSettings(retention_s=7 * _DAY_S),
    DEAD_LETTERS_TOPIC: TopicSettings(retention_s=7 * _DAY_S),
}
"""Settings of topics; `None`: existing settings stay."""


def plans_of(names: Sequence[str], settings: PipelineSettings) -> list[Plan]:
    """Return the queries of the named pipelines."""
    return [plan for name in names for plan in PIPELINE_PLANS[name](settings)]
