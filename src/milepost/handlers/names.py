"""Names in the log: the topics and the group of a handler. Its name has no dots, so that none of them can be another's."""

from typing import Final

from milepost.backbone.log import TopicSettings

COMPACTED: Final = TopicSettings(is_compacted=True)
PARKED: Final = "handler.parked-"


def group_of(handler: str) -> str:
    """The group that the processes of a handler form."""
    return f"handler-{handler}"


def part_topic(handler: str, part: int) -> str:
    """A topic without records: the member of the group that has it serves the part."""
    return f"handler.part-{handler}.{part}"


def book_topic(handler: str, part: int) -> str:
    """The book of a part: what it has dealt with, and its store; compacted."""
    return f"handler.store-{handler}.{part}"


def parked_topic(handler: str) -> str:
    """What was set aside; compacted."""
    return f"{PARKED}{handler}"
