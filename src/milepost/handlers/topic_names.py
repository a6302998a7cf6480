"""The names of a handler in the log: its topics, its consumer group, and the senders under which it publishes.

Handler names contain no dots, so that the names of two handlers never collide.
"""

from typing import Final
from zlib import crc32

from milepost.eventlog.log import TopicSettings
from milepost.model.endpoints import service_source
from milepost.model.site_records import service_sender

COMPACTED: Final = TopicSettings(is_compacted=True)
DEAD_LETTERS: Final = "handler.dead-letters-"
PARTITIONS_MAX: Final = 64


def group_of(handler: str) -> str:
    """Return the consumer group of a handler's processes."""
    return f"handler-{handler}"


def partition_topic(handler: str, partition: int) -> str:
    """Return a topic without records: the group member it is assigned to serves the partition."""
    return f"handler.partition-{handler}.{partition}"


def ledger_topic(handler: str, partition: int) -> str:
    """Return the compacted topic of a partition's ledger and store."""
    return f"handler.store-{handler}.{partition}"


def dead_letter_topic(handler: str) -> str:
    """Return the compacted topic of a handler's dead letters."""
    return f"{DEAD_LETTERS}{handler}"


def partition_of(source: str, partitions: int) -> int:
    """Return the partition that serves a source; the result is stable."""
    return crc32(source.encode()) % partitions


def sender_name_of(handler: str, partition: int, *, is_remote: bool) -> str:
    """Return the name under which a partition publishes: one for edges of its own site, one for other sites.

    Edges read their inbox and cross-hub in parallel: numbers that increase in each topic need not increase across both.
    """
    own = f"{handler}.{partition}" if partition else handler
    return service_sender(f"{own}.remote" if is_remote else own)


def is_own_message(source: str, handler: str) -> bool:
    """Return whether the handler itself published a message."""
    own = service_source(handler)
    return source == own or source.startswith(f"{own}.")
