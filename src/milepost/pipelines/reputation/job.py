"""The query `reputation`: reports and events to the log's `reputation`."""

from pyspark.sql import DataFrame

from milepost.pipelines.plans import Plan
from milepost.pipelines.records.transform import MESSAGES_TOPIC, REPORTS_TOPIC, messages, reports
from milepost.pipelines.reputation.transform import evidence, reputation_records, reputations, sights
from milepost.pipelines.settings import PipelineSettings


def plans(settings: PipelineSettings) -> list[Plan]:
    """One query for all endpoints."""

    def transform(log: DataFrame) -> DataFrame:
        seen = sights(reports(log), messages(log), settings.kinds)
        return reputation_records(reputations(evidence(seen, late_s=settings.late_s)))

    return [Plan("reputation", (MESSAGES_TOPIC, REPORTS_TOPIC), 1, transform, output="append")]
