"""The query `letters`: what no pipeline can read of all topics they read."""

from typing import Final

from milepost.pipelines.letters.transform import letters
from milepost.pipelines.plans import Plan
from milepost.pipelines.records.transform import TOPICS, faults
from milepost.pipelines.settings import PipelineSettings

NAME: Final = "letters"


def plans(settings: PipelineSettings) -> list[Plan]:
    """One query, so that a bad record is one letter however many pipelines read it."""
    del settings
    return [Plan(NAME, TOPICS, 1, lambda log: letters(faults(log), pipeline=NAME), "append")]
