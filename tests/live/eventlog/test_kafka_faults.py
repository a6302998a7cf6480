"""The log on Kafka while brokers die, hang and come back: nothing is lost, duplicated or reordered."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, PartitionMetadata

from live.eventlog.conftest import NumberStream, OpenLogs, settings_of, wait_until
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.kafka.writer import CLOSE_S
from milepost.eventlog.log import WAITING_BYTES_MAX, WAITING_RECORDS_MAX, Done, Entry, LogRefused, LogUnavailable, TopicEnd
from milepost.model.durability import Durability
from milepost.runtime.services.kafka import Kafka, running_kafka

RATE = 2_000


@pytest.fixture(scope="module")
def three(need_java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Three brokers, all running."""
    with running_kafka(tmp_path_factory.mktemp("three"), brokers=3) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def own(need_java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker that may be broken."""
    with running_kafka(tmp_path_factory.mktemp("own")) as kafka:
        yield kafka


@pytest.fixture
def whole(own: Kafka) -> Iterator[Kafka]:
    """One broker that may be broken, and is repaired afterwards."""
    yield own
    own.resume()
    own.start()


def partition_of(kafka: Kafka, topic: str) -> PartitionMetadata:
    """Return the only partition of a topic, with its leader and replicas."""
    found: list[PartitionMetadata] = []

    def is_known() -> bool:  # one broker learns of a topic later than another
        found[:] = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
        return bool(found)

    with AdminClient({"bootstrap.servers": kafka.address}) as admin:
        wait_until(is_known, "the topic is known")
    (partition,) = found
    return partition


def append_until_refused(log: KafkaLog, entries: list[Entry], done: Done) -> int:
    """Append until an append is refused; return the number of accepted ones."""
    for accepted in range(1_000):
        try:
            log.append(entries, done)
        except LogUnavailable:
            with pytest.raises(LogUnavailable, match=r"wait for Kafka at .* already .*: try again later"):
                log.append(entries, done)
            return accepted
    pytest.fail("it takes any number")


def test_on_three_brokers_a_topic_has_three_replicas_and_an_append_waits_for_two(three: Kafka, open_log: OpenLogs) -> None:
    confirmations: list[Exception | None] = []
    open_log(three).append([Entry("copied", "k", b"v")], confirmations.append)
    wait_until(lambda: confirmations == [None], "all brokers have it")
    topic = open_log.prefix + "copied"
    assert sorted(partition_of(three, topic).replicas) == [1, 2, 3]
    assert settings_of(three, topic)["min.insync.replicas"] == "2"


def test_nothing_is_lost_or_duplicated_when_the_leader_of_three_brokers_is_killed(three: Kafka, open_log: OpenLogs) -> None:
    # M9
    stream = NumberStream(open_log(three), open_log(three), rate=RATE)
    wait_until(lambda: len(stream.received) > RATE, "a second of records")
    leader = partition_of(three, open_log.prefix + stream.topic).leader
    three.kill(leader)
    killed_at = len(stream.received)
    wait_until(lambda: len(stream.received) > killed_at + 2 * RATE, "records continue without the leader")
    stream.end()
    three.start(leader)
    stream.check()


def test_nothing_is_lost_or_duplicated_when_the_leader_of_three_brokers_hangs(three: Kafka, open_log: OpenLogs) -> None:
    stream = NumberStream(open_log(three), open_log(three), rate=RATE)
    wait_until(lambda: len(stream.received) > RATE, "a second of records")
    leader = partition_of(three, open_log.prefix + stream.topic).leader
    three.pause(leader)
    paused_at = len(stream.received)
    try:
        wait_until(lambda: len(stream.received) > paused_at + 2 * RATE, "records continue without the leader")
    finally:
        three.resume(leader)
    stream.end()
    stream.check()


def test_records_appended_while_the_cluster_hangs_for_20_s_arrive_in_order_and_once(whole: Kafka, open_log: OpenLogs) -> None:
    writing = open_log(whole)
    stream = NumberStream(writing, open_log(whole), rate=RATE)
    wait_until(lambda: len(stream.received) > RATE, "a second of records")
    assert writing.fault is None
    whole.pause()
    time.sleep(20)
    assert "Kafka at" in (writing.fault or "")
    whole.resume()
    stream.end()
    stream.check()
    assert stream.longest_pause_s > 18
    assert writing.fault is None


def test_records_appended_while_the_only_broker_restarts_arrive_in_order_and_once(whole: Kafka, open_log: OpenLogs) -> None:
    stream = NumberStream(open_log(whole), open_log(whole), rate=RATE)
    wait_until(lambda: len(stream.received) > RATE, "a second of records")
    whole.kill()
    time.sleep(2)
    whole.start()
    stream.end()
    stream.check()


def test_a_broker_that_lost_confirmed_records_is_reported_and_the_log_recovers(
    whole: Kafka, open_log: OpenLogs, tmp_path: Path
) -> None:
    log = open_log(whole)
    received: list[object] = []
    log.follow(
        {"lost": 0}, lambda records: received.extend(record.value for record in records), lambda gap: received.append(str(gap))
    )
    confirmations: list[Exception | None] = []

    def append(*numbers: int) -> None:
        before = len(confirmations)
        for number in numbers:
            log.append([Entry("lost", "k", b"%d" % number)], confirmations.append)
        wait_until(lambda: len(confirmations) == before + len(numbers), "all confirmed")

    append(0, 1)
    data = whole.folder / "1" / "data"
    whole.stop()
    shutil.copytree(data, tmp_path / "before")
    whole.start()
    append(2, 3)
    wait_until(lambda: len(received) == 4, "all received")
    assert confirmations == [None] * 4
    whole.kill()
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "before", data)
    whole.start()
    wait_until(lambda: len(received) == 5, "the reader gets the gap")
    assert received[4] == "lost: offset 4 is beyond its end, 2: the records that were there are gone"
    append(4)
    assert isinstance(confirmations[4], LogUnavailable)
    assert "has lost records that it had confirmed" in str(confirmations[4])
    append(5)
    assert confirmations[5] is None
    wait_until(lambda: received[5:] == [b"5"], "reading continues")


def test_a_log_can_be_opened_and_appended_to_before_the_cluster_is_up(whole: Kafka, open_log: OpenLogs) -> None:
    whole.kill()
    log = open_log(whole)
    confirmations: list[Exception | None] = []
    for number in range(10):
        log.append([Entry("early", "key", b"%d" % number)], confirmations.append)
    wait_until(lambda: log.fault is not None, "the fault is reported")
    assert "check that they run" in (log.fault or "")
    assert confirmations == []
    whole.start()
    wait_until(lambda: len(confirmations) == 10, "all appends are confirmed")
    assert confirmations == [None] * 10
    assert [record.value for record in log.read("early", 0, 20)] == [b"%d" % number for number in range(10)]
    wait_until(lambda: log.fault is None, "the fault is cleared")


def test_requests_to_an_unreachable_cluster_raise(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.make("there")
    whole.kill()
    questions: list[Callable[[], object]] = [
        lambda: log.ends("there"),
        lambda: log.follow({"there": TopicEnd.END}, print, print),
        log.topics,
        lambda: log.make("other"),
    ]
    began = time.monotonic()
    with ThreadPoolExecutor(len(questions)) as pool:
        for asked in [pool.submit(question) for question in questions]:
            with pytest.raises(LogUnavailable, match=r"Kafka at .*check that"):
                asked.result()
    assert time.monotonic() - began < 25


def test_a_fault_is_cleared_without_any_request(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.follow({"quiet": TopicEnd.END}, print, print)
    whole.kill()
    wait_until(lambda: log.fault is not None, "the fault is reported")
    whole.start()
    wait_until(lambda: log.fault is None, "the fault is cleared")


def test_appends_beyond_the_queue_limit_are_refused_and_all_accepted_ones_are_appended(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.make("much")
    whole.pause()
    confirmations: list[Exception | None] = []
    accepted = append_until_refused(log, [Entry("much", "k", b"v")] * 1_000, confirmations.append)
    assert accepted == WAITING_RECORDS_MAX // 1_000
    assert confirmations == []
    whole.resume()
    wait_until(lambda: len(confirmations) == accepted, "all appends are confirmed")
    assert confirmations == [None] * accepted
    assert log.ends("much") == (0, 1_000 * accepted)
    log.append([Entry("much", "k", b"")], confirmations.append)
    wait_until(lambda: confirmations == [None] * (accepted + 1), "there is room again")


def test_the_append_queue_is_also_limited_in_bytes(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.make("heavy")
    whole.pause()
    confirmations: list[Exception | None] = []
    accepted = append_until_refused(log, [Entry("heavy", "k", bytes(500_000))], confirmations.append)
    assert accepted == WAITING_BYTES_MAX // 500_001
    whole.resume()
    wait_until(lambda: len(confirmations) == accepted, "all appends are confirmed")
    assert log.ends("heavy") == (0, accepted)


def test_closing_without_the_cluster_ends_in_time_and_fails_unconfirmed_appends(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.follow({"lost": TopicEnd.END}, print, print)
    log.join("group", ["lost"], print, print)
    confirmations: list[Exception | None] = []
    log.append([Entry("lost", "k", b"")], confirmations.append)
    wait_until(lambda: confirmations == [None], "appended")
    whole.kill()
    log.append([Entry("lost", "k", b"")], confirmations.append)
    log.append([Entry("new", "k", b"")], confirmations.append)
    began = time.monotonic()
    log.close()
    assert time.monotonic() - began < CLOSE_S + 10
    assert len(confirmations) == 3
    for fault in confirmations[1:]:
        assert isinstance(fault, LogUnavailable)


JOINING_PROCESS = """
import sys, time
from milepost.eventlog.kafka import KafkaLog
from milepost.model.durability import Durability
address, prefix, *topics = sys.argv[1:]
log = KafkaLog(address, Durability.PROCESS_CRASH, client_id="other", prefix=prefix)
member = []
def take(records):
    while not member:
        time.sleep(0.001)
    member[0].commit(records[0].topic, records[-1].offset + 1)
    print(records[0].topic, len(records), flush=True)
member.append(log.join("group", topics, take, print))
time.sleep(600)
"""


def test_when_a_member_is_killed_the_others_resume_from_its_committed_offsets(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    received: list[bytes] = []
    log.append([Entry("work", "k", b"before")])
    with subprocess.Popen(
        [sys.executable, "-c", JOINING_PROCESS, kafka.address, open_log.prefix, "work"], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "work 1\n"
        wait_until(lambda: log.committed("group") == {"work": 1}, "it committed")
        other.send_signal(signal.SIGKILL)
    log.append([Entry("work", "k", b"after")])
    began = time.monotonic()
    log.join("group", ["work"], lambda records: received.extend(record.value or b"" for record in records), print)
    wait_until(lambda: bool(received), "another member takes over")
    assert time.monotonic() - began < 15
    assert received == [b"after"]


def test_topics_of_another_prefix_are_invisible(kafka: Kafka, open_log: OpenLogs) -> None:
    one, other = open_log(kafka, prefix="one."), open_log(kafka, prefix="other.")
    received: list[object] = []
    other.follow({"same": TopicEnd.BEGINNING}, received.extend, print)
    confirmations: list[Exception | None] = []
    one.append([Entry("same", "k", b"ours")], confirmations.append)
    wait_until(lambda: confirmations == [None], "appended")
    other.append([Entry("same", "k", b"theirs")])
    wait_until(lambda: bool(received), "its own records are read")
    assert [record.value for record in one.read("same", 0, 10)] == [b"ours"]
    assert [record.value for record in other.read("same", 0, 10)] == [b"theirs"]
    assert one.topics() == other.topics() == ["same"]
    one.make("mine")
    assert other.ends("mine") == (0, 0)
    assert other.topics() == ["same"]


def test_an_unknown_library_setting_is_reported() -> None:
    with pytest.raises(LogRefused, match="check the address and the options"):
        KafkaLog("127.0.0.1:1", Durability.NONE, client_id="test", options={"no.such": "setting"})
