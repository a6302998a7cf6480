"""The settings of Kafka topics, by retention and durability, and of Kafka clients."""

import pytest

from milepost.eventlog.kafka.settings import KafkaClientSettings, new_topic_settings, topic_settings
from milepost.eventlog.log import TopicSettings
from milepost.model.durability import Durability

DAY_MS = 86_400_000
CLIENT = KafkaClientSettings("127.0.0.1:9092", "edge-3", {})


def unheard(_: object) -> None:
    """For what the library would say."""


def test_the_default_retention_is_a_week() -> None:
    found = topic_settings(TopicSettings())
    assert (found["cleanup.policy"], found["retention.ms"], found["retention.bytes"]) == ("delete", str(7 * DAY_MS), "-1")


def test_zero_means_no_limit_of_age_and_size() -> None:
    found = topic_settings(TopicSettings(retention_s=0, retention_bytes=0))
    assert (found["retention.ms"], found["retention.bytes"]) == ("-1", "-1")


@pytest.mark.parametrize(
    ("age_s", "segment_ms"), [(1, 1_000), (80, 10_000), (7 * 86_400, 7 * DAY_MS // 8), (365 * 86_400, DAY_MS)]
)
def test_a_segment_is_an_eighth_of_the_retention_time_within_bounds(age_s: int, segment_ms: int) -> None:
    assert topic_settings(TopicSettings(retention_s=age_s))["segment.ms"] == str(segment_ms)


@pytest.mark.parametrize(("size", "segment"), [(1_000, 2**20), (80 * 2**20, 10 * 2**20), (2**40, 2**28)])
def test_a_segment_is_an_eighth_of_the_retention_bytes_within_bounds(size: int, segment: int) -> None:
    found = topic_settings(TopicSettings(retention_bytes=size))
    assert (found["retention.bytes"], found["segment.bytes"]) == (str(size), str(segment))


def test_a_compacted_topic_has_no_limit_of_age_or_size() -> None:
    found = topic_settings(TopicSettings(retention_s=60, retention_bytes=1_000, is_compacted=True))
    assert (found["cleanup.policy"], found["retention.ms"], found["retention.bytes"]) == ("compact", "-1", "-1")


@pytest.mark.parametrize(
    ("durability", "copies", "least", "flush"),
    [
        (Durability.NONE, 3, None, None),
        (Durability.PROCESS_CRASH, 1, "1", None),
        (Durability.PROCESS_CRASH, 2, "1", None),
        (Durability.PROCESS_CRASH, 3, "2", None),
        (Durability.POWER_LOSS, 3, "2", "1"),
    ],
)
def test_durability_decides_how_many_replicas_an_append_waits_for(
    durability: Durability, copies: int, least: str | None, flush: str | None
) -> None:
    found = new_topic_settings(TopicSettings(), durability, copies)
    assert (found.get("min.insync.replicas"), found.get("flush.messages")) == (least, flush)


def test_timestamps_are_the_brokers() -> None:
    assert new_topic_settings(TopicSettings(), Durability.NONE, 1)["message.timestamp.type"] == "LogAppendTime"


def test_an_append_is_retried_for_ever_in_order_without_duplicates() -> None:
    found = CLIENT.producer_settings(unheard)
    assert (found["enable.idempotence"], found["acks"], found["message.timeout.ms"]) == (True, "all", 0)


def test_no_reader_resets_its_offset_or_commits_by_itself() -> None:
    for found in (
        CLIENT.reader_settings(unheard),
        CLIENT.lookup_settings(unheard),
        CLIENT.member_settings("group", unheard, lambda *_: None),
    ):
        assert (found["auto.offset.reset"], found["enable.auto.commit"]) == ("error", False)
        assert found["allow.auto.create.topics"] is False


def test_a_member_has_the_group_id_of_its_group_and_a_reader_its_own() -> None:
    assert CLIENT.member_settings("group", unheard, lambda *_: None)["group.id"] == "group"
    assert CLIENT.reader_settings(unheard)["group.id"] == "edge-3.reader"


def test_the_users_options_apply_to_all_clients() -> None:
    client = KafkaClientSettings("host:9093", "edge-3", {"security.protocol": "SSL", "socket.timeout.ms": "60000"})
    for found in (client.settings(unheard), client.producer_settings(unheard), client.reader_settings(unheard)):
        assert (found["security.protocol"], found["socket.timeout.ms"]) == ("SSL", "60000")
        assert (found["bootstrap.servers"], found["client.id"]) == ("host:9093", "edge-3")
