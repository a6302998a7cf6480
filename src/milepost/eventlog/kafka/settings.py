"""Settings of the client library, each with its reason, and of topics."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, TopicPartition

from milepost.eventlog.log import RECORD_BYTES_MAX, TOMBSTONE_S, TopicSettings
from milepost.model.durability import Durability

COPIES_MAX: Final = 3
MESSAGE_BYTES_MAX: Final = RECORD_BYTES_MAX + 100_000
"""Maximum bytes of a record including Kafka's overhead."""
SESSION_S: Final = 6
"""Session timeout of a group member: the shortest that brokers allow."""
POLL_S_MAX: Final = 300
"""Maximum duration of `on_records`; a member that exceeds it is removed from its group."""

_SEGMENT_MS_MIN: Final = 1_000
_SEGMENT_MS_MAX: Final = 86_400_000
_SEGMENT_BYTES_MIN: Final = 1024 * 1024
_SEGMENT_BYTES_MAX: Final = 256 * 1024 * 1024
_COMPACTED_SEGMENT_MS: Final = 600_000

_SILENT: Final = logging.Logger("confluent_kafka")
_SILENT.addHandler(logging.NullHandler())

OnError = Callable[[KafkaError], None]
"""Receives errors of the library outside of requests, mostly unreachable brokers."""

Committed = Callable[[KafkaError | None, list[TopicPartition]], None]
"""Receives the outcome of a commit."""


@dataclass(frozen=True, slots=True)
class KafkaClientSettings:
    """Client id and cluster address; the user's `options` override ours."""

    address: str
    id: str
    options: Mapping[str, str]

    def settings(self, on_error: OnError) -> dict[str, Any]:
        """Return the settings for creating topics, the base of all others."""
        return {
            "bootstrap.servers": self.address,
            "client.id": self.id,
            "error_cb": on_error,
            "log_level": 0,
            "logger": _SILENT,  # it would write to standard error; relevant errors come through error_cb
            "socket.timeout.ms": 5_000,  # give up on a hanging broker before users give up
            "socket.keepalive.enable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "retry.backoff.ms": 50,
            **self.options,
        }

    def producer_settings(self, on_error: OnError) -> dict[str, Any]:
        """Return the settings for appending."""
        return {
            "enable.idempotence": True,  # no duplicates and no reordering on retries; requires acks=all
            "acks": "all",
            "message.timeout.ms": 0,  # retry forever: only permanent errors are reported
            "request.timeout.ms": 4_000,
            "retry.backoff.max.ms": 500,
            "linger.ms": 1,  # batching halves the cost in all processes; a lone record waits this long
            "topic.metadata.propagation.max.ms": 10_000,  # a topic missing for this long was deleted
            "message.max.bytes": MESSAGE_BYTES_MAX,
            # `writer` bounds the queue; these limits must never be the smaller ones.
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            **self.settings(on_error),
        }

    def reader_settings(self, on_error: OnError) -> dict[str, Any]:
        """Return the settings for following without a group; the library requires a group id all the same."""
        return {
            "group.id": f"{self.id}.reader",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # a gap is reported, never skipped silently
            "allow.auto.create.topics": False,  # an auto-created topic would have the cluster's default settings
            "fetch.min.bytes": 1,
            "fetch.wait.max.ms": 100,  # maximum wait of an empty fetch; a broker answers as soon as it has a record
            "fetch.queue.backoff.ms": 10,
            "fetch.error.backoff.ms": 100,
            "topic.metadata.refresh.interval.ms": 10_000,
            "queued.max.messages.kbytes": 16 * 1024,
            **self.settings(on_error),
        }

    def lookup_settings(self, on_error: OnError) -> dict[str, Any]:
        """Return the settings for reading a limited range of records."""
        return {**self.reader_settings(on_error), "enable.partition.eof": True, "fetch.wait.max.ms": 1}

    def member_settings(self, group: str, on_error: OnError, committed: Committed) -> dict[str, Any]:
        """Return the settings of a group member."""
        return {
            **self.reader_settings(on_error),
            "group.id": group,
            "on_commit": committed,
            # Topics have one partition: `range`, the default, would assign all of them to one member. This strategy spreads them,
            # and topics that stay are read on during a rebalance.
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_S * 1_000,
            "heartbeat.interval.ms": 500,  # how soon members learn of a rebalance
            "max.poll.interval.ms": POLL_S_MAX * 1_000,
        }


def topic_settings(settings: TopicSettings) -> dict[str, str]:
    """Return retention and compaction as Kafka settings; segments are short because only closed ones are cleaned."""
    if settings.is_compacted:
        return {
            "cleanup.policy": "compact",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.ms": str(_COMPACTED_SEGMENT_MS),
            "segment.bytes": str(_SEGMENT_BYTES_MAX),
            "min.cleanable.dirty.ratio": "0.2",
            "min.compaction.lag.ms": str(TOMBSTONE_S * 1_000),  # authenticated removals must reach readers
        }
    age_ms, size = settings.retention_s * 1_000, settings.retention_bytes
    segment_ms = _between(age_ms // 8, _SEGMENT_MS_MIN, _SEGMENT_MS_MAX) if age_ms else _SEGMENT_MS_MAX
    segment_bytes = _between(size // 8, _SEGMENT_BYTES_MIN, _SEGMENT_BYTES_MAX) if size else _SEGMENT_BYTES_MAX
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(age_ms or -1),
        "retention.bytes": str(size or -1),
        "segment.ms": str(segment_ms),
        "segment.bytes": str(segment_bytes),
    }


def new_topic_settings(settings: TopicSettings, durability: Durability, copies: int) -> dict[str, str]:
    """Return the settings of a new topic: retention, compaction and durability."""
    safe = {
        Durability.NONE: {},
        # With three replicas an append waits for two: confirmed records survive the loss of one broker.
        Durability.PROCESS_CRASH: {"min.insync.replicas": str((copies + 1) // 2)},
        Durability.POWER_LOSS: {"min.insync.replicas": str((copies + 1) // 2), "flush.messages": "1"},
    }[durability]
    return {
        **topic_settings(settings),
        **safe,
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MESSAGE_BYTES_MAX + 100_000),
    }


def _between(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))
