"""Topics that an operator has made with several partitions: refused at the start, and never read in part."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql import SparkSession

from live.pipelines.drivers import driver
from live.pipelines.logs import SiteLog, kafka_site, wait_until
from milepost.eventlog.log import Entry, LogRefused, TopicEnd
from milepost.pipelines.records import REPORTS_TOPIC
from milepost.pipelines.sources.kafka import KafkaSource
from milepost.runtime.services.kafka import Kafka


def wire_name(site: SiteLog, topic: str) -> str:
    return site.source.prefix + topic


def make_partitions(kafka: Kafka, name: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.address})
    is_new = name not in admin.list_topics(timeout=10).topics
    made = admin.create_topics([NewTopic(name, count, 1)]) if is_new else admin.create_partitions([NewPartitions(name, count)])
    made[name].result()

    def is_listed() -> bool:
        topic = admin.list_topics(timeout=10).topics.get(name)
        return topic is not None and len(topic.partitions) == count

    wait_until(is_listed, "the partitions are listed")


def test_the_log_refuses_a_topic_with_several_partitions(kafka: Kafka) -> None:
    site = kafka_site(kafka)
    make_partitions(kafka, wire_name(site, "reports"), 3)
    outcome: list[Exception | None] = []
    site.log.append([Entry("reports", "e", b"{}")], outcome.append)
    wait_until(lambda: outcome, "the append has ended")
    assert isinstance(outcome[0], LogRefused)
    for use in (
        lambda: site.log.make("reports"),
        lambda: site.log.ends("reports"),
        lambda: site.log.follow({"reports": TopicEnd.BEGINNING}, print, print),
        lambda: site.log.join("group", ["reports"], print, print),
    ):
        with pytest.raises(LogRefused, match="reports has 3 partitions"):
            use()
    site.log.append([Entry("cells", "e", b"{}")], outcome.append)
    wait_until(lambda: len(outcome) == 2, "another topic is appended to")
    assert outcome[1] is None
    site.log.close()


@pytest.mark.parametrize("names", [("pipeline", "run", "archive"), ("incidents", "run")], ids=["pipeline", "incidents"])
def test_a_process_refuses_to_start_and_names_the_topic(kafka: Kafka, tmp_path: Path, names: tuple[str, ...]) -> None:
    site = kafka_site(kafka)
    make_partitions(kafka, wire_name(site, "cells"), 2)
    with driver(site, tmp_path, command=names) as process:
        process.start(is_ready=False)
        assert process.ended() == 1
        assert f"{wire_name(site, 'cells')} has 2 partitions" in process.logged
        assert "Traceback" not in process.logged
    site.log.close()


def test_partitions_added_while_a_pipeline_runs_are_not_read(spark: SparkSession, kafka: Kafka) -> None:
    site = kafka_site(kafka)
    assert isinstance(site.source, KafkaSource)
    site.log.make(REPORTS_TOPIC)
    site.append([Entry(REPORTS_TOPIC, "e", b"0")])
    make_partitions(kafka, wire_name(site, REPORTS_TOPIC), 2)
    producer = Producer({"bootstrap.servers": kafka.address})
    producer.produce(wire_name(site, REPORTS_TOPIC), b"1", partition=1)
    assert producer.flush(30) == 0
    site.append([Entry(REPORTS_TOPIC, "e", b"2")])
    rows = site.source.table(spark, [REPORTS_TOPIC]).collect()
    assert [(row.value, row.offset) for row in sorted(rows, key=lambda row: row.offset)] == [("0", 0), ("2", 1)]
    site.log.close()
