"""Which plans run in real-time mode, and how many cores they need."""

from pathlib import Path

import pytest

from milepost.model.durability import Durability
from milepost.model.incidents import EventKind
from milepost.pipelines.catalogue import PIPELINE_PLANS, plans_of
from milepost.pipelines.hazards import plans
from milepost.pipelines.plan import Plan
from milepost.pipelines.runner import batch_limit, checkpoint_of, cores_needed, is_real_time, query_name
from milepost.pipelines.settings import BatchSettings, Mode, PipelineSettings
from milepost.pipelines.sources import Source
from milepost.pipelines.sources.embedded import EmbeddedSource
from milepost.pipelines.sources.kafka import KafkaSource

KAFKA = KafkaSource("127.0.0.1:9", "p.", {})
EMBEDDED = EmbeddedSource(Path("log"), Durability.PROCESS_CRASH)
URGENT = Plan("urgent", ("a", "b"), 3, lambda log: log, is_urgent=True)
OTHER = Plan("other", ("a",), 1, lambda log: log)


@pytest.mark.parametrize(
    ("plan", "source", "mode", "is_expected"),
    [
        (URGENT, KAFKA, Mode.AUTO, True),
        (URGENT, KAFKA, Mode.REAL_TIME, True),
        (URGENT, KAFKA, Mode.MICRO_BATCH, False),
        (URGENT, EMBEDDED, Mode.AUTO, False),
        (OTHER, KAFKA, Mode.REAL_TIME, False),
    ],
)
def test_real_time_mode_is_for_urgent_plans_on_kafka(plan: Plan, source: Source, mode: Mode, is_expected: bool) -> None:
    assert is_real_time(plan, source, mode) == is_expected


def test_every_task_of_a_real_time_query_has_a_slot_that_others_never_take() -> None:
    two = {"urgent": 2, "other": 2}
    assert cores_needed([URGENT], KAFKA, BatchSettings(), partitions=two) == 4
    assert cores_needed([URGENT, OTHER, OTHER], KAFKA, BatchSettings(), partitions=two) == 4 + 3 + 3
    assert cores_needed([URGENT, OTHER], KAFKA, BatchSettings(), partitions={"urgent": 3, "other": 4}) == 5 + 5
    assert cores_needed([URGENT, OTHER], EMBEDDED, BatchSettings(), partitions=two) == 2


def test_a_state_version_has_its_own_checkpoints() -> None:
    assert query_name(URGENT) == "urgent-3"
    assert checkpoint_of("data", URGENT) == "data/checkpoints/urgent-3"


def test_other_tallied_fields_have_another_state_version() -> None:
    usual = PipelineSettings()
    by_messages = tuple(kind for kind in usual.kinds if not kind.from_reports)
    (plain,) = plans(PipelineSettings(kinds=by_messages))
    (one,) = plans(PipelineSettings(kinds=(*by_messages[1:], _kind_with(by_messages[0].topic, "mean_speed_mps < 3"))))
    (other,) = plans(PipelineSettings(kinds=(*by_messages[1:], _kind_with(by_messages[0].topic, "max_lanes < 3"))))
    assert len({plain.state_version, one.state_version, other.state_version}) == 3


def _kind_with(topic: str, predicate: str) -> EventKind:
    return EventKind("With_fields", topic, predicate, None)


def test_a_query_that_reads_reports_has_smaller_batches() -> None:
    limits = {plan.name: batch_limit(plan, 200_000) for plan in plans_of(list(PIPELINE_PLANS), PipelineSettings())}
    assert limits["hazards"] == limits["archive-messages"] == 200_000
    assert limits["archive-reports"] == limits["reputation"] == 20_000
    assert all(batch_limit(plan, 1) == 1 for plan in plans_of(list(PIPELINE_PLANS), PipelineSettings()))
