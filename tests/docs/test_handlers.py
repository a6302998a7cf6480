"""The page about handlers: its file is run and its commands as they stand there, and they print what it says (D10-D12)."""

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
from live.mqtt.commands import Listening
from milepost.handlers import handler, partition, store
from milepost.handlers import handler as validators
from milepost.handlers.calls import CALL_RETRY, HUNG_MAX
from milepost.handlers.names import PARTITIONS_MAX
from milepost.runtime import handler as service
from milepost.runtime import monitoring

PAGE: Final = (Path(__file__).parents[2] / "docs" / "how-to" / "handlers.md").read_text()
PORTS: Final = ("1883", "9464")
WAIT_S: Final = 60.0


def fences(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


COMMANDS: Final = [line for text in fences("sh") for line in text.splitlines()]


class Desk:
    """A folder with the files of the page, in which its commands are run at free ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {port: str(free_port()) for port in PORTS}
        self._lasting: list[subprocess.Popen[bytes]] = []
        (folder / "toll.py").write_text(fences("python")[0])
        settings = fences("toml")[0]
        for port, free in self._ports.items():
            settings = settings.replace(f":{port}", f":{free}")
        (folder / "north.toml").write_text(settings)

    def _words(self, command: str) -> list[str]:
        program, *words = shlex.split(command)
        assert program == "milepost"
        url = ["--url", f"mqtt://127.0.0.1:{self._ports['1883']}"] if words[0] in ("pub", "sub") else []
        return [sys.executable, "-m", program, *words, *url]

    def run(self, command: str) -> str:
        """What a command prints that ends well by itself."""
        done = subprocess.run(self._words(command), cwd=self._folder, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def begin(self, command: str, ready: str) -> Listening:
        """Start a command that goes on until it is stopped, and come back when it says that it is ready."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            self._words(command), cwd=self._folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._lasting.append(process)
        listening = Listening(process)
        if ready:
            listening.wait_line(lambda line: ready in line)
        return listening

    def leave(self) -> None:
        for process in reversed(self._lasting):
            process.kill()
            process.communicate()


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.leave()


def test_the_commands_of_the_page_print_what_it_says(context: Desk) -> None:
    edge, run, sub, *pubs, listing, retry, forget = COMMANDS
    served = context.begin(edge, "edge ready")
    context.begin(run, "partition served")
    answers = context.begin(sub, "")
    served.wait_line(lambda line: "client=car-1" in line)
    printed = fences("printed")[0].splitlines()
    assert len(pubs) == len(printed) == 4
    for pub, line in zip(pubs, printed, strict=True):
        context.run(pub)
        answers.wait_line(lambda said, line=line: said == line)  # type: ignore[misc]
    assert context.run(listing) == "there are no dead letters\n"
    assert context.run(retry) == "there are no dead letters\n"
    assert context.run(forget) == "toll is forgotten: 1 topic filters, 1 values of its store, 0 dead letters\n"


def test_the_page_has_the_limits_as_they_are() -> None:
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


def test_every_figure_is_explained() -> None:
    sources = Path(service.__file__).read_text() + Path(monitoring.__file__).read_text()
    figures = set(re.findall(r'"(milepost_\w+)"', sources))
    assert figures == set(re.findall(r"^\| `(milepost_\w+)` \|", PAGE, re.MULTILINE))
