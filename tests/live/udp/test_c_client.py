"""The C client, which shares no code with Milepost: against the test vectors and a real edge, over a bad network too."""

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from live.client.deadline import run
from live.mqtt.commands import RunningCommand
from live.udp.edges import EDGE_NAME, HERE, MakeUdpEdge, UdpEdge
from live.udp.local_authority import LocalAuthority
from milepost.client import Client
from milepost.model import Circle, Place, ToArea
from parts import ROOT, need

SOURCE: Final = ROOT / "examples" / "c-client"
VECTORS: Final = ROOT / "tests" / "vectors" / "sealed.json"
END_S: Final = 15.0
METRES_PER_DEGREE: Final = 111_195.0
FAILED, WRONG_USE, TURNED_AWAY = 1, 2, 4

Line = dict[str, Any]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs, built with the address and undefined-behaviour sanitizers."""
    compiler, make = need("gcc", debian="gcc"), need("make", debian="make")
    probe = [compiler, "-fsyntax-only", "-x", "c", "-include", "openssl/evp.h", os.devnull]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        pytest.skip("OpenSSL's headers are not installed; fix: apt-get install --yes --no-install-recommends libssl-dev")
    folder = tmp_path_factory.mktemp("c-client")
    command = [make, "-C", str(SOURCE), f"CC={compiler}", "SANITIZE=1", f"OUT={folder}"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder


class Truck(RunningCommand):
    """The running program and its output, line by line."""

    def publish(self, *lines: str) -> None:
        """Let it publish lines of the form TOPIC BODY."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.process.stdin.flush()

    def wait_logged(self, text: str, *, times: int = 1) -> None:
        self.wait_line(lambda _: sum(text in line for line in self.lines) >= times)

    def wait_received(self, condition: Callable[[Line], bool]) -> Line:
        found: Line = json.loads(self.wait_line(lambda line: line.startswith("{") and condition(json.loads(line))))
        return found

    def wait_body(self, body: str) -> Line:
        return self.wait_received(lambda line: bool(line["body"] == body))

    def bodies(self) -> list[str]:
        return [json.loads(line)["body"] for line in self.lines if line.startswith("{")]

    def wait_end(self) -> int:
        """Return the exit status, after reading all output."""
        until = time.monotonic() + END_S
        while self.read(until - time.monotonic()):
            pass
        return self.process.wait(timeout=END_S)

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.wait_end() == 0, self.lines


@contextmanager
def running_client(built: Path, *arguments: object) -> Iterator[Truck]:
    """Run the program; a sanitizer's finding fails the test."""
    command = [str(built / "milepost-client"), *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, **pipes) as process:  # type: ignore[call-overload]
        truck = Truck(process)
        try:
            yield truck
        finally:
            process.kill()
            truck.wait_end()
            assert not any("Sanitizer" in line or "runtime error" in line for line in truck.lines), "\n".join(truck.lines)


def files_of(authority: LocalAuthority, name: str) -> list[object]:
    """Return the options for its credentials."""
    authority.credentials(name)
    issued = authority.issued
    return ["--key", issued / f"{name}.key", "--certificate", issued / f"{name}.cert", "--ca", authority.ca_file]


def sealed(edge: UdpEdge, name: str, *more: object, port: int = 0) -> list[object]:
    """Return the options of an encrypted truck at `HERE`."""
    assert edge.authority is not None
    place = f"{HERE.latitude},{HERE.longitude}"
    return [f"127.0.0.1:{port or edge.udp}", *files_of(edge.authority, name), "--from", place, *more]


def check_vectors(built: Path, vectors: str) -> subprocess.CompletedProcess[str]:
    path = built / "checked.json"
    path.write_text(vectors)
    make = need("make", debian="make")
    command = [make, "-s", "-C", str(SOURCE), "SANITIZE=1", f"OUT={built}", f"VECTORS={path}", "vectors"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_agrees_with_the_vectors(built: Path) -> None:
    done = check_vectors(built, VECTORS.read_text())
    assert (done.returncode, done.stdout.strip().endswith(" checks, 0 failed")) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize("name", ["INIT", "COOKIE", "ACK", "HERE", "ASK", "RESET", "DATA, endpoint to edge, counter 1"])
def test_a_vector_with_one_flipped_bit_is_detected(built: Path, name: str) -> None:
    vectors = json.loads(VECTORS.read_text())
    one = next(one for one in vectors["datagrams"] if one["name"] == name)
    one["hex"] = one["hex"][:-1] + f"{int(one['hex'][-1], 16) ^ 1:x}"
    done = check_vectors(built, json.dumps(vectors))
    assert done.returncode != 0
    assert "FAILED" in done.stdout


def test_its_session_retransmits_renews_keys_and_times_out(built: Path) -> None:
    done = subprocess.run([built / "check-session"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip().endswith(" checks, 0 failed")) == (0, True), done.stdout + done.stderr


def test_messages_go_both_ways_between_it_and_mqtt(built: Path, edge: UdpEdge, name: str) -> None:
    body = 'turn "left" \\ at Köln\t'

    async def work(truck: Truck) -> None:
        async with edge.mqtt_client(f"{name}-m") as other, other.subscribe(f"{name}/out") as inbox:
            truck.publish(f"{name}/out hello from the truck")
            assert (await inbox.receive()).body == b"hello from the truck"
            await publish_until_received(other, truck, f"{name}/in", body)

    with running_client(built, *sealed(edge, name, "--subscribe", f'topic:"{name}/in"')) as truck:
        run(work(truck))
        line = truck.wait_body(body)
        assert (line["topic"], line["source"], "verified" in line) == (f"{name}/in", f"{name}-m", False)


async def publish_until_received(other: Client, truck: Truck, topic: str, body: str) -> None:
    """Publish repeatedly: the truck's subscription may not be active yet."""
    for _ in range(200):
        await other.publish(topic, body, qos=1)
        truck.read(0.1)
        if body in truck.bodies():
            return
    raise AssertionError(f"it never received {body}: {truck.lines}")


def test_its_reports_move_it_into_an_area_ahead(built: Path, edge: UdpEdge, name: str) -> None:
    ahead = Circle(Place(HERE.latitude + 400 / METRES_PER_DEGREE, HERE.longitude), 300)

    async def work() -> None:
        async with edge.mqtt_client(f"{name}-m") as other:
            with running_client(built, *sealed(edge, name, "--speed", 50, "--heading", 0)) as truck:
                truck.wait_logged("a session is open")
                await other.publish(name, "0", to=ToArea(ahead), qos=1)
                for number in range(1, 200):
                    await other.publish(name, str(number), to=ToArea(ahead), qos=1)
                    truck.read(0.1)
                    if truck.bodies():
                        break
                assert truck.bodies(), truck.lines
                assert "0" not in truck.bodies()

    run(work())


def test_it_verifies_the_alert_that_its_emergency_raises(built: Path, edge: UdpEdge, name: str) -> None:
    with running_client(built, *sealed(edge, name)) as truck:
        truck.publish(f"Emergency {name} rocks")
        line = truck.wait_body(f"{name} rocks")
        assert (line["topic"], line["source"], line["verified"]) == ("Alert", f"@edge/{EDGE_NAME}", True)


def test_a_refusal_carries_its_number_and_name(built: Path, edge: UdpEdge, name: str) -> None:
    with running_client(built, *sealed(edge, name, "--subscribe", 'topic:"secret/#"')) as truck:
        truck.publish("secret/1 x")
        truck.wait_logged("refused (message): 220 NOT_ALLOWED")
        truck.wait_logged("refused (subscription): 220 NOT_ALLOWED")


def test_it_closes_its_session_on_exit(built: Path, edge: UdpEdge, name: str) -> None:
    with running_client(built, *sealed(edge, name)) as truck:
        truck.wait_logged("a session is open")
        edge.wait(lambda now: now["milepost_udp_sessions"] >= 1)
        truck.leave()
    until = time.monotonic() + END_S
    while f"session closed client={name}" not in edge.log():
        assert time.monotonic() < until, edge.log()[-2000:]
        time.sleep(0.02)


def test_under_load_it_sends_a_cookie(built: Path, make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge(udp="handshakes_per_s = 1")
    with running_client(built, *sealed(edge, f"{name}-a")) as first, running_client(built, *sealed(edge, f"{name}-b")) as second:
        first.wait_logged("a session is open")
        second.wait_logged("a session is open")
        assert edge.refused("COOKIE_NEEDED") >= 1


def test_after_a_crash_of_the_edge_it_subscribes_again(built: Path, make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge()

    async def work(truck: Truck, body: str) -> None:
        async with edge.mqtt_client(f"{name}-m") as other:
            await publish_until_received(other, truck, name, body)

    with running_client(built, *sealed(edge, name, "--subscribe", f'topic:"{name}"')) as truck:
        run(work(truck, "before"))
        edge.kill()
        edge.start()
        truck.wait_logged("a session is open", times=2)
        run(work(truck, "after"))


def test_a_revoked_certificate_is_reported(built: Path, make_edge: MakeUdpEdge, authority: LocalAuthority, name: str) -> None:
    options = files_of(authority, name)
    revoke = [sys.executable, "-m", "milepost", "trust", "revoke", str(authority.folder), name]
    subprocess.run(revoke, check=True, capture_output=True)
    with running_client(built, f"127.0.0.1:{make_edge().udp}", *options) as truck:
        assert truck.wait_end() == TURNED_AWAY, truck.lines
        assert any("266 CERTIFICATE_REVOKED" in line for line in truck.lines)


def test_it_works_without_encryption(built: Path, make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge(is_sealed=False)
    with running_client(built, f"127.0.0.1:{edge.udp}", "--plain", "--id", name, "--subscribe", f'topic:"{name}"') as truck:
        truck.wait_logged("a session is open")
        edge.wait(lambda now: now["milepost_reports_total"] >= 2)
        truck.publish(f"{name} plain")
        assert truck.wait_body("plain")["source"] == name


def test_over_a_bad_network_each_message_arrives_once(built: Path, edge: UdpEdge, name: str) -> None:
    assert edge.authority is not None
    certificate = ["--edge-certificate", edge.authority.issued / f"{EDGE_NAME}.cert"]
    bodies = [f"{name} {number}" for number in range(40)]

    async def work(truck: Truck) -> None:
        async with edge.mqtt_client(f"{name}-m") as other, other.subscribe(f"{name}/out") as inbox:
            truck.publish(*(f"{name}/out {body}" for body in bodies))
            assert sorted([(await inbox.receive()).body.decode() for _ in bodies]) == sorted(bodies)
            await publish_until_received(other, truck, f"{name}/in", "first")
            for body in bodies:
                await other.publish(f"{name}/in", body, qos=1)
            await asyncio.to_thread(truck.wait_line, lambda _: set(bodies) <= set(truck.bodies()))
            await other.publish(f"{name}/out", "last", qos=1)
            assert (await inbox.receive()).body == b"last"  # and no duplicate of the truck's messages

    with relay(edge.udp, Random(7)) as port:  # noqa: SIM117  # the truck leaves first
        with running_client(built, *sealed(edge, name, *certificate, "--subscribe", f'topic:"{name}/in"', port=port)) as truck:
            run(work(truck))
            assert sorted(body for body in truck.bodies() if body in bodies) == sorted(bodies)


@contextmanager
def relay(to: int, random: Random) -> Iterator[int]:
    """Relay to an edge with a quarter lost and a quarter duplicated; return the relay's port."""
    with socket.socket(type=socket.SOCK_DGRAM) as near, socket.socket(type=socket.SOCK_DGRAM) as far:
        near.bind(("127.0.0.1", 0))
        far.connect(("127.0.0.1", to))
        is_over = threading.Event()

        def carry() -> None:
            client: tuple[str, int] | None = None
            while not is_over.is_set():
                for ready in select.select([near, far], [], [], 0.1)[0]:
                    data, address = ready.recvfrom(1 << 16)
                    client = address if ready is near else client
                    for _ in range(random.choice((0, 1, 1, 2))):
                        if ready is near:
                            far.send(data)
                        elif client is not None:
                            near.sendto(data, client)

        thread = threading.Thread(target=carry)
        thread.start()
        yield near.getsockname()[1]
        is_over.set()
        thread.join()


@pytest.mark.parametrize(
    ("arguments", "status", "advice"),
    [
        ([], WRONG_USE, "usage:"),
        (["localhost", "--plain", "--id", "a"], WRONG_USE, "give the edge as HOST:PORT"),
        (["127.0.0.1:9", "--plain", "--id", "a", "--from", "91,0"], WRONG_USE, "latitude is -90 to 90"),
        (["127.0.0.1:9", "--key", "gone", "--certificate", "gone", "--ca", "gone"], FAILED, "cannot read the file gone"),
        (["127.0.0.1:9", "--key", SOURCE / "Makefile", "--certificate", "x", "--ca", "x"], FAILED, "milepost trust show"),
    ],
)
def test_wrong_usage_is_reported_with_advice(built: Path, arguments: list[object], status: int, advice: str) -> None:
    with running_client(built, *arguments) as truck:
        assert truck.wait_end() == status
        assert any(advice in line for line in truck.lines), truck.lines


def test_a_certificate_for_another_key_is_reported_before_anything_is_sent(
    built: Path, authority: LocalAuthority, name: str
) -> None:
    own, others = files_of(authority, f"{name}-a"), files_of(authority, f"{name}-b")
    with running_client(built, "127.0.0.1:9", *others[:2], *own[2:]) as truck:
        assert truck.wait_end() == FAILED
        assert any("for another key" in line for line in truck.lines), truck.lines
