"""From records that cannot be read to dead letters."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from milepost.pipelines.letters.schema import LETTERS_TOPIC, VALUE_CHARACTERS_MAX


def letters(faulty: DataFrame, *, pipeline: str) -> DataFrame:
    """OUT_ROW of LOG_ROW with a `fault`."""
    letter = f.struct(
        f.lit("dead-letter").alias("type"),
        f.lit(pipeline).alias("pipeline"),
        "topic",
        "offset",
        "fault",
        f.substring("value", 1, VALUE_CHARACTERS_MAX).alias("value"),
    )
    return faulty.select(
        f.lit(LETTERS_TOPIC).alias("topic"), f.concat_ws("/", "topic", "offset").alias("key"), f.to_json(letter).alias("value")
    )
