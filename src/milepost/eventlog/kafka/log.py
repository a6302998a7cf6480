"""The log on a Kafka cluster, through confluent-kafka.

    append ─▶ Appender (one producer) ═▶ brokers ═▶ Reader (one thread and one consumer each) ─▶ take

Topics have one partition, so that a topic is totally ordered, and a prefix before their names in the cluster.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from milepost.eventlog.kafka.errors import Trouble, closed
from milepost.eventlog.kafka.group import GroupMember
from milepost.eventlog.kafka.lookup import Looker
from milepost.eventlog.kafka.reader import Reader
from milepost.eventlog.kafka.settings import Client
from milepost.eventlog.kafka.topics import ANSWER_S, Topics
from milepost.eventlog.kafka.writer import SLOW_S, Appender
from milepost.eventlog.log import (
    Done,
    Entry,
    LogRefused,
    Lost,
    Record,
    Start,
    Take,
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
        self._trouble = Trouble(address)
        self._client = Client(address, client_id, options)
        self._lock = threading.Lock()
        self._readers: list[Reader] = []
        self._is_closed = False
        try:
            self._admin = AdminClient(self._client.settings(_unheard))
            self._topics = Topics(self._admin, address, prefix, durability, self._trouble)
            looking = Consumer(self._client.looking_settings(_unheard))
            self._looker = Looker(looking, self._topics, address, self._trouble)
            self._appender = Appender(self._new_producer, self._topics, address, self._trouble)
        except KafkaException as fault:
            raise LogRefused(f"Kafka's client cannot be set up ({fault.args[0]}): look at the address and the options") from None

    @property
    def trouble(self) -> str | None:
        """Reason why the cluster cannot be reached or written at the moment, or None."""
        if self._trouble.text is not None or self._appender.slow_for_s < SLOW_S:
            return self._trouble.text
        return f"Kafka at {self._client.address} has confirmed nothing for {self._appender.slow_for_s:.0f} s: look at the brokers"

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        """Append records, in order, without blocking."""
        self._appender.append(entries, check_entries(entries), done)

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Create a topic or change its settings."""
        self._check_open()
        self._topics.make(topic, settings)

    def follow(self, starts: Mapping[str, Start], take: Take, lost: Lost) -> Reader:
        """Read topics from their start positions, until closed."""
        self._check_open()
        self._topics.ensure(starts)
        positions = {topic: self._looker.position_of(topic, start) for topic, start in starts.items()}
        reader = Reader(Consumer(self._client.reader_settings(self._trouble.found)), self._topics, take, lost, self._trouble)
        self._add(reader)
        reader.start(positions)
        return reader

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Return at most `limit` records from offset *first* on, without waiting for more."""
        self._check_open()
        return self._looker.read(topic, first, limit) if self._topics.is_there(topic) else []

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the offsets of the oldest record and of the next append."""
        self._check_open()
        return self._looker.ends(topic) if self._topics.is_there(topic) else (0, 0)

    def topics(self) -> list[str]:
        """Return the existing topics, sorted."""
        self._check_open()
        return self._topics.names()

    def join(
        self,
        group: str,
        topics: Sequence[str],
        take: Take,
        lost: Lost,
        *,
        changed: Callable[[frozenset[str]], None] | None = None,
    ) -> GroupMember:
        """Read topics as a member of a group."""
        self._check_open()
        check_group_name(group)
        self._topics.ensure(topics)
        member = GroupMember(
            lambda heard: Consumer(self._client.member_settings(self._prefix + group, self._trouble.found, heard)),
            self._topics,
            take,
            lost,
            self._trouble,
            changed=changed,
        )
        self._add(member)
        member.join(topics)
        return member

    def committed(self, group: str) -> dict[str, int]:
        """Return the committed offsets of a group, by topic."""
        self._check_open()
        check_group_name(group)
        asked = ConsumerGroupTopicPartitions(self._prefix + group)
        (future,) = self._admin.list_consumer_group_offsets([asked], request_timeout=ANSWER_S).values()
        found = self._topics.asked(future.result).topic_partitions or []
        return {self._topics.off_wire(partition.topic): partition.offset for partition in found if partition.offset >= 0}

    def close(self) -> None:
        """Finish pending appends and stop all readers."""
        with self._lock:
            self._is_closed = True
            readers = list(self._readers)
        for reader in readers:
            reader.stop()
        self._appender.close()
        for reader in readers:
            reader.close()
        self._looker.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed()

    def _add(self, reader: Reader) -> None:
        with self._lock:
            self._check_open()
            self._readers = [*(one for one in self._readers if one.is_open), reader]

    def _new_producer(self) -> Producer:
        return Producer(self._client.producer_settings(self._trouble.found))


def _unheard(_: KafkaError) -> None:
    """Ignore errors of clients that are polled rarely: they arrive late, and each request reports its own."""


def _check_prefix(prefix: str) -> None:
    check_topic_name(prefix)
    if len(prefix) > PREFIX_CHARACTERS_MAX:
        raise LogRefused(f"the prefix {prefix!r} is longer than {PREFIX_CHARACTERS_MAX} characters: take a shorter one")
