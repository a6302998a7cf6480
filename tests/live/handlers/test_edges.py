"""A handler, real edges and a centre: drivers ask over MQTT and are answered, also those of another site (D10, D11)."""

import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage

from live.federation.town import Town, table_of, town_in, wait_until
from live.handlers.fake_edge import EXAMPLES, Process, handler_command
from live.mqtt.packets import V5
from live.mqtt.pahos import Paho, paho, value
from milepost.handlers.administration import read_table
from milepost.model.sites import SUBSCRIPTION_INFO, Interest
from milepost.wire.records import from_record

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
        process.wait_said("partition served")
        yield process
        assert process.stop() == 0, process.said()
    finally:
        process.kill()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with town_in(tmp_path) as made:
        yield made
        assert made.faults() == []


def ask(driver: Paho, verb: str, body: object, **properties: Any) -> None:
    driver.publish(f"service/parking/{verb}", json.dumps(body), 1, **properties)


def told(message: MQTTMessage) -> tuple[str, object, str]:
    """Topic and content of an answer, and which one it is."""
    return message.topic, json.loads(message.payload), dict(value(message, "UserProperty"))["status"]


def wait_found(driver: Paho, name: str) -> None:
    """Ask until the way there and back is known to everybody, and check the answer."""
    for number in range(60):
        ask(driver, "find", HERE, ResponseTopic=f"reply/{name}", CorrelationData=b"%d" % number)
        with suppress(queue.Empty):
            message = driver.message(0.5)
            assert told(message) == (f"reply/{name}", FOUND, "accept")
            assert value(message, "CorrelationData").isdigit()
            return
    raise AssertionError(f"{name} was never answered")


def test_drivers_of_two_sites_ask_a_handler_at_one_of_them(town: Town) -> None:
    # D1, D2, D5, D10
    for site in ("north", "south"):
        town.add_site(site)
    north, south = town.add_edge("north", "n1"), town.add_edge("south", "s1")
    town.add_centre()
    with handler_in(town, "north"), paho(north.tcp, "near", V5) as near, paho(south.tcp, "far", V5) as far:
        near.subscribe("reply/near", 1)
        far.subscribe("reply/far", 1)
        wait_until(lambda: "topic:service/parking/free" in wants_of(town, "north"), "that it is announced")
        ask(near, "free", STATION)
        wait_found(near, "near")
        wait_found(far, "far")


def test_a_driver_hears_why_it_was_not_served_and_what_it_asked_while_the_handler_was_down(town: Town) -> None:
    # D10
    town.add_site("north")
    edge = town.add_edge("north", "n1")
    with handler_in(town, "north"):
        pass
    with paho(edge.tcp, "driver", V5) as driver:
        driver.subscribe("service/parking/+/reject", 1)
        ask(driver, "free", {**STATION, "free": -1})
        ask(driver, "find", HERE)
        with handler_in(town, "north"):
            first, second = told(driver.message(30.0)), told(driver.message(30.0))
    assert first[0] == "service/parking/free/reject"
    assert "less than the minimum of 0" in str(first[1])
    assert second == ("service/parking/find/reject", {"reason": "no place with room near you"}, "reject")


def wants_of(town: Town, site: str) -> set[str]:
    found = [from_record(value) for value in read_table(town.log(site), SUBSCRIPTION_INFO).values()]
    return {str(one.subscription.query) for one in found if isinstance(one, Interest)}
