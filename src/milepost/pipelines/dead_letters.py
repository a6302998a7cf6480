"""The pipeline `dead-letters`: records that no pipeline can read, from all topics that pipelines read, to `dead-letters`.

    {"type": "dead-letter", "pipeline": "dead-letters", "topic": "reports", "offset": 17, "fault": "the type is not reports",
     "value": "…"}

The key of a dead letter is TOPIC/OFFSET, by which readers recognise duplicates.
"""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from milepost.pipelines.plan import Plan
from milepost.pipelines.records import TOPICS, faults
from milepost.pipelines.settings import PipelineSettings

DEAD_LETTERS_TOPIC: Final = "dead-letters"
VALUE_CHARACTERS_MAX: Final = 1_000
"""Maximum characters stored of an unreadable value."""

NAME: Final = "dead-letters"


def plans(settings: PipelineSettings) -> list[Plan]:
    """Return one query for all topics, so that a bad record is one dead letter however many pipelines read it."""
    del settings
    return [Plan(NAME, TOPICS, 1, lambda log: dead_letters(faults(log), pipeline=NAME), "append")]


def dead_letters(faulty: DataFrame, *, pipeline: str) -> DataFrame:
    """Return dead letters, with schema OUT_ROW, for the records (LOG_ROW) with a `fault`."""
    dead_letter = f.struct(
        f.lit("dead-letter").alias("type"),
        f.lit(pipeline).alias("pipeline"),
        "topic",
        "offset",
        "fault",
        f.substring("value", 1, VALUE_CHARACTERS_MAX).alias("value"),
    )
    return faulty.select(
        f.lit(DEAD_LETTERS_TOPIC).alias("topic"),
        f.concat_ws("/", "topic", "offset").alias("key"),
        f.to_json(dead_letter).alias("value"),
    )
