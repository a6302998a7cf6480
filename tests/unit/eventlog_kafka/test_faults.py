"""Kafka's errors as faults of the log, and trouble."""

import pytest
from confluent_kafka import KafkaError

from milepost.eventlog.kafka.errors import Trouble, fault_of
from milepost.eventlog.log import LogRefused, LogUnavailable, maybe_gap

ADDRESS = "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "give this client the right"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "max.message.bytes"),
        (KafkaError.POLICY_VIOLATION, "by hand"),
        (KafkaError.TOPIC_EXCEPTION, "choose another"),
    ],
)
def test_what_will_never_work_is_refused_with_what_to_do(code: int, advice: str) -> None:
    fault = fault_of(KafkaError(code), ADDRESS)
    assert isinstance(fault, LogRefused)
    assert ADDRESS in str(fault)
    assert advice in str(fault)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError._ALL_BROKERS_DOWN, "look whether they run"),
        (KafkaError._TIMED_OUT, "network"),
        (KafkaError.NOT_ENOUGH_REPLICAS, "start those that are down"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "password"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "deleted"),
        (KafkaError.UNKNOWN, "tried again"),
    ],
)
def test_what_may_pass_is_unavailable_with_what_to_do(code: int, advice: str) -> None:
    fault = fault_of(KafkaError(code), ADDRESS)
    assert isinstance(fault, LogUnavailable)
    assert ADDRESS in str(fault)
    assert advice in str(fault)


def test_one_broker_that_cannot_be_reached_is_no_trouble_and_all_of_them_are() -> None:
    trouble = Trouble(ADDRESS)
    trouble.found(KafkaError(KafkaError._TRANSPORT))
    assert trouble.text is None
    trouble.found(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert "no broker can be reached" in (trouble.text or "")
    trouble.found(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    assert "Connection refused" in (trouble.text or "")
    trouble.passed()
    assert trouble.text is None


@pytest.mark.parametrize("wanted", [3, 5, 9])
def test_what_is_there_or_comes_next_is_no_gap(wanted: int) -> None:
    assert maybe_gap("topic", wanted, 3, 9) is None


def test_a_gap_names_what_is_gone() -> None:
    assert str(maybe_gap("topic", 1, 3, 9)) == "topic: records 1 to 2 are gone, removed by its retention"
    assert str(maybe_gap("topic", 10, 3, 9)) == "topic: ends before 9, and 10 was to be read: what was there before is gone"
