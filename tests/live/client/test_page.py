"""The examples of the client's page and the example program, run as they are."""

import subprocess
import sys

import pytest

from docs.pages import blocks_of
from live.client.deadline import url_of
from live.mqtt.brokers import Broker
from parts import ROOT

CODES = [block.text for block in blocks_of("docs/reference/client.md", "python")]
EXAMPLE = ROOT / "examples" / "first_client.py"


def printed(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("code", CODES, ids=range(len(CODES)))
def test_the_examples_of_the_page_run(broker: Broker, code: str) -> None:
    assert "mqtt://127.0.0.1:1883" in code
    assert printed("-c", code.replace("mqtt://127.0.0.1:1883", url_of(broker))) != ""


def test_the_page_has_examples() -> None:
    assert len(CODES) >= 3


def test_the_example_runs_with_a_running_edge(broker: Broker) -> None:
    said = printed(str(EXAMPLE), url_of(broker))
    assert "truck-7 receives: road/i80 ['collision', 'i80'] lane 2 is blocked" in said
    assert "truck-7 is warned without a subscription: slow down, emergency" in said
    assert "car-4711 is refused: 221 TOPIC_RESERVED" in said


def test_the_example_starts_its_own_edge() -> None:
    assert "truck-7 is warned" in printed(str(EXAMPLE))
