"""The page about vehicles: its ten commands are run, in their order and as they stand there, and print what it says (M22)."""

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.request import ProxyHandler, build_opener

import pytest

from docs.pages import blocks_of
from live.mqtt.brokers import free_port
from live.mqtt.commands import Listening

PAGE: Final = "docs/how-to/vehicles.md"
PORTS: Final = ("4242", "1883", "9464")
"""Those of the UDP door, of MQTT, and of the figures."""

WAIT_S: Final = 60.0


def fences(language: str) -> list[str]:
    return [block.text for block in blocks_of(PAGE, language)]


COMMANDS: Final = [line for text in fences("sh") for line in text.replace("\\\n", " ").splitlines()]


class Road:
    """A folder with the files of the page, in which its commands are run at free ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {port: str(free_port()) for port in PORTS}
        self._lasting: list[subprocess.Popen[bytes]] = []
        mqtt, http = self._ports["1883"], self._ports["9464"]
        more = f'[[mqtt.listen]]\naddress = "127.0.0.1:{mqtt}"\n[http]\naddress = "127.0.0.1:{http}"\n'
        (folder / "edge-7.toml").write_text(self._at_free_ports(fences("toml")[0]) + more)
        (folder / "route.geojson").write_text(fences("route")[0])

    def _at_free_ports(self, text: str) -> str:
        for port, free in self._ports.items():
            text = text.replace(f":{port}", f":{free}")
        return text

    def _words(self, command: str) -> list[str]:
        program, *words = shlex.split(self._at_free_ports(command))
        assert program == "milepost"
        url = [] if "--url" in words or words[0] != "sub" else ["--url", f"mqtt://127.0.0.1:{self._ports['1883']}"]
        return [sys.executable, "-m", program, *words, *url]

    def run(self, command: str) -> str:
        """What a command prints that ends well by itself."""
        done = subprocess.run(self._words(command), cwd=self._folder, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def begin(self, command: str) -> Listening:
        """Start a command that goes on until it is stopped, and listen to it."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            self._words(command), cwd=self._folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._lasting.append(process)
        return Listening(process)

    def wait_figure(self, line: str) -> None:
        """Wait until the edge has a figure, as it stands in /metrics."""
        until, url = time.monotonic() + WAIT_S, f"http://127.0.0.1:{self._ports['9464']}/metrics"
        while line not in build_opener(ProxyHandler({})).open(url, timeout=WAIT_S).read().decode().splitlines():
            assert time.monotonic() < until, f"it never was {line}"
            time.sleep(0.02)

    def leave(self) -> None:
        for process in reversed(self._lasting):
            process.kill()
            process.communicate()


@pytest.fixture
def road(tmp_path: Path) -> Iterator[Road]:
    made = Road(tmp_path)
    yield made
    made.leave()


def without_age(line: str) -> str:
    return re.sub(r"  \S+ m?s ago  ", "  ", line)


def test_there_are_ten_commands() -> None:
    assert len(COMMANDS) == 10


def test_the_truck_is_warned_and_then_shut_out_by_the_ten_commands(road: Road) -> None:
    *issuing, check, run, report, sub, pub, revoke = COMMANDS
    for command in issuing:
        road.run(command)
    assert "Emergency raises Alert" in road.run(check)
    edge = road.begin(run)
    edge.wait_line(lambda line: "edge ready" in line)
    truck = road.begin(report)
    edge.wait_line(lambda line: "session opened client=truck-17 role=vehicle" in line)
    dashboard = road.begin(sub)
    road.wait_figure("milepost_subscriptions 1")
    road.run(pub)
    alert, emergency = map(without_age, fences("printed")[0].splitlines())
    truck.wait_line(lambda line: without_age(line) == alert)
    dashboard.wait_line(lambda line: without_age(line) == alert)
    dashboard.wait_line(lambda line: without_age(line) == emergency)
    assert emergency not in map(without_age, truck.lines)
    road.run(revoke)
    edge.wait_line(lambda line: "session ended client=truck-17 cause=expelled" in line)


def test_only_vehicles_may_raise_an_emergency(road: Road) -> None:
    init, issue_for_the_edge, *_ = COMMANDS
    road.run(init)
    road.run(issue_for_the_edge)
    road.begin("milepost edge run --config edge-7.toml").wait_line(lambda line: "edge ready" in line)
    with pytest.raises(AssertionError, match="220 NOT_ALLOWED"):
        road.run("milepost pub -t Emergency -m 'made up' --place 40.7608,-111.9 --url mqtt://127.0.0.1:1883")
