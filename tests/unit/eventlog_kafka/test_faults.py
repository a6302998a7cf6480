"""Kafka's errors as faults of the log, and trouble."""

import pytest
from confluent_kafka import KafkaError

from milepost.eventlog.kafka.errors import ClusterFault, fault_of
from milepost.eventlog.log import LogRefused, LogUnavailable, maybe_gap

ADDRESS = "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "grant this client the permission"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "max.message.bytes"),
        (KafkaError.POLICY_VIOLATION, "create the topic yourself"),
        (KafkaError.TOPIC_EXCEPTION, "choose another"),
    ],
)
def test_permanent_errors_are_refused_with_advice(code: int, advice: str) -> None:
    fault = fault_of(KafkaError(code), ADDRESS)
    assert isinstance(fault, LogRefused)
    assert ADDRESS in str(fault)
    assert advice in str(fault)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (KafkaError._ALL_BROKERS_DOWN, "check that they run"),
        (KafkaError._TIMED_OUT, "network"),
        (KafkaError.NOT_ENOUGH_REPLICAS, "start those that are down"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "password"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "deleted"),
        (KafkaError.UNKNOWN, "will be retried"),
    ],
)
def test_transient_errors_are_unavailable_with_advice(code: int, advice: str) -> None:
    fault = fault_of(KafkaError(code), ADDRESS)
    assert isinstance(fault, LogUnavailable)
    assert ADDRESS in str(fault)
    assert advice in str(fault)


def test_one_unreachable_broker_is_no_fault_but_all_of_them_are() -> None:
    fault = ClusterFault(ADDRESS)
    fault.note_error(KafkaError(KafkaError._TRANSPORT))
    assert fault.text is None
    fault.note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert "no broker can be reached" in (fault.text or "")
    fault.note_error(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    assert "Connection refused" in (fault.text or "")
    fault.clear()
    assert fault.text is None


@pytest.mark.parametrize("wanted", [3, 5, 9])
def test_stored_and_next_offsets_are_no_gap(wanted: int) -> None:
    assert maybe_gap("topic", wanted, 3, 9) is None


def test_a_gap_names_the_missing_records() -> None:
    assert str(maybe_gap("topic", 1, 3, 9)) == "topic: records 1 to 2 are gone, removed by its retention"
    assert str(maybe_gap("topic", 10, 3, 9)) == "topic: offset 10 is beyond its end, 9: the records that were there are gone"
