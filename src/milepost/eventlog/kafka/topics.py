"""Topics of a cluster: list, create, change settings; map names to their prefixed form in the cluster and back.

Invariant: a topic is used only if it has exactly one partition. A topic is one total order, and a position in it is an offset
without a partition: of a topic with several, records would be missed, repeated, or read in another order than they were written.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from time import monotonic, sleep
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from milepost.eventlog.kafka.errors import ClusterFault, error_in, fault_of
from milepost.eventlog.kafka.settings import COPIES_MAX, new_topic_settings, topic_settings
from milepost.eventlog.log import LogRefused, LogUnavailable, TopicSettings, check_topic_name
from milepost.model.durability import Durability

REQUEST_TIMEOUT_S: Final = 10.0
"""Timeout of a request to the cluster."""

_INTERNAL: Final = "__"
_LOOK_S: Final = 0.01


T = TypeVar("T")


class TopicAdmin:
    """The topics whose names begin with a prefix; callers use names without it."""

    def __init__(
        self, admin: AdminClient, address: str, prefix: str, durability: Durability, cluster_fault: ClusterFault
    ) -> None:
        self._admin = admin
        self._address = address
        self._prefix = prefix
        self._durability = durability
        self._cluster_fault = cluster_fault
        self._lock = threading.Lock()
        self.known: set[str] = set()
        """Names, without the prefix, of topics known to exist at the last lookup."""

    def on_wire(self, name: str) -> str:
        """Return the name in the cluster."""
        return self._prefix + name

    def off_wire(self, name: str) -> str:
        """Return the name without the prefix."""
        return name[len(self._prefix) :]

    def names(self) -> list[str]:
        """Return all topics, sorted, without Kafka's internal ones and those of other prefixes."""
        found = self._metadata()[0]
        is_ours = (self.off_wire(name) for name in found if name.startswith(self._prefix) and not name.startswith(_INTERNAL))
        return sorted(is_ours)

    def ensure(self, names: Iterable[str]) -> None:
        """Create the missing topics, with default settings."""
        needed = [name for name in names if name not in self.known]
        if not needed:
            return
        for name in needed:
            check_topic_name(name)
        found, brokers = self._metadata()
        self._check_partitions(needed, found)
        missing = [name for name in needed if self.on_wire(name) not in found]
        self._create({name: TopicSettings() for name in missing}, brokers)
        self._note(needed)

    def make(self, name: str, settings: TopicSettings | None) -> None:
        """Create a topic or change its settings."""
        if settings is None:
            self.ensure([name])
            return
        check_topic_name(name)
        found, brokers = self._metadata()
        self._check_partitions([name], found)
        is_new = self.on_wire(name) not in found and bool(self._create({name: settings}, brokers))
        if not is_new:
            self._change(name, settings)
        self._note([name])

    def forget(self) -> None:
        """Clear the cache of known topics: one seems to be deleted."""
        with self._lock:
            self.known = set()

    def is_there(self, name: str) -> bool:
        """Whether the topic exists."""
        check_topic_name(name)
        if name not in self.known:
            found = self._metadata()[0]
            self._check_partitions([name], found)
            if self.on_wire(name) in found:
                self._note([name])
        return name in self.known

    def check_available(self) -> None:
        """Check that the cluster answers; raises `LogUnavailable` otherwise."""
        self._metadata()

    def _note(self, names: Iterable[str]) -> None:
        with self._lock:
            self.known = self.known.union(names)

    def _metadata(self) -> tuple[dict[str, int], int]:
        """Return all topics in the cluster with their numbers of partitions, and the number of brokers."""
        found = self.call(lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S))
        return {name: len(topic.partitions) for name, topic in found.topics.items()}, len(found.brokers)

    def _check_partitions(self, names: Iterable[str], found: Mapping[str, int]) -> None:
        """Refuse topics that somebody else has created with several partitions."""
        several = {wire_name: found[wire_name] for wire_name in map(self.on_wire, names) if found.get(wire_name, 1) > 1}
        if several:
            listed = ", ".join(f"{wire_name} has {count} partitions" for wire_name, count in several.items())
            raise LogRefused(
                f"Kafka at {self._address}: {listed}; a topic of a site must have exactly one, because it is one total order:"
                " move its records to a topic with one partition; or delete it, and it is created again; or set another [site]"
                " prefix"
            )

    def _create(self, settings: Mapping[str, TopicSettings], brokers: int) -> set[str]:
        """Create topics; return the names of those that no other client created meanwhile."""
        if not settings:
            return set()
        copies = max(1, min(COPIES_MAX, brokers))
        new = [
            NewTopic(
                self.on_wire(name),
                num_partitions=1,
                replication_factor=copies,
                config=new_topic_settings(needed, self._durability, copies),
            )
            for name, needed in settings.items()
        ]
        futures: dict[str, Future[Any]] = self._admin.create_topics(
            new, request_timeout=REQUEST_TIMEOUT_S, operation_timeout=REQUEST_TIMEOUT_S
        )
        made = set()
        for name, future in futures.items():
            try:
                self.call(future.result)
                made.add(self.off_wire(name))
            except _AlreadyThere:
                continue
        self._wait_there(set(futures))
        return made

    def _wait_there(self, wire_names: set[str]) -> None:
        """Wait until the queried broker knows the new topics, which the controller knows already."""
        give_up_at = monotonic() + REQUEST_TIMEOUT_S
        while not wire_names <= self._metadata()[0].keys():
            if monotonic() > give_up_at:
                raise LogUnavailable(
                    f"Kafka at {self._address} has created {', '.join(sorted(wire_names))}, but does not list it yet"
                )
            sleep(_LOOK_S)

    def _change(self, name: str, settings: TopicSettings) -> None:
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in topic_settings(settings).items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.on_wire(name), incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_S).values():
            self.call(future.result)

    def call(self, request: Callable[[], T]) -> T:
        """Return the result of *request*; translate Kafka's errors into the log's."""
        try:
            result = request()
        except KafkaException as fault:
            error = error_in(fault)
            if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise _AlreadyThere(error.str()) from None
            meaning = fault_of(error, self._address)
            if isinstance(meaning, LogUnavailable):
                self._cluster_fault.note_fault(meaning)
            raise meaning from None
        self._cluster_fault.clear()
        return result


class _AlreadyThere(Exception):
    """Another client has created the topic meanwhile."""
