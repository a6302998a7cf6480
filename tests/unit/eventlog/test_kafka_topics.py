"""Topics of a Kafka cluster that somebody else has created."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient

from milepost.eventlog.kafka.errors import ClusterFault
from milepost.eventlog.kafka.topics import TopicAdmin
from milepost.eventlog.log import LogRefused, TopicSettings
from milepost.model.durability import Durability

ADDRESS = "kafka:9092"


class ListedTopics:
    """An `AdminClient` that lists topics with these numbers of partitions, and can do nothing else."""

    def __init__(self, **partitions: int) -> None:
        self._topics = {name: SimpleNamespace(partitions=dict.fromkeys(range(count))) for name, count in partitions.items()}

    def list_topics(self, timeout: float) -> Any:
        del timeout
        return SimpleNamespace(topics=self._topics, brokers={1: None})


def admin_of(**partitions: int) -> TopicAdmin:
    client = cast("AdminClient", ListedTopics(**partitions))
    return TopicAdmin(client, ADDRESS, "p_", Durability.PROCESS_CRASH, ClusterFault(ADDRESS))


def test_a_topic_with_several_partitions_is_refused_by_name_number_and_remedy() -> None:
    admin = admin_of(p_reports=3, p_cells=1, p_deliveries=2, other=8)
    expected = "p_reports has 3 partitions, p_deliveries has 2 partitions; .* exactly one.* move its records"
    with pytest.raises(LogRefused, match=expected):
        admin.ensure(["reports", "cells", "deliveries"])
    for use in (admin.is_there, lambda name: admin.make(name, None), lambda name: admin.make(name, TopicSettings())):
        with pytest.raises(LogRefused, match="p_reports has 3 partitions"):
            use("reports")
    assert admin.known == set()


def test_topics_with_one_partition_are_used_whatever_others_have() -> None:
    admin = admin_of(p_reports=1, other=8)
    admin.ensure(["reports"])
    assert admin.is_there("reports")
    assert not admin.is_there("missing")
