"""An edge made of raw appends and reads of the site's log, as a real one does it, and handlers as processes beside it."""

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

from live.federation.town import table_of, wait_until
from milepost.config.site_settings import SiteLog
from milepost.eventlog.embedded.database import NAME
from milepost.eventlog.log import Entry
from milepost.handlers.administration import read_table, write
from milepost.handlers.records import NOTE, note_from_bytes
from milepost.model.durability import Durability
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.sites import SUBSCRIPTION_INFO, EdgeRef, ForwardedMessage, Interest, inbox_of, publish_to
from milepost.runtime.site_logs import open_log
from milepost.wire.records import from_record, to_record
from parts import ROOT

EXAMPLES: Final = ROOT / "examples" / "handlers"
SITE: Final = "north"
EDGE: Final = EdgeRef(SITE, "edge-1")
WAIT_S: Final = 30.0


class FakeEdge:
    """One edge of a site; its files lie in a folder."""

    def __init__(self, folder: Path, site: SiteLog) -> None:
        self.config = folder / "milepost.toml"
        self.config.write_text(f"[site]\n{table_of(site)}\n")
        self._file = Path(site.folder) / NAME
        self.log = open_log(site, Durability.PROCESS_CRASH, "fake-edge")
        self._numbers = itertools.count(1)
        self._processes = itertools.count(1)

    def is_locked(self) -> bool:
        """Whether somebody is in the middle of a write to the embedded log, and stays there."""
        with closing(sqlite3.connect(self._file, timeout=1.0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False

    def ask(
        self,
        handler: str,
        topic: str,
        body: object,
        *,
        source: str = "truck-7",
        sender: EdgeRef = EDGE,
        extras: bytes | None = None,
    ) -> None:
        """Put a request where the edge puts it for a handler."""
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.append(handler, source, to_record(self.said(topic, payload, source=source, sender=sender, extras=extras)))

    def said(
        self, topic: str, payload: bytes, *, source: str = "truck-7", sender: EdgeRef = EDGE, extras: bytes | None = None
    ) -> ForwardedMessage:
        number = next(self._numbers)
        message = Message(MessageId(number), EndpointId(source), topic, Instant(time.time_ns()), body=payload)
        return ForwardedMessage(sender, number, message, qos=1, extras=extras)

    def append(self, handler: str, key: str, value: bytes) -> None:
        write(self.log, [Entry(publish_to(handler), key, value)])

    def answers(self, topic: str = "") -> list[ForwardedMessage]:
        """What has come back, each number of a sender once, as an edge counts."""
        return [said for said, _ in self.answers_by_key(topic)]

    def answers_by_key(self, topic: str = "") -> list[tuple[ForwardedMessage, str]]:
        """The same with the key of each: who had asked."""
        highest: dict[EdgeRef, int] = {}
        found = []
        for record in self.log.read(topic or inbox_of(EDGE), 0, 100_000):
            said = maybe_said(record.value or b"")
            if said is not None and said.number > highest.get(said.sender, -1):
                highest[said.sender] = said.number
                found.append((said, record.key))
        return found

    def answered(self) -> int:
        """How many answers stand in the inbox, repetitions and all."""
        return self.log.ends(inbox_of(EDGE))[1]

    def wait_answers(self, count: int, topic: str = "") -> list[ForwardedMessage]:
        wait_until(lambda: len(self.answers(topic)) >= count, f"{count} answers")
        return self.answers(topic)

    def wanted(self) -> set[str]:
        """What handlers have announced, as the texts of their queries."""
        found = [from_record(value) for value in read_table(self.log, SUBSCRIPTION_INFO).values()]
        return {str(one.subscription.query) for one in found if isinstance(one, Interest)}

    def position(self, handler: str, partition: int = 0) -> int:
        """How far a handler has come by its own book."""
        note = read_table(self.log, f"handler.store-{handler}.{partition}").get(NOTE)
        return 0 if note is None else note_from_bytes(note).positions.get(publish_to(handler), 0)

    def command(self, *words: str) -> str:
        """What `milepost handler …` prints, which must succeed."""
        done = self.try_command(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def try_command(self, *words: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-m", "milepost", "handler", *words, "--config", str(self.config)]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)

    def start(self, file: Path, *more: str) -> "Process":
        """A process of a handler."""
        command = [*handler_command(file, self.config), *more]
        return Process(command, self.config.parent / f"handler-{next(self._processes)}.log")

    @contextmanager
    def running(self, file: Path, *more: str) -> Iterator["Process"]:
        """The same, ready, and stopped in the end."""
        process = self.start(file, *more)
        try:
            process.wait_said("handler ready")
            yield process
            assert process.stop() == 0, process.said()
        finally:
            process.kill()


def handler_command(file: Path, config: Path) -> list[str]:
    return [sys.executable, "-m", "milepost", "handler", "run", str(file), "--config", str(config)]


class Process:
    """A handler's process and what it logs."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("w") as written:
            self._process = subprocess.Popen(command, cwd=ROOT, stderr=written, stdout=written, stdin=subprocess.DEVNULL)

    def said(self) -> str:
        """What it has logged so far."""
        return self._log.read_text()

    def wait_said(self, what: str) -> None:
        wait_until(lambda: what in self.said() or self._process.poll() is not None, what)
        assert what in self.said(), self.said()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self._process.terminate()
        return self.wait()

    def wait(self) -> int:
        return self._process.wait(WAIT_S)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        self._process.kill()
        self._process.wait(WAIT_S)


def maybe_said(value: bytes) -> ForwardedMessage | None:
    try:
        found = from_record(value)
    except ValueError:
        return None
    return found if isinstance(found, ForwardedMessage) else None
