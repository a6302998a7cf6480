"""The queries of positions: places and handovers, speeds and holes, and cells of the kinds that reports count for."""

from typing import Final
from zlib import crc32

from pyspark.sql import DataFrame

from milepost.pipelines.hazards.transform import cell_records, cells, events, tallied_fields
from milepost.pipelines.plans import Plan
from milepost.pipelines.positions.transform import place_records, places, report_events, slot_records, slots
from milepost.pipelines.records.transform import MESSAGES_TOPIC, REPORTS_TOPIC, messages, reports
from milepost.pipelines.settings import PipelineSettings

CONTRACT: Final = 1


def plans(settings: PipelineSettings) -> list[Plan]:
    """Three queries; the last is left out if no kind wants it."""

    def in_slots(log: DataFrame) -> DataFrame:
        return slot_records(slots(reports(log), late_s=settings.late_s))

    return [
        Plan("positions-places", (REPORTS_TOPIC,), CONTRACT, lambda log: place_records(places(reports(log)))),
        Plan("positions-slots", (REPORTS_TOPIC,), CONTRACT, in_slots),
        *_congestion(settings),
    ]


def _congestion(settings: PipelineSettings) -> list[Plan]:
    """Cells of such kinds come from here alone, those that messages give included: of two tellers neither would have it all."""
    kinds = [kind for kind in settings.kinds if kind.from_reports]

    def transform(log: DataFrame) -> DataFrame:
        told = report_events(reports(log), kinds).unionByName(events(messages(log), kinds))
        return cell_records(cells(told, kinds, late_s=settings.late_s))

    # What is remembered has a column for each tallied field: other fields, and it begins anew.
    contract = crc32(",".join(tallied_fields(kinds)).encode(), CONTRACT)
    return [Plan("positions-congestion", (MESSAGES_TOPIC, REPORTS_TOPIC), contract, transform)] if kinds else []
