"""The conformance suite of logs, on a real Kafka."""

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from conformance.log_group_suite import GroupSuite
from conformance.log_suite import LogSuite
from conformance.logs import IDLE_S, Logs
from milepost.eventlog.kafka import KafkaLog
from milepost.model.durability import Durability
from milepost.runtime.services.kafka import Kafka


class KafkaLogs(Logs):
    """Several log objects over one cluster, under a prefix of their own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._prefix = f"{uuid4().hex}."
        self._opened: list[KafkaLog] = []

    def open(self) -> KafkaLog:
        self._opened.append(KafkaLog(self._address, Durability.PROCESS_CRASH, client_id="test", prefix=self._prefix))
        return self._opened[-1]

    def wait_idle(self) -> None:
        time.sleep(IDLE_S)

    def close(self) -> None:
        for log in self._opened:
            log.close()


class TestKafka(LogSuite, GroupSuite):
    @pytest.fixture
    def logs(self, kafka: Kafka) -> Iterator[KafkaLogs]:
        logs = KafkaLogs(kafka.address)
        yield logs
        logs.close()
