"""A handler, real edges and a centre: drivers ask over MQTT and are answered, also those of another site (D10, D11)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from paho.mqtt.client import MQTTMessage
from paho.mqtt.packettypes import PacketTypes

from live.handlers.fake_edge import EXAMPLES, Process, handler_command
from live.hub.town import Town, table_of, town_in
from live.mqtt.pahos import Paho, pahos, props, value

HERE = {"latitude": 40.7608, "longitude": -111.891}
STATION = {"place": "station", "free": 2, **HERE}
FOUND = {"places": [{"place": "station", "free": 2, "distance_m": 0}]}


@contextmanager
def handler_in(town: Town, site: str) -> Iterator[Process]:
    """The parking handler at a site."""
    config = town.folder / "handler.toml"
    config.write_text(f"[site]\n{table_of(town.sites[site])}\n")
    process = Process(handler_command(EXAMPLES / "parking.py", config), town.folder / "handler.log")
    try:
        process.wait_said("part served")
        yield process
        assert process.stop() == 0, process.said()
    finally:
        process.kill()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with town_in(tmp_path) as made:
        yield made
        assert made.faults() == []


def ask(driver: Paho, verb: str, body: object, **properties: object) -> None:
    more = props(PacketTypes.PUBLISH, **properties) if properties else None
    driver.client.publish(f"service/parking/{verb}", json.dumps(body), 1, properties=more).wait_for_publish(10)


def content(message: MQTTMessage) -> tuple[str, object]:
    return message.topic, json.loads(message.payload)
