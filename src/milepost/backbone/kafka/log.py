"""The log on a Kafka cluster, through confluent-kafka.

    append ─▶ Appender (one producer) ═▶ brokers ═▶ Reader (one thread and one consumer each) ─▶ take

Topics have one partition, so that a topic is one total order, and a prefix in front of their names on the wire.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from milepost.backbone.kafka.appending import SLOW_S, Appender
from milepost.backbone.kafka.faults import Trouble, closed
from milepost.backbone.kafka.looking import Looker
from milepost.backbone.kafka.member import GroupMember
from milepost.backbone.kafka.reader import Reader
from milepost.backbone.kafka.settings import Client
from milepost.backbone.kafka.topics import ANSWER_S, Topics
from milepost.backbone.log import Done, Entry, LogRefused, Lost, Record, Start, Take, TopicSettings
from milepost.backbone.names import check_entries, check_group_name, check_topic_name
from milepost.model.survives import Survives

PREFIX_CHARACTERS_MAX: Final = 40
_NO_OPTIONS: Final[Mapping[str, str]] = MappingProxyType({})


class KafkaLog:
    """The log at `address`, which is HOST:PORT, several with commas between; keeps the promises of `Log`.

    `options` are settings of the client library, by its own names, for what the cluster asks of its clients: TLS and passwords.
    """

    def __init__(
        self,
        address: str,
        survives: Survives,
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
            self._topics = Topics(self._admin, address, prefix, survives, self._trouble)
            looking = Consumer(self._client.looking_settings(_unheard))
            self._looker = Looker(looking, self._topics, address, self._trouble)
            self._appender = Appender(self._new_producer, self._topics, address, self._trouble)
        except KafkaException as fault:
            raise LogRefused(f"Kafka's client cannot be set up ({fault.args[0]}): look at the address and the options") from None

    @property
    def trouble(self) -> str | None:
        """Why the cluster cannot be reached or written at the moment."""
        if self._trouble.text is not None or self._appender.slow_for_s < SLOW_S:
            return self._trouble.text
        return f"Kafka at {self._client.address} has confirmed nothing for {self._appender.slow_for_s:.0f} s: look at the brokers"

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        """Append records, in order; returns at once."""
        self._appender.append(entries, check_entries(entries), done)

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        """Make a topic, or give one that is there other settings."""
        self._check_open()
        self._topics.make(topic, settings)

    def follow(self, starts: Mapping[str, Start], take: Take, lost: Lost) -> Reader:
        """Read topics from here on, until closed."""
        self._check_open()
        self._topics.ensure(starts)
        positions = {topic: self._looker.position_of(topic, start) for topic, start in starts.items()}
        reader = Reader(Consumer(self._client.reader_settings(self._trouble.found)), self._topics, take, lost, self._trouble)
        self._add(reader)
        reader.start(positions)
        return reader

    def read(self, topic: str, first: int, limit: int) -> list[Record]:
        """Some records from an offset on, without waiting for more."""
        self._check_open()
        return self._looker.read(topic, first, limit) if self._topics.is_there(topic) else []

    def ends(self, topic: str) -> tuple[int, int]:
        """The offset of the oldest record, and of the one that will be appended next."""
        self._check_open()
        return self._looker.ends(topic) if self._topics.is_there(topic) else (0, 0)

    def topics(self) -> list[str]:
        """The topics there are, sorted."""
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
        """Read topics as one of a group."""
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
        """What a group has committed, by topic."""
        self._check_open()
        check_group_name(group)
        asked = ConsumerGroupTopicPartitions(self._prefix + group)
        (future,) = self._admin.list_consumer_group_offsets([asked], request_timeout=ANSWER_S).values()
        found = self._topics.asked(future.result).topic_partitions or []
        return {self._topics.off_wire(partition.topic): partition.offset for partition in found if partition.offset >= 0}

    def close(self) -> None:
        """Finish what was appended, stop all readers."""
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
    """For clients that are only asked now and then: what they say in between is old when it is heard, and answers tell more."""


def _check_prefix(prefix: str) -> None:
    check_topic_name(prefix)
    if len(prefix) > PREFIX_CHARACTERS_MAX:
        raise LogRefused(f"the prefix {prefix!r} is longer than {PREFIX_CHARACTERS_MAX} characters: take a shorter one")
