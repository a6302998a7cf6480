"""Retention and compaction of a log on Kafka, topic settings, and reported gaps."""

import threading
from collections.abc import Sequence

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from live.eventlog.conftest import OpenLogs, settings_of, wait_until
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Entry, LogLost, LogUnavailable, Record, TopicEnd, TopicSettings
from milepost.model.durability import Durability
from milepost.runtime.services.kafka import Kafka

NAME = "retained"


def appended(log: KafkaLog, *entries: Entry) -> None:
    confirmations: list[Exception | None] = []
    log.append(entries, confirmations.append)
    wait_until(lambda: bool(confirmations), "appended")
    assert confirmations == [None]


def numbered(start: int, end: int) -> list[Entry]:
    return [Entry(NAME, "key", b"%d" % number) for number in range(start, end)]


def forget_before(kafka: Kafka, topic: str, offset: int) -> None:
    """Remove records at once, as retention would."""
    with AdminClient({"bootstrap.servers": kafka.address}) as admin:
        (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        future.result()


def values(records: Sequence[Record]) -> list[int]:
    return [int(record.value or b"") for record in records]


def test_a_topic_is_created_with_its_settings_and_changed_on_request(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    log.make(NAME, TopicSettings(retention_s=3_600, retention_bytes=10_000_000))
    found = settings_of(kafka, open_log.prefix + NAME)
    assert (found["cleanup.policy"], found["retention.ms"], found["retention.bytes"]) == ("delete", "3600000", "10000000")
    assert found["message.timestamp.type"] == "LogAppendTime"
    log.make(NAME)
    assert settings_of(kafka, open_log.prefix + NAME) == found
    log.make(NAME, TopicSettings(is_compacted=True))
    wait_until(lambda: settings_of(kafka, open_log.prefix + NAME)["cleanup.policy"] == "compact", "changed")
    found = settings_of(kafka, open_log.prefix + NAME)
    assert (found["retention.ms"], found["retention.bytes"]) == ("-1", "-1")


@pytest.mark.parametrize(("durability", "is_flushed"), [(Durability.PROCESS_CRASH, False), (Durability.POWER_LOSS, True)])
def test_a_broker_syncs_to_disk_with_durability_power_loss(
    kafka: Kafka, open_log: OpenLogs, durability: Durability, is_flushed: bool
) -> None:
    open_log(kafka, durability=durability).make(NAME)
    assert (settings_of(kafka, open_log.prefix + NAME)["flush.messages"] == "1") == is_flushed


def test_compaction_leaves_the_last_record_of_each_key_and_causes_no_gap(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    log.make(NAME, TopicSettings(is_compacted=True))
    short = [
        ConfigEntry("segment.ms", "50", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("min.cleanable.dirty.ratio", "0.001", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("min.compaction.lag.ms", "0", incremental_operation=AlterConfigOpType.SET),
    ]
    resource = ConfigResource(ResourceType.TOPIC, open_log.prefix + NAME, incremental_configs=short)
    with AdminClient({"bootstrap.servers": kafka.address}) as admin:
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result()
    for number in range(100):
        appended(log, Entry(NAME, f"k{number % 10}", b"%d" % number))

    def stored() -> list[int]:
        appended(log, Entry(NAME, "poke", b"-1"))
        return [number for number in values(log.read(NAME, 0, 10_000)) if number >= 0]

    wait_until(lambda: len(stored()) == 10, "compacted")
    assert stored() == list(range(90, 100))
    received: list[int] = []
    gaps: list[LogLost] = []
    log.follow({NAME: 5}, lambda records: received.extend(values(records)), gaps.append)
    wait_until(lambda: len([number for number in received if number >= 0]) >= 10, "followed over the gaps")
    assert [number for number in received if number >= 0] == list(range(90, 100))
    assert gaps == []


def test_a_reader_of_removed_records_gets_the_gap_first(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    appended(log, *numbered(0, 20))
    forget_before(kafka, open_log.prefix + NAME, 10)
    with pytest.raises(LogLost, match=f"{NAME}: records 3 to 9 are gone"):
        log.read(NAME, 3, 100)
    assert log.ends(NAME) == (10, 20)
    order: list[object] = []
    log.follow({NAME: 3}, lambda records: order.extend(values(records)), lambda gap: order.append(str(gap)))
    wait_until(lambda: len(order) >= 11, "the gap and the rest")
    assert order == [f"{NAME}: records 3 to 9 are gone, removed by its retention", *range(10, 20)]
    others: list[object] = []
    log.follow({NAME: TopicEnd.BEGINNING}, lambda records: others.extend(values(records)), others.append)
    wait_until(lambda: len(others) >= 10, "from the beginning there is no gap")
    assert others == list(range(10, 20))


def test_a_reader_overtaken_by_retention_gets_a_gap(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    order: list[object] = []
    may_go_on, large = threading.Event(), bytes(400_000)

    def on_records(records: Sequence[Record]) -> None:
        order.extend(values([record for record in records if record.value != large]))
        may_go_on.wait(30)

    appended(log, *numbered(0, 1))
    log.follow({NAME: 0}, on_records, lambda gap: order.append(str(gap)))
    wait_until(lambda: order == [0], "the first, which keeps the reader busy")
    for _ in range(100):  # more than the library reads ahead
        appended(log, Entry(NAME, "key", large))
    appended(log, *numbered(101, 103))
    forget_before(kafka, open_log.prefix + NAME, 101)
    may_go_on.set()
    wait_until(lambda: 102 in order, "reading continues")
    (gap,) = [one for one in order if isinstance(one, str)]
    assert gap.startswith(f"{NAME}: records ")
    assert gap.endswith(" to 100 are gone, removed by its retention")
    assert order[-2:] == [101, 102]


def test_a_group_that_was_away_too_long_gets_a_gap(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    appended(log, *numbered(0, 4))
    first = log.join("group", [NAME], lambda records: first.commit(NAME, records[-1].offset + 1), print)
    wait_until(lambda: log.committed("group") == {NAME: 4}, "committed")
    first.close()
    appended(log, *numbered(4, 12))
    forget_before(kafka, open_log.prefix + NAME, 10)
    order: list[object] = []
    log.join("group", [NAME], lambda records: order.extend(values(records)), lambda gap: order.append(str(gap)))
    wait_until(lambda: len(order) >= 3, "the gap and the rest")
    assert order == [f"{NAME}: records 4 to 9 are gone, removed by its retention", 10, 11]


def test_a_deleted_topic_is_reported_and_created_again(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    appended(log, *numbered(0, 3))
    with AdminClient({"bootstrap.servers": kafka.address}) as admin:
        (future,) = admin.delete_topics([open_log.prefix + NAME]).values()
        future.result()
    confirmations: list[Exception | None] = []
    log.append(numbered(3, 4), confirmations.append)
    wait_until(lambda: bool(confirmations), "the fault is reported")
    assert isinstance(confirmations[0], LogUnavailable)
    assert "the topic was deleted" in str(confirmations[0])
    attempts: list[Exception | None] = []

    def is_appended() -> bool:
        log.append(numbered(4, 5), attempts.append)
        return None in attempts

    wait_until(is_appended, "later appends are accepted")
    assert set(values(log.read(NAME, 0, 1_000))) == {4}


def test_done_may_close_the_log(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    confirmations: list[Exception | None] = []

    def close(fault: Exception | None) -> None:
        log.close()
        confirmations.append(fault)

    log.append(numbered(0, 1), close)
    wait_until(lambda: confirmations == [None], "closed")


def test_appends_wait_in_order_while_a_topic_is_created(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    appended(log, *numbered(0, 1))
    confirmations: list[Exception | None] = []
    for number in range(1, 20):
        log.append([Entry(f"new-{number}", "key", b""), *numbered(number, number + 1)], confirmations.append)
        log.append(numbered(100 + number, 101 + number), confirmations.append)
    wait_until(lambda: len(confirmations) == 38, "all appends are confirmed")
    assert confirmations == [None] * 38
    in_turn = [number for turn in range(1, 20) for number in (turn, 100 + turn)]
    assert values(log.read(NAME, 0, 100)) == [0, *in_turn]


def test_closing_a_reader_waits_for_its_running_callback(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    appended(log, *numbered(0, 1))
    is_taking, may_end = threading.Event(), threading.Event()
    order: list[str] = []

    def on_records(_: Sequence[Record]) -> None:
        is_taking.set()
        may_end.wait(30)
        order.append("received")

    following = log.follow({NAME: 0}, on_records, print)
    assert is_taking.wait(30)
    threading.Timer(0.3, may_end.set).start()
    following.close()
    order.append("closed")
    assert order == ["received", "closed"]


def test_a_callback_may_close_its_own_reader(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    order: list[str] = []

    def on_records(_: Sequence[Record]) -> None:
        following.close()
        order.append("closed")

    following = log.follow({NAME: 0}, on_records, print)
    appended(log, *numbered(0, 1))
    wait_until(lambda: order == ["closed"], "closed")
    appended(log, *numbered(1, 2))
    following.close()
    assert order == ["closed"]
