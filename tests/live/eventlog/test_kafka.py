"""The conformance suite of logs, on a real Kafka."""

import time
from collections.abc import Iterator
from uuid import uuid4

import pytest

from conformance.log_group_suite import GroupSuite
from conformance.log_suite import LogSuite
from conformance.logs import IDLE_S, AuthenticatedLogs, Logs
from milepost.eventlog.authenticated import AuthenticatedLog
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import CODE_BYTES, Log, Record
from milepost.model.durability import Durability
from milepost.runtime.services.kafka import Kafka


class KafkaLogs(Logs):
    """Several log objects over one cluster, under a prefix of their own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._prefix = f"{uuid4().hex}."
        self._opened: list[KafkaLog] = []

    def open(self) -> Log:
        self._opened.append(KafkaLog(self._address, Durability.PROCESS_CRASH, client_id="test", prefix=self._prefix))
        return self._opened[-1]

    def wait_idle(self) -> None:
        time.sleep(IDLE_S)

    def close(self) -> None:
        for log in self._opened:
            log.close()


class AuthenticatedKafkaLogs(KafkaLogs):
    """The same with a site's key."""

    overhead_bytes = CODE_BYTES

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.refused: list[Record] = []

    def open(self) -> Log:
        return AuthenticatedLog(super().open(), AuthenticatedLogs.KEY, lambda record, _: self.refused.append(record))


class TestKafka(LogSuite, GroupSuite):
    @pytest.fixture
    def logs(self, kafka: Kafka) -> Iterator[KafkaLogs]:
        logs = KafkaLogs(kafka.address)
        yield logs
        logs.close()


class TestAuthenticatedKafka(LogSuite, GroupSuite):
    @pytest.fixture
    def logs(self, kafka: Kafka) -> Iterator[AuthenticatedKafkaLogs]:
        logs = AuthenticatedKafkaLogs(kafka.address)
        yield logs
        logs.close()
        assert logs.refused == []
