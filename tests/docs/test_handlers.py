"""The page about handlers: its program and its commands are run unchanged, and print the documented output (D10-D12)."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from live.mqtt.brokers import free_port
from live.mqtt.commands import RunningCommand
from milepost.handlers import handler, partition, store
from milepost.handlers import handler as validators
from milepost.handlers.calls import CALL_RETRY, HUNG_MAX
from milepost.handlers.topic_names import PARTITIONS_MAX
from milepost.runtime import handler as service
from milepost.runtime import monitoring

PAGE: Final = (Path(__file__).parents[2] / "docs" / "how-to" / "handlers.md").read_text()
PORTS: Final = ("1883", "9464")
WAIT_S: Final = 60.0


def fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


COMMANDS: Final = [line for text in fences("sh") for line in text.splitlines()]


class HandlersPage:
    """A folder with the files of the page, whose commands are run at free ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {port: str(free_port()) for port in PORTS}
        self._processes: list[subprocess.Popen[bytes]] = []
        (folder / "toll.py").write_text(fences("python")[0])
        settings = fences("toml")[0]
        for port, free in self._ports.items():
            settings = settings.replace(f":{port}", f":{free}")
        (folder / "north.toml").write_text(settings)

    def _arguments(self, command: str) -> list[str]:
        program, *words = shlex.split(command)
        assert program == "milepost"
        url = ["--url", f"mqtt://127.0.0.1:{self._ports['1883']}"] if words[0] in ("pub", "sub") else []
        return [sys.executable, "-m", program, *words, *url]

    def run(self, command: str) -> str:
        """Return the output of a command that succeeds."""
        done = subprocess.run(
            self._arguments(command), cwd=self._folder, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, command: str, ready: str) -> RunningCommand:
        """Start an endless command, and wait for its output to contain *ready*."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            self._arguments(command), cwd=self._folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._processes.append(process)
        listening = RunningCommand(process)
        if ready:
            listening.wait_line(lambda line: ready in line)
        return listening

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.communicate()


@pytest.fixture
def handlers_page(tmp_path: Path) -> Iterator[HandlersPage]:
    page = HandlersPage(tmp_path)
    yield page
    page.stop()


def test_the_commands_of_the_page_print_the_documented_output(handlers_page: HandlersPage) -> None:
    edge, run, sub, *pubs, listing, retry, forget = COMMANDS
    served = handlers_page.start(edge, "edge ready")
    handlers_page.start(run, "partition served")
    answers = handlers_page.start(sub, "")
    served.wait_line(lambda line: "client=car-1" in line)
    printed = fences("printed")[0].splitlines()
    assert len(pubs) == len(printed) == 4
    for pub, line in zip(pubs, printed, strict=True):
        handlers_page.run(pub)
        answers.wait_line(lambda printed, line=line: printed == line)  # type: ignore[misc]
    assert handlers_page.run(listing) == "there are no dead letters\n"
    assert handlers_page.run(retry) == "there are no dead letters\n"
    assert handlers_page.run(forget) == "toll is removed: 1 topic filters, 1 values of its store, 0 dead letters\n"


def test_the_page_has_the_current_limits() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", PAGE.partition("## Limits")[2], re.MULTILINE))
    assert rows == {
        "item": "maximum",
        "a request, as a record of the log": f"{partition.REQUEST_BYTES_MAX:,} bytes",
        "an answer": f"{validators.ANSWER_BYTES_MAX:,} bytes",
        "a value of the store, a key": f"{store.VALUE_BYTES_MAX:,} bytes, {store.KEY_BYTES_MAX} bytes",
        "changes of the store by one call": f"{store.CHANGES_BYTES_MAX:,} bytes",
        "the store of a partition": f"{store.KEYS_MAX:,} keys, {store.BYTES_MAX:,} bytes",
        "partitions": str(PARTITIONS_MAX),
        "`timeout_s`": f"{handler.TIMEOUT_S:g} s by default",
    }
    assert f"{partition.DEAD_LETTERS_MAX:,} per partition" in PAGE
    assert (CALL_RETRY.first_s, CALL_RETRY.limit_s, CALL_RETRY.retries_max) == (0.1, 1.0, 2)
    assert HUNG_MAX == 8


def test_every_metric_is_documented() -> None:
    sources = Path(service.__file__).read_text() + Path(monitoring.__file__).read_text()
    metrics = set(re.findall(r'"(milepost_\w+)"', sources))
    assert metrics == set(re.findall(r"^\| `(milepost_\w+)` \|", PAGE, re.MULTILINE))
