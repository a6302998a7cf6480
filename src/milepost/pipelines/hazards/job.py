"""The query `hazards`: messages on the topics of event kinds to the log's `cells`."""

from typing import Final
from zlib import crc32

from pyspark.sql import DataFrame

from milepost.pipelines.hazards.transform import cell_records, cells, events, tallied_fields
from milepost.pipelines.plans import Plan
from milepost.pipelines.records.transform import MESSAGES_TOPIC, messages
from milepost.pipelines.settings import PipelineSettings

CONTRACT: Final = 1


def plans(settings: PipelineSettings) -> list[Plan]:
    """One query for all kinds whose events are messages; those of kinds that reports count for are told by positions."""
    kinds = [kind for kind in settings.kinds if not kind.from_reports]

    def transform(log: DataFrame) -> DataFrame:
        return cell_records(cells(events(messages(log), kinds), kinds, late_s=settings.late_s))

    # What is remembered has a column for each tallied field: other fields, and it begins anew.
    fields = ",".join(tallied_fields(kinds))
    contract = crc32(fields.encode(), CONTRACT) if fields else CONTRACT
    return [Plan("hazards", (MESSAGES_TOPIC,), contract, transform, is_urgent=True)] if kinds else []
