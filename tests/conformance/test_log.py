"""The catalogue of logs, on the embedded log and the one in memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.log_claims import LogClaims
from conformance.log_group_claims import GroupClaims
from conformance.log_keeping_claims import BoundClaims, KeepingClaims
from conformance.logs import EmbeddedLogs, MemoryLogs
from milepost.model.durability import Durability


class TestEmbedded(LogClaims, GroupClaims, KeepingClaims, BoundClaims):
    @pytest.fixture(params=[Durability.PROCESS_CRASH], ids=str)
    def logs(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedLogs]:
        logs = EmbeddedLogs(tmp_path / "log", request.param)
        yield logs
        logs.close()


class TestMemory(LogClaims, GroupClaims, KeepingClaims, BoundClaims):
    @pytest.fixture
    def logs(self) -> MemoryLogs:
        return MemoryLogs()
