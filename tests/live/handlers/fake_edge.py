"""A fake edge that appends to and reads from the site's log as a real one does, and handlers as processes."""

import itertools
import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from live.federation.deployment import settings_table, wait_until
from milepost.config.site_settings import SiteLog
from milepost.eventlog.embedded.database import NAME
from milepost.eventlog.log import Entry
from milepost.handlers.administration import read_table, write
from milepost.handlers.records import NOTE, note_from_bytes
from milepost.model.durability import Durability
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.site_records import SUBSCRIPTION_INFO, EdgeRef, ForwardedMessage, Interest, handler_topic, inbox_topic
from milepost.runtime.site_logs import open_log
from milepost.wire.records import from_record, to_record
from parts import ROOT

EXAMPLES: Final = ROOT / "examples" / "handlers"
SITE: Final = "north"
EDGE: Final = EdgeRef(SITE, "edge-1")
WAIT_S: Final = 30.0


class FakeEdge:
    """One edge of a site; its files are in a folder."""

    def __init__(self, folder: Path, site: SiteLog) -> None:
        self.config = folder / "milepost.toml"
        self.config.write_text(f"[site]\n{settings_table(site)}\n")
        self._file = Path(site.folder) / NAME
        self.log = open_log(site, Durability.PROCESS_CRASH, "fake-edge")
        self._numbers = itertools.count(1)
        self._processes = itertools.count(1)

    def is_locked(self) -> bool:
        """Return whether a process holds the write lock of the embedded log for longer than a moment."""
        with closing(sqlite3.connect(self._file, timeout=1.0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False

    def send_request(
        self,
        handler: str,
        topic: str,
        body: object,
        *,
        source: str = "truck-7",
        sender: EdgeRef = EDGE,
        extras: bytes | None = None,
    ) -> None:
        """Append a request to the handler's topic, as an edge does."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.append(handler, source, to_record(self.forwarded(topic, payload, source=source, sender=sender, extras=extras)))

    def forwarded(
        self, topic: str, payload: bytes, *, source: str = "truck-7", sender: EdgeRef = EDGE, extras: bytes | None = None
    ) -> ForwardedMessage:
        number = next(self._numbers)
        message = Message(MessageId(number), EndpointId(source), topic, Instant(time.time_ns()), body=payload)
        return ForwardedMessage(sender, number, message, qos=1, extras=extras)

    def append(self, handler: str, key: str, value: bytes) -> None:
        write(self.log, [Entry(handler_topic(handler), key, value)])

    def answers(self, topic: str = "") -> list[ForwardedMessage]:
        """Return the received answers, each number of a sender once, as an edge does."""
        return [answer for answer, _ in self.answers_by_key(topic)]

    def answers_by_key(self, topic: str = "") -> list[tuple[ForwardedMessage, str]]:
        """Return the answers with their keys, the requesters."""
        highest: dict[EdgeRef, int] = {}
        found = []
        for record in self.log.read(topic or inbox_topic(EDGE), 0, 100_000):
            answer = find_forwarded(record.value or b"")
            if answer is not None and answer.number > highest.get(answer.sender, -1):
                highest[answer.sender] = answer.number
                found.append((answer, record.key))
        return found

    def answer_count(self) -> int:
        """Return the number of answers in the inbox, duplicates included."""
        return self.log.ends(inbox_topic(EDGE))[1]

    def wait_answers(self, count: int, topic: str = "") -> list[ForwardedMessage]:
        wait_until(lambda: len(self.answers(topic)) >= count, f"{count} answers")
        return self.answers(topic)

    def announced_queries(self) -> set[str]:
        """Return the queries that handlers have announced, as text."""
        found = [from_record(value) for value in read_table(self.log, SUBSCRIPTION_INFO).values()]
        return {str(one.subscription.query) for one in found if isinstance(one, Interest)}

    def position(self, handler: str, partition: int = 0) -> int:
        """Return a handler's position by its own ledger."""
        note = read_table(self.log, f"handler.store-{handler}.{partition}").get(NOTE)
        return 0 if note is None else note_from_bytes(note).positions.get(handler_topic(handler), 0)

    def command(self, *arguments: str) -> str:
        """Run `milepost handler …`, which must succeed, and return its output."""
        done = self.try_command(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def try_command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-m", "milepost", "handler", *arguments, "--config", str(self.config)]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)

    def start(self, file: Path, *more: str) -> "Process":
        """Start a process of a handler."""
        command = [*handler_command(file, self.config), *more]
        return Process(command, self.config.parent / f"handler-{next(self._processes)}.log")

    @contextmanager
    def running(self, file: Path, *more: str) -> Iterator["Process"]:
        """Run a process of a handler until the end of the block."""
        process = self.start(file, *more)
        try:
            process.wait_logged("handler ready")
            yield process
            assert process.stop() == 0, process.logged()
        finally:
            process.kill()


def handler_command(file: Path, config: Path) -> list[str]:
    return [sys.executable, "-m", "milepost", "handler", "run", str(file), "--config", str(config)]


class Process:
    """A handler's process and its log output."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("w") as written:
            self._process = subprocess.Popen(command, cwd=ROOT, stderr=written, stdout=written, stdin=subprocess.DEVNULL)

    def logged(self) -> str:
        """Return its log output so far."""
        return self._log.read_text()

    def wait_logged(self, text: str) -> None:
        wait_until(lambda: text in self.logged() or self._process.poll() is not None, text)
        assert text in self.logged(), self.logged()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(WAIT_S)

    def kill(self) -> None:
        """Send SIGKILL if the process still runs."""
        self._process.kill()
        self._process.wait(WAIT_S)


def find_forwarded(value: bytes) -> ForwardedMessage | None:
    try:
        found = from_record(value)
    except ValueError:
        return None
    return found if isinstance(found, ForwardedMessage) else None
