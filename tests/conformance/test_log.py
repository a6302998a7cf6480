"""The conformance suite of logs, on the embedded log and the log in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.log_group_suite import GroupSuite
from conformance.log_retention_suite import QueueLimitSuite, RetentionSuite
from conformance.log_suite import LogSuite
from conformance.logs import AuthenticatedLogs, EmbeddedLogs, MemoryLogs
from milepost.model.durability import Durability


class TestEmbedded(LogSuite, GroupSuite, RetentionSuite, QueueLimitSuite):
    @pytest.fixture(params=[Durability.PROCESS_CRASH], ids=str)
    def logs(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedLogs]:
        logs = EmbeddedLogs(tmp_path / "log", request.param)
        yield logs
        logs.close()


class TestMemory(LogSuite, GroupSuite, RetentionSuite, QueueLimitSuite):
    @pytest.fixture
    def logs(self) -> MemoryLogs:
        return MemoryLogs()


class TestAuthenticatedEmbedded(LogSuite, GroupSuite, RetentionSuite, QueueLimitSuite):
    @pytest.fixture
    def logs(self, tmp_path: Path) -> Iterator[AuthenticatedLogs]:
        plain = EmbeddedLogs(tmp_path / "log")
        logs = AuthenticatedLogs(plain)
        yield logs
        plain.close()
        assert logs.refused == []


class TestAuthenticatedMemory(LogSuite, GroupSuite, RetentionSuite, QueueLimitSuite):
    @pytest.fixture
    def logs(self) -> Iterator[AuthenticatedLogs]:
        logs = AuthenticatedLogs(MemoryLogs())
        yield logs
        assert logs.refused == []
