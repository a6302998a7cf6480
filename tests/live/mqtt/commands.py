"""The mosquitto command-line clients as processes, and their output line by line; every wait has a deadline."""

import selectors
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from parts import need

WAIT_S: Final = 15.0
VERSIONS: Final = {4: "311", 5: "5"}


def tool(name: str) -> str:
    return need(f"mosquitto_{name}", debian="mosquitto-clients")


def run(name: str, *arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a client to its end."""
    return subprocess.run([tool(name), *arguments], input=stdin, capture_output=True, timeout=WAIT_S, check=False)


def pub(port: int, level: int, *arguments: str, stdin: bytes | None = None) -> None:
    """Run mosquitto_pub, which must succeed."""
    done = run("pub", "-h", "127.0.0.1", "-p", str(port), "-V", VERSIONS[level], *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()


class RunningCommand:
    """A running command and its output lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._unread = b""

    def wait_line(self, condition: Callable[[str], bool]) -> str:
        """Return the first line, including earlier ones, for which the *condition* holds."""
        until = time.monotonic() + WAIT_S
        seen = 0
        while True:
            for line in self.lines[seen:]:
                if condition(line):
                    return line
            seen = len(self.lines)
            assert self.read(until - time.monotonic()), f"no such line: {self.lines}"

    def wait_messages(self, count: int) -> list[str]:
        """Return the lines that `-F 'MSG ...'` printed for messages, without MSG."""
        self.wait_line(lambda _: len(self.messages()) >= count)
        return self.messages()

    def messages(self) -> list[str]:
        return [line.removeprefix("MSG ") for line in self.lines if line.startswith("MSG ")]

    def read(self, within_s: float) -> bool:
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self.process.stdout, selectors.EVENT_READ)
            if not ready.select(max(within_s, 0)):
                return False
        more = self.process.stdout.read1(1 << 16)  # type: ignore[attr-defined]
        *lines, self._unread = (self._unread + more).split(b"\n")
        self.lines += [line.decode() for line in lines]
        return bool(more)


def wait_shared(clients: Sequence[RunningCommand], count: int) -> list[str]:
    """Return the messages printed by several clients together."""
    until = time.monotonic() + WAIT_S
    while len(found := [line for one in clients for line in one.messages()]) < count:
        assert time.monotonic() < until, f"only these were printed: {found}"
        for one in clients:
            one.read(0.05)
    return found


@contextmanager
def running_command(name: str, *arguments: str) -> Iterator[RunningCommand]:
    """Run a client in the background, with unbuffered output; kill it at the end."""
    command = [need("stdbuf", debian="coreutils"), "-oL", tool(name), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield RunningCommand(process)
        finally:
            process.kill()


@contextmanager
def sub(port: int, level: int, *arguments: str, form: str = "%t %q %r %p") -> Iterator[RunningCommand]:
    """Run mosquitto_sub until it is subscribed; each message is a line of `form`."""
    basics = ["-h", "127.0.0.1", "-p", str(port), "-V", VERSIONS[level], "-d", "-F", f"MSG {form}"]
    with running_command("sub", *basics, *arguments) as client:
        client.wait_line(lambda line: line.startswith("Subscribed (mid"))
        yield client
