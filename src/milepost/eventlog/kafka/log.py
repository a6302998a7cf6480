"""The log on a Kafka cluster, through confluent-kafka.

    append ─▶ KafkaWriter (one producer) ═▶ brokers ═▶ KafkaReader (one thread and one consumer each) ─▶ on_records

Topics have one partition, so that a topic is totally ordered, and a prefix before their names in the cluster.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from milepost.eventlog.kafka.errors import ClusterFault, closed
from milepost.eventlog.kafka.group import KafkaGroupMember
from milepost.eventlog.kafka.lookup import LookupConsumer
from milepost.eventlog.kafka.reader import KafkaReader
from milepost.eventlog.kafka.settings import KafkaClientSettings
from milepost.eventlog.kafka.topics import REQUEST_TIMEOUT_S, TopicAdmin
from milepost.eventlog.kafka.writer import SLOW_S, KafkaWriter
from milepost.eventlog.log import (
    Done,
    Entry,
    LogRefused,
    OnGap,
    OnRecords,
    Record,
    Start,
    TopicSettings,
    check_entries,
    check_group_name,
    check_topic_name,
)
from milepost.model.durability import Durability

PREFIX_CHARACTERS_MAX: Final = 40
_NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


class KafkaLog:
    """Implementation of `Log` on the cluster at `address`: HOST:PORT, several separated by commas.

    `options` are settings of the client library, under its own names, such as TLS and SASL.
    """

    def __init__(
        self,
        address: str,
        durability: Durability,
        *,
        client_id: str,
        prefix: str = "",
        options: Mapping[str, str] = _NO_OPTIONS,
    ) -> None:
        if prefix:
            _check_prefix(prefix)
        self._prefix = prefix
        self._cluster_fault = ClusterFault(address)
        self._client = KafkaClientSettings(address, client_id, options)
        self._lock = threading.Lock()
        self._readers: list[KafkaReader] = []
        self._is_closed = False
        try:
            self._admin = AdminClient(self._client.settings(_ignore_error))
            self._topics = TopicAdmin(self._admin, address, prefix, durability, self._cluster_fault)
            lookup_consumer = Consumer(self._client.lookup_settings(_ignore_error))
            self._lookup = LookupConsumer(lookup_consumer, self._topics, address, self._cluster_fault)
            self._writer = KafkaWriter(self._new_producer, self._topics, address, self._cluster_fault)
        except KafkaException as fault:
            raise LogRefused(f"Kafka's client cannot be set up ({fault.args[0]}): check the address and the options") from None

    @property
    def fault(self) -> str | None:
        """Reason why the cluster cannot be reached or written at the moment, or None."""
        if self._cluster_fault.text is not None or self._writer.slow_for_s < SLOW_S:
            return self._cluster_fault.text
        return f"Kafka at {self._client.address} has confirmed nothing for {self._writer.slow_for_s:.0f} s: check the brokers"

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        """Append records, in order, without blocking."""
        self._writer.append(entries, check_entries(entries), done)

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Create a topic or change its settings."""
        self._check_open()
        self._topics.make(topic, settings)

    def follow(self, starts: Mapping[str, Start], on_records: OnRecords, on_gap: OnGap) -> KafkaReader:
        """Read topics from their start positions, until closed."""
        self._check_open()
        self._topics.ensure(starts)
        positions = {topic: self._lookup.position_of(topic, start) for topic, start in starts.items()}
        reader = KafkaReader(
            Consumer(self._client.reader_settings(self._cluster_fault.note_error)),
            self._topics,
            on_records,
            on_gap,
            self._cluster_fault,
        )
        self._add(reader)
        reader.start(positions)
        return reader

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Return at most `limit` records from offset *first* on, without waiting for more."""
        self._check_open()
        return self._lookup.read(topic, first, limit) if self._topics.is_there(topic) else []

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the offsets of the oldest record and of the next append."""
        self._check_open()
        return self._lookup.ends(topic) if self._topics.is_there(topic) else (0, 0)

    def topics(self) -> list[str]:
        """Return the existing topics, sorted."""
        self._check_open()
        return self._topics.names()

    def join(
        self,
        group: str,
        topics: Sequence[str],
        on_records: OnRecords,
        on_gap: OnGap,
        *,
        changed: Callable[[frozenset[str]], None] | None = None,
    ) -> KafkaGroupMember:
        """Read topics as a member of a group."""
        self._check_open()
        check_group_name(group)
        self._topics.ensure(topics)
        member = KafkaGroupMember(
            lambda committed: Consumer(
                self._client.member_settings(self._prefix + group, self._cluster_fault.note_error, committed)
            ),
            self._topics,
            on_records,
            on_gap,
            self._cluster_fault,
            changed=changed,
        )
        self._add(member)
        member.join(topics)
        return member

    def committed(self, group: str) -> dict[str, int]:
        """Return the committed offsets of a group, by topic."""
        self._check_open()
        check_group_name(group)
        request = ConsumerGroupTopicPartitions(self._prefix + group)
        (future,) = self._admin.list_consumer_group_offsets([request], request_timeout=REQUEST_TIMEOUT_S).values()
        found = self._topics.call(future.result).topic_partitions or []
        return {self._topics.off_wire(partition.topic): partition.offset for partition in found if partition.offset >= 0}

    def close(self) -> None:
        """Finish pending appends and stop all readers."""
        with self._lock:
            self._is_closed = True
            readers = list(self._readers)
        for reader in readers:
            reader.stop()
        self._writer.close()
        for reader in readers:
            reader.close()
        self._lookup.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed()

    def _add(self, reader: KafkaReader) -> None:
        with self._lock:
            self._check_open()
            self._readers = [*(one for one in self._readers if one.is_open), reader]

    def _new_producer(self) -> Producer:
        return Producer(self._client.producer_settings(self._cluster_fault.note_error))


def _ignore_error(_: KafkaError) -> None:
    """Ignore errors of clients that are polled rarely: they arrive late, and each request reports its own."""


def _check_prefix(prefix: str) -> None:
    check_topic_name(prefix)
    if len(prefix) > PREFIX_CHARACTERS_MAX:
        raise LogRefused(f"the prefix {prefix!r} is longer than {PREFIX_CHARACTERS_MAX} characters: choose a shorter one")
