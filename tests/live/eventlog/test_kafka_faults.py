"""The log on Kafka while brokers die, hang and come back: nothing is lost, nothing doubled, all stays in order."""

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

from live.eventlog.conftest import OpenLogs, Stream, settings_of, wait_until
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.kafka.writer import CLOSE_S
from milepost.eventlog.log import WAITING_BYTES_MAX, WAITING_RECORDS_MAX, Done, Edge, Entry, LogRefused, LogUnavailable
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
    """One broker that may be broken, and is mended afterwards."""
    yield own
    own.resume()
    own.start()


def partition_of(kafka: Kafka, topic: str) -> PartitionMetadata:
    """The only one there is, with its leader and its copies."""
    found: list[PartitionMetadata] = []

    def is_known() -> bool:  # one broker hears of a topic later than another
        found[:] = admin.list_topics(topic, timeout=10).topics[topic].partitions.values()
        return bool(found)

    with AdminClient({"bootstrap.servers": kafka.address}) as admin:
        wait_until(is_known, "the topic is known")
    (partition,) = found
    return partition


def append_until_refused(log: KafkaLog, entries: list[Entry], done: Done) -> int:
    """How many appends were taken before one was not."""
    for taken in range(1_000):
        try:
            log.append(entries, done)
        except LogUnavailable:
            with pytest.raises(LogUnavailable, match=r"wait for Kafka at .* already .*: try again later"):
                log.append(entries, done)
            return taken
    pytest.fail("it takes any number")


def test_on_three_brokers_a_topic_has_three_copies_and_an_append_waits_for_two(three: Kafka, open_log: OpenLogs) -> None:
    told: list[Exception | None] = []
    open_log(three).append([Entry("copied", "k", b"v")], told.append)
    wait_until(lambda: told == [None], "all brokers have it")
    topic = open_log.prefix + "copied"
    assert sorted(partition_of(three, topic).replicas) == [1, 2, 3]
    assert settings_of(three, topic)["min.insync.replicas"] == "2"


def test_nothing_is_lost_or_doubled_when_the_leader_of_three_brokers_is_killed(three: Kafka, open_log: OpenLogs) -> None:
    # M9
    stream = Stream(open_log(three), open_log(three), rate=RATE)
    wait_until(lambda: len(stream.came) > RATE, "a second of records")
    leader = partition_of(three, open_log.prefix + stream.topic).leader
    three.kill(leader)
    killed_at = len(stream.came)
    wait_until(lambda: len(stream.came) > killed_at + 2 * RATE, "it goes on without the leader")
    stream.end()
    three.start(leader)
    stream.check()


def test_nothing_is_lost_or_doubled_when_the_leader_of_three_brokers_hangs(three: Kafka, open_log: OpenLogs) -> None:
    stream = Stream(open_log(three), open_log(three), rate=RATE)
    wait_until(lambda: len(stream.came) > RATE, "a second of records")
    leader = partition_of(three, open_log.prefix + stream.topic).leader
    three.pause(leader)
    paused_at = len(stream.came)
    try:
        wait_until(lambda: len(stream.came) > paused_at + 2 * RATE, "it goes on without the leader")
    finally:
        three.resume(leader)
    stream.end()
    stream.check()


def test_what_is_appended_while_the_cluster_hangs_for_20_s_comes_in_order_and_once(whole: Kafka, open_log: OpenLogs) -> None:
    writing = open_log(whole)
    stream = Stream(writing, open_log(whole), rate=RATE)
    wait_until(lambda: len(stream.came) > RATE, "a second of records")
    assert writing.trouble is None
    whole.pause()
    time.sleep(20)
    assert "Kafka at" in (writing.trouble or "")
    whole.resume()
    stream.end()
    stream.check()
    assert stream.longest_pause_s > 18
    assert writing.trouble is None


def test_what_is_appended_while_the_only_broker_is_killed_and_started_comes_in_order_and_once(
    whole: Kafka, open_log: OpenLogs
) -> None:
    stream = Stream(open_log(whole), open_log(whole), rate=RATE)
    wait_until(lambda: len(stream.came) > RATE, "a second of records")
    whole.kill()
    time.sleep(2)
    whole.start()
    stream.end()
    stream.check()


def test_a_broker_that_lost_what_it_had_confirmed_is_told_and_it_goes_on(
    whole: Kafka, open_log: OpenLogs, tmp_path: Path
) -> None:
    log = open_log(whole)
    came: list[object] = []
    log.follow({"lost": 0}, lambda records: came.extend(record.value for record in records), lambda gap: came.append(str(gap)))
    told: list[Exception | None] = []

    def append(*numbers: int) -> None:
        before = len(told)
        for number in numbers:
            log.append([Entry("lost", "k", b"%d" % number)], told.append)
        wait_until(lambda: len(told) == before + len(numbers), "told of all")

    append(0, 1)
    data = whole.folder / "1" / "data"
    whole.stop()
    shutil.copytree(data, tmp_path / "before")
    whole.start()
    append(2, 3)
    wait_until(lambda: len(came) == 4, "all came")
    assert told == [None] * 4
    whole.kill()
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "before", data)
    whole.start()
    wait_until(lambda: len(came) == 5, "the reader is told")
    assert came[4] == "lost: ends before 2, and 4 was to be read: what was there before is gone"
    append(4)
    assert isinstance(told[4], LogUnavailable)
    assert "has lost records that it had confirmed" in str(told[4])
    append(5)
    assert told[5] is None
    wait_until(lambda: came[5:] == [b"5"], "it goes on")


def test_a_log_can_be_opened_and_appended_to_before_the_cluster_is_there(whole: Kafka, open_log: OpenLogs) -> None:
    whole.kill()
    log = open_log(whole)
    told: list[Exception | None] = []
    for number in range(10):
        log.append([Entry("early", "key", b"%d" % number)], told.append)
    wait_until(lambda: log.trouble is not None, "trouble is told")
    assert "look whether they run" in (log.trouble or "")
    assert told == []
    whole.start()
    wait_until(lambda: len(told) == 10, "all is appended")
    assert told == [None] * 10
    assert [record.value for record in log.read("early", 0, 20)] == [b"%d" % number for number in range(10)]
    wait_until(lambda: log.trouble is None, "trouble has passed")


def test_what_needs_an_answer_says_that_there_is_none(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.make("there")
    whole.kill()
    questions: list[Callable[[], object]] = [
        lambda: log.ends("there"),
        lambda: log.follow({"there": Edge.END}, print, print),
        log.topics,
        lambda: log.make("other"),
    ]
    began = time.monotonic()
    with ThreadPoolExecutor(len(questions)) as pool:
        for asked in [pool.submit(question) for question in questions]:
            with pytest.raises(LogUnavailable, match=r"Kafka at .*look whether"):
                asked.result()
    assert time.monotonic() - began < 25


def test_trouble_passes_without_anybody_asking(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.follow({"quiet": Edge.END}, print, print)
    whole.kill()
    wait_until(lambda: log.trouble is not None, "trouble is told")
    whole.start()
    wait_until(lambda: log.trouble is None, "trouble has passed")


def test_more_than_can_wait_is_not_taken_and_all_that_was_taken_is_appended(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.make("much")
    whole.pause()
    told: list[Exception | None] = []
    taken = append_until_refused(log, [Entry("much", "k", b"v")] * 1_000, told.append)
    assert taken == WAITING_RECORDS_MAX // 1_000
    assert told == []
    whole.resume()
    wait_until(lambda: len(told) == taken, "all is appended")
    assert told == [None] * taken
    assert log.ends("much") == (0, 1_000 * taken)
    log.append([Entry("much", "k", b"")], told.append)
    wait_until(lambda: told == [None] * (taken + 1), "there is room again")


def test_what_waits_is_bounded_in_bytes_too(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.make("heavy")
    whole.pause()
    told: list[Exception | None] = []
    taken = append_until_refused(log, [Entry("heavy", "k", bytes(500_000))], told.append)
    assert taken == WAITING_BYTES_MAX // 500_001
    whole.resume()
    wait_until(lambda: len(told) == taken, "all is appended")
    assert log.ends("heavy") == (0, taken)


def test_closing_without_the_cluster_ends_in_time_and_tells_what_was_not_appended(whole: Kafka, open_log: OpenLogs) -> None:
    log = open_log(whole)
    log.follow({"lost": Edge.END}, print, print)
    log.join("group", ["lost"], print, print)
    told: list[Exception | None] = []
    log.append([Entry("lost", "k", b"")], told.append)
    wait_until(lambda: told == [None], "appended")
    whole.kill()
    log.append([Entry("lost", "k", b"")], told.append)
    log.append([Entry("new", "k", b"")], told.append)
    began = time.monotonic()
    log.close()
    assert time.monotonic() - began < CLOSE_S + 10
    assert len(told) == 3
    for fault in told[1:]:
        assert isinstance(fault, LogUnavailable)


JOINS = """
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


def test_when_a_member_is_killed_the_others_go_on_from_what_it_committed(kafka: Kafka, open_log: OpenLogs) -> None:
    log = open_log(kafka)
    came: list[bytes] = []
    log.append([Entry("work", "k", b"before")])
    with subprocess.Popen(
        [sys.executable, "-c", JOINS, kafka.address, open_log.prefix, "work"], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "work 1\n"
        wait_until(lambda: log.committed("group") == {"work": 1}, "it committed")
        other.send_signal(signal.SIGKILL)
    log.append([Entry("work", "k", b"after")])
    began = time.monotonic()
    log.join("group", ["work"], lambda records: came.extend(record.value or b"" for record in records), print)
    wait_until(lambda: bool(came), "another one takes over")
    assert time.monotonic() - began < 15
    assert came == [b"after"]


def test_another_prefix_sees_nothing(kafka: Kafka, open_log: OpenLogs) -> None:
    one, other = open_log(kafka, prefix="one."), open_log(kafka, prefix="other.")
    came: list[object] = []
    other.follow({"same": Edge.BEGINNING}, came.extend, print)
    told: list[Exception | None] = []
    one.append([Entry("same", "k", b"ours")], told.append)
    wait_until(lambda: told == [None], "appended")
    other.append([Entry("same", "k", b"theirs")])
    wait_until(lambda: bool(came), "what is its own comes")
    assert [record.value for record in one.read("same", 0, 10)] == [b"ours"]
    assert [record.value for record in other.read("same", 0, 10)] == [b"theirs"]
    assert one.topics() == other.topics() == ["same"]
    one.make("mine")
    assert other.ends("mine") == (0, 0)
    assert other.topics() == ["same"]


def test_a_setting_that_the_library_does_not_know_is_told() -> None:
    with pytest.raises(LogRefused, match="look at the address and the options"):
        KafkaLog("127.0.0.1:1", Durability.NOTHING, client_id="test", options={"no.such": "setting"})
