"""What the client library is told, each with its reason; and which settings a topic gets."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, TopicPartition

from milepost.backbone.log import RECORD_BYTES_MAX, TopicSettings
from milepost.model.survives import Survives

COPIES_MAX: Final = 3
MESSAGE_BYTES_MAX: Final = RECORD_BYTES_MAX + 100_000
"""A record with what Kafka puts around it."""
SESSION_S: Final = 6
"""A member that is silent for so long has left its group: the shortest that brokers allow."""
POLL_S_MAX: Final = 300
"""A member whose `take` works for longer has left its group."""

_SEGMENT_MS_MIN: Final = 1_000
_SEGMENT_MS_MAX: Final = 86_400_000
_SEGMENT_BYTES_MIN: Final = 1024 * 1024
_SEGMENT_BYTES_MAX: Final = 256 * 1024 * 1024
_COMPACTED_SEGMENT_MS: Final = 600_000

_SILENT: Final = logging.Logger("confluent_kafka")
_SILENT.addHandler(logging.NullHandler())

Heard = Callable[[KafkaError], None]
"""Takes what the library has to say besides answers: brokers that cannot be reached, mostly."""

Committed = Callable[[KafkaError | None, list[TopicPartition]], None]
"""Takes what became of a commit."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who we are to the cluster, and how it is reached; `options` are the user's own, and count more than ours."""

    address: str
    id: str
    options: Mapping[str, str]

    def settings(self, heard: Heard) -> dict[str, Any]:
        """For making topics, and what all others have too."""
        return {
            "bootstrap.servers": self.address,
            "client.id": self.id,
            "error_cb": heard,
            "log_level": 0,
            "logger": _SILENT,  # it would write to standard error; what matters comes through error_cb
            "socket.timeout.ms": 5_000,  # a broker that hangs is given up before people do
            "socket.keepalive.enable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            "retry.backoff.ms": 50,
            **self.options,
        }

    def producer_settings(self, heard: Heard) -> dict[str, Any]:
        """For appending."""
        return {
            "enable.idempotence": True,  # once and in order, whatever is tried again; wants acks=all
            "acks": "all",
            "message.timeout.ms": 0,  # tried for ever: whoever waits is told only what will not work
            "request.timeout.ms": 4_000,
            "retry.backoff.max.ms": 500,
            "linger.ms": 1,  # some more at a time costs all processes half as much; alone, a record waits for as long
            "topic.metadata.propagation.max.ms": 10_000,  # a topic that is not there for so long was deleted
            "message.max.bytes": MESSAGE_BYTES_MAX,
            # What waits is counted in `appending`; these are only never to be the smaller bound.
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            **self.settings(heard),
        }

    def reader_settings(self, heard: Heard) -> dict[str, Any]:
        """For following, without a group; the library wants the name of one all the same."""
        return {
            "group.id": f"{self.id}.reader",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",  # a gap is told, never stepped over
            "allow.auto.create.topics": False,  # a topic made by accident would have settings of nobody's choice
            "fetch.min.bytes": 1,
            "fetch.wait.max.ms": 100,  # a broker answers as soon as there is something: the longest wait for nothing
            "fetch.queue.backoff.ms": 10,
            "fetch.error.backoff.ms": 100,
            "topic.metadata.refresh.interval.ms": 10_000,
            "queued.max.messages.kbytes": 16 * 1024,
            **self.settings(heard),
        }

    def looking_settings(self, heard: Heard) -> dict[str, Any]:
        """For reading a few records and no more."""
        return {**self.reader_settings(heard), "enable.partition.eof": True, "fetch.wait.max.ms": 1}

    def member_settings(self, group: str, heard: Heard, committed: Committed) -> dict[str, Any]:
        """For reading as one of a group."""
        return {
            **self.reader_settings(heard),
            "group.id": group,
            "on_commit": committed,
            # Topics have one partition: `range`, the usual choice, would give all of them to one member. This one spreads them,
            # and those that need not move are read on while the others do.
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": SESSION_S * 1_000,
            "heartbeat.interval.ms": 500,  # how soon members hear that topics are to be shared out anew
            "max.poll.interval.ms": POLL_S_MAX * 1_000,
        }


def topic_settings(settings: TopicSettings) -> dict[str, str]:
    """How long a topic keeps what, in Kafka's words: only closed segments are cleaned, so they must not be too long."""
    if settings.is_compacted:
        return {
            "cleanup.policy": "compact",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "segment.ms": str(_COMPACTED_SEGMENT_MS),
            "segment.bytes": str(_SEGMENT_BYTES_MAX),
            "min.cleanable.dirty.ratio": "0.2",
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


def new_topic_settings(settings: TopicSettings, survives: Survives, copies: int) -> dict[str, str]:
    """What a topic is made with: how long it keeps what, and what its records survive."""
    safe = {
        Survives.NOTHING: {},
        # With three copies an append waits for two: what it confirmed outlives one broker.
        Survives.PROCESS_CRASH: {"min.insync.replicas": str((copies + 1) // 2)},
        Survives.POWER_LOSS: {"min.insync.replicas": str((copies + 1) // 2), "flush.messages": "1"},
    }[survives]
    return {
        **topic_settings(settings),
        **safe,
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(MESSAGE_BYTES_MAX + 100_000),
    }


def _between(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))
