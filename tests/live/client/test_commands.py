"""`milepost pub` and `milepost sub` as processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from live.client.deadline import MakeEdge, url_of
from live.mqtt.brokers import Broker, free_port
from milepost.model import Message, Place, Priority, tags
from milepost.wire.json_form import from_json

MILEPOST = [sys.executable, "-m", "milepost"]
DEADLINE_S = 60


def pub(broker: Broker, *typed: str, given: bytes = b"", **environment: str) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        [*MILEPOST, "pub", "--url", url_of(broker), *typed],
        input=given,
        capture_output=True,
        check=False,
        timeout=DEADLINE_S,
        env={**os.environ, **environment},
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@contextmanager
def sub(broker: Broker, name: str, *typed: str) -> "Iterator[subprocess.Popen[str]]":
    """A running `milepost sub` that has subscribed: it has printed a retained message of its last filter."""
    ready = f"{name}/ready"
    assert pub(broker, "-t", ready, "-m", "ready", "--retain").returncode == 0
    command = [*MILEPOST, "sub", "--url", url_of(broker), *typed, "-t", ready]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert "ready" in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def test_sub_prints_what_pub_publishes(broker: Broker, name: str) -> None:
    with sub(broker, name, "-t", f"{name}/x", "--count", "3") as listening:
        pub(broker, "-t", f"{name}/x", "-m", "lane 2 \x1b[2J", "--tag", "ice", "--tag", "i80", "--place", "40.7608,-111.891")
        pub(broker, "-t", f"{name}/x", "-m", "hurry", "--priority", "emergency", "--qos", "2", "--valid-for", "10m")
        said, faults = listening.communicate(timeout=DEADLINE_S)
    assert listening.returncode == 0
    assert faults == ""
    first, second = said.splitlines()
    assert first.startswith(f"{name}/x  [i80 ice]  40.7608,-111.891  ")
    assert first.endswith(r"lane 2 \x1b[2J")
    assert second.startswith(f"{name}/x  emergency  ")
    assert second.endswith("hurry")


def test_json_output_is_the_json_form_of_a_message(broker: Broker, name: str) -> None:
    with sub(broker, name, "--json", "--count", "2") as listening:
        pub(broker, "-t", f"{name}/ready", "-m", "x", "--tag", "ice", "--place", "1,2", "--priority", "safety")
        said, _ = listening.communicate(timeout=DEADLINE_S)
    message = from_json(said.encode())
    assert isinstance(message, Message)
    assert (message.topic, message.body, message.tags) == (f"{name}/ready", b"x", tags(["ice"]))
    assert (message.place, message.priority) == (Place(1, 2), Priority.SAFETY)
    assert json.loads(said)["type"] == "message"


def test_query_area_and_format(broker: Broker, name: str) -> None:
    asked = ["--query", "ready & !old", "--area", "around 500", "--at", "48.1,11.6", "--count", "2"]
    asked += ["--format", "{{{topic}}}|{tags}|{body}"]
    ready = f"{name}/ready"
    said = ["-t", ready, "--tag", "ready", "--place", "48.1,11.6"]
    pub(broker, *said, "-m", "ready", "--retain")
    command = [*MILEPOST, "sub", "--url", url_of(broker), "-t", ready, *asked]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listening:
        assert listening.stdout is not None
        assert listening.stdout.readline() == f"{{{ready}}}|ready|ready\n"
        pub(broker, "-t", ready, "-m", "far", "--tag", "ready", "--place", "0,0")
        pub(broker, *said, "-m", "old", "--tag", "old")
        pub(broker, *said, "-m", "good")
        assert listening.communicate(timeout=DEADLINE_S)[0] == f"{{{ready}}}|ready|good\n"


def test_lines_arrive_in_order_and_files_as_they_are(broker: Broker, name: str, tmp_path: Path) -> None:
    body = bytes(range(256))
    (tmp_path / "body").write_bytes(body)
    lines = [f"line {number}" for number in range(500)]
    with sub(broker, name, "--count", "502", "--json") as listening:
        assert pub(broker, "-t", f"{name}/ready", "--stdin-lines", given="\n".join(lines).encode()).returncode == 0
        assert pub(broker, "-t", f"{name}/ready", "--file", str(tmp_path / "body")).returncode == 0
        said, _ = listening.communicate(timeout=DEADLINE_S)
    messages = [from_json(line.encode()) for line in said.splitlines()]
    assert [message.body for message in messages if isinstance(message, Message)] == [*(line.encode() for line in lines), body]


def test_sub_prints_what_is_addressed_to_it(broker: Broker, name: str) -> None:
    with sub(broker, name, "--id", name, "--count", "3", "--format", "{topic} {body}") as listening:
        pub(broker, "-t", "to/you", "-m", "hello", "--to-endpoint", name)
        pub(broker, "-t", "to/all", "-m", "hello", "--to-everyone")
        assert listening.communicate(timeout=DEADLINE_S)[0] == "to/you hello\nto/all hello\n"


def test_an_interrupt_ends_sub_without_output(broker: Broker, name: str) -> None:
    with sub(broker, name) as listening:
        listening.send_signal(signal.SIGINT)
        assert listening.communicate(timeout=DEADLINE_S) == ("", "")
        assert listening.returncode == 130


def test_an_interrupt_ends_pub_while_it_waits_for_lines(broker: Broker, name: str) -> None:
    with sub(broker, name, "--count", "2") as listening:
        command = [*MILEPOST, "pub", "--url", url_of(broker), "-t", f"{name}/ready", "--stdin-lines"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b"first\nhalf a")
        process.stdin.flush()
        listening.communicate(timeout=DEADLINE_S)  # the first line has arrived
        process.send_signal(signal.SIGINT)
        process.wait(timeout=DEADLINE_S)
        assert process.stderr is not None
        assert (process.returncode, process.stderr.read()) == (130, b"")
        process.stdin.close()
        process.stderr.close()


def test_a_lost_connection_is_reported_and_restored(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge()
    with sub(broker, name, "--id", name, "--count", "2", "--qos", "0") as listening:  # 1 might show the first one again
        broker.kill()
        assert listening.stderr is not None
        assert listening.stderr.readline().startswith("milepost: the connection is lost")
        broker.start()
        assert listening.stderr.readline() == "milepost: reconnected\n"
        assert pub(broker, "-t", f"{name}/ready", "-m", "back").returncode == 0
        assert "back" in listening.communicate(timeout=DEADLINE_S)[0]


def test_a_timeout_is_a_failure_only_if_more_messages_were_requested(broker: Broker, name: str) -> None:
    command = [*MILEPOST, "sub", "--url", url_of(broker), "-t", name, "--timeout", "0.2"]
    began = time.monotonic()
    both = (command, [*command, "--count", "1"])
    done = [subprocess.run(one, capture_output=True, text=True, check=False, timeout=DEADLINE_S) for one in both]
    assert time.monotonic() - began > 0.4
    assert [one.returncode for one in done] == [0, 1]
    assert "fewer than 1 messages arrived in 0.2 s" in done[1].stderr


@pytest.mark.parametrize(
    ("typed", "status", "complaint"),
    [
        (("-t", "$SYS/x", "-m", "x"), 1, "the edge refused: 221 TOPIC_RESERVED"),
        (("-t", "a/#", "-m", "x"), 2, "122 TOPIC_CHARACTER"),
        (("-t", "a", "--file", "/no/such/file"), 2, "/no/such/file does not exist"),
        (("-t", "a", "-m", "x", "--ca", "/no/such/file"), 2, "/no/such/file does not exist"),
    ],
)
def test_a_refusal_is_one_line_with_advice(broker: Broker, typed: tuple[str, ...], status: int, complaint: str) -> None:
    done = pub(broker, *typed)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert complaint in done.stderr


def test_an_unreachable_edge_is_one_line_with_advice() -> None:
    url = f"mqtt://127.0.0.1:{free_port()}"
    done = subprocess.run([*MILEPOST, "sub", "--url", url], capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert done.stderr == (
        f"milepost: {url}: Connection refused; is an edge running there? Start one with `milepost edge run`, "
        "or name another with --url\n"
    )


def test_the_user_is_an_option_and_the_password_comes_from_the_environment(make_edge: MakeEdge) -> None:
    broker = make_edge(users={"ada": "swordfish"})
    assert pub(broker, "-t", "a", "-m", "x", "--user", "ada", MILEPOST_PASSWORD="swordfish").returncode == 0
    done = pub(broker, "-t", "a", "-m", "x", "--user", "ada", MILEPOST_PASSWORD="wrong")
    assert (done.returncode, "225 BAD_CREDENTIALS" in done.stderr) == (1, True)


@pytest.mark.parametrize("verb", ["pub", "sub"])
def test_help_imports_nothing_heavy(verb: str) -> None:
    program = f"from milepost.cli.main import main\ntry:\n    main(['{verb}', '--help'])\nexcept SystemExit:\n    pass\n"
    program += "import sys\nsys.stderr.write(' '.join({'asyncio', 'ssl', 'numpy', 'websockets'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=DEADLINE_S)
    assert done.stderr == ""
