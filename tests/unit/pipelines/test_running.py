"""Which plans run in real-time mode, and how many cores that takes."""

from pathlib import Path

import pytest

from milepost.model.durability import Durability
from milepost.model.incidents import EventKind
from milepost.pipelines.hazards import plans
from milepost.pipelines.plan import Plan
from milepost.pipelines.runner import checkpoint_of, cores_needed, is_real_time, query_name
from milepost.pipelines.settings import Mode, Pace, PipelineSettings
from milepost.pipelines.sources import Source
from milepost.pipelines.sources.embedded import EmbeddedSource
from milepost.pipelines.sources.kafka import KafkaSource

KAFKA = KafkaSource("127.0.0.1:9", "p.", {})
EMBEDDED = EmbeddedSource(Path("log"), Durability.PROCESS_CRASH)
URGENT = Plan("urgent", ("a", "b"), 3, lambda log: log, is_urgent=True)
OTHER = Plan("other", ("a",), 1, lambda log: log)


@pytest.mark.parametrize(
    ("plan", "source", "mode", "is_so"),
    [
        (URGENT, KAFKA, Mode.AUTO, True),
        (URGENT, KAFKA, Mode.REAL_TIME, True),
        (URGENT, KAFKA, Mode.MICRO_BATCH, False),
        (URGENT, EMBEDDED, Mode.AUTO, False),
        (OTHER, KAFKA, Mode.REAL_TIME, False),
    ],
)
def test_real_time_mode_is_for_urgent_plans_on_kafka(plan: Plan, source: Source, mode: Mode, is_so: bool) -> None:
    assert is_real_time(plan, source, mode) == is_so


def test_tasks_of_real_time_queries_all_have_a_core() -> None:
    assert cores_needed([URGENT], KAFKA, Pace(), partitions=2) == 4
    assert cores_needed([URGENT, OTHER], KAFKA, Pace(), partitions=2) == 6
    assert cores_needed([URGENT, OTHER], EMBEDDED, Pace(), partitions=2) == 2


def test_a_contract_has_checkpoints_of_its_own() -> None:
    assert query_name(URGENT) == "urgent-3"
    assert checkpoint_of("data", URGENT) == "data/checkpoints/urgent-3"


def test_other_tallied_fields_are_another_contract() -> None:
    usual = PipelineSettings()
    asking = tuple(kind for kind in usual.kinds if not kind.from_reports)
    (plain,) = plans(PipelineSettings(kinds=asking))
    (one,) = plans(PipelineSettings(kinds=(*asking[1:], _asking(asking[0].topic, "mean_speed_mps < 3"))))
    (other,) = plans(PipelineSettings(kinds=(*asking[1:], _asking(asking[0].topic, "max_lanes < 3"))))
    assert len({plain.contract, one.contract, other.contract}) == 3


def _asking(topic: str, predicate: str) -> EventKind:
    return EventKind("Asking", topic, predicate, None)
