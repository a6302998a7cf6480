"""The page about vehicles: its ten commands are run unchanged and in order, and print the documented output (M22)."""

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
from live.mqtt.commands import RunningCommand

PAGE: Final = "docs/how-to/vehicles.md"
PORTS: Final = ("4242", "1883", "9464")
"""Ports of the UDP listener, of MQTT, and of the metrics."""

WAIT_S: Final = 60.0


def fences(language: str) -> list[str]:
    return [block.text for block in blocks_of(PAGE, language)]


COMMANDS: Final = [line for text in fences("sh") for line in text.replace("\\\n", " ").splitlines()]


class VehiclesPage:
    """A folder with the files of the page, whose commands are run at free ports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {port: str(free_port()) for port in PORTS}
        self._processes: list[subprocess.Popen[bytes]] = []
        mqtt, http = self._ports["1883"], self._ports["9464"]
        more = f'[[mqtt.listen]]\naddress = "127.0.0.1:{mqtt}"\n[http]\naddress = "127.0.0.1:{http}"\n'
        (folder / "edge-7.toml").write_text(self._at_free_ports(fences("toml")[0]) + more)
        (folder / "route.geojson").write_text(fences("route")[0])

    def _at_free_ports(self, text: str) -> str:
        for port, free in self._ports.items():
            text = text.replace(f":{port}", f":{free}")
        return text

    def _arguments(self, command: str) -> list[str]:
        program, *words = shlex.split(self._at_free_ports(command))
        assert program == "milepost"
        url = [] if "--url" in words or words[0] != "sub" else ["--url", f"mqtt://127.0.0.1:{self._ports['1883']}"]
        return [sys.executable, "-m", program, *words, *url]

    def run(self, command: str) -> str:
        """Return the output of a command that succeeds."""
        done = subprocess.run(
            self._arguments(command), cwd=self._folder, capture_output=True, text=True, timeout=WAIT_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, command: str) -> RunningCommand:
        """Start an endless command, and read its output."""
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = subprocess.Popen(
            self._arguments(command), cwd=self._folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._processes.append(process)
        return RunningCommand(process)

    def wait_metric(self, line: str) -> None:
        """Wait until a line is in the metrics of the edge."""
        until, url = time.monotonic() + WAIT_S, f"http://127.0.0.1:{self._ports['9464']}/metrics"
        while line not in build_opener(ProxyHandler({})).open(url, timeout=WAIT_S).read().decode().splitlines():
            assert time.monotonic() < until, f"{line} was never in /metrics"
            time.sleep(0.02)

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.communicate()


@pytest.fixture
def vehicles_page(tmp_path: Path) -> Iterator[VehiclesPage]:
    page = VehiclesPage(tmp_path)
    yield page
    page.stop()


def without_age(line: str) -> str:
    return re.sub(r"  \S+ m?s ago  ", "  ", line)


def test_there_are_ten_commands() -> None:
    assert len(COMMANDS) == 10


def test_the_ten_commands_warn_the_truck_and_then_revoke_it(vehicles_page: VehiclesPage) -> None:
    *issuing, check, run, report, sub, pub, revoke = COMMANDS
    for command in issuing:
        vehicles_page.run(command)
    assert "Emergency raises Alert" in vehicles_page.run(check)
    edge = vehicles_page.start(run)
    edge.wait_line(lambda line: "edge ready" in line)
    truck = vehicles_page.start(report)
    edge.wait_line(lambda line: "session opened client=truck-17 role=vehicle" in line)
    dashboard = vehicles_page.start(sub)
    vehicles_page.wait_metric("milepost_subscriptions 2")
    vehicles_page.run(pub)
    alert, emergency = map(without_age, fences("printed")[0].splitlines())
    truck.wait_line(lambda line: without_age(line) == alert)
    dashboard.wait_line(lambda line: without_age(line) == alert)
    dashboard.wait_line(lambda line: without_age(line) == emergency)
    assert emergency not in map(without_age, truck.lines)
    vehicles_page.run(revoke)
    edge.wait_line(lambda line: "session ended client=truck-17 cause=expelled" in line)


def test_only_vehicles_may_raise_an_emergency(vehicles_page: VehiclesPage) -> None:
    init, issue_for_the_edge, *_ = COMMANDS
    vehicles_page.run(init)
    vehicles_page.run(issue_for_the_edge)
    vehicles_page.start("milepost edge run --config edge-7.toml").wait_line(lambda line: "edge ready" in line)
    with pytest.raises(AssertionError, match="220 NOT_ALLOWED"):
        vehicles_page.run("milepost pub -t Emergency -m 'made up' --place 40.7608,-111.9 --url mqtt://127.0.0.1:1883")
