"""A handler, real edges and a central hub: drivers of both sites send requests over MQTT and receive answers (D10, D11)."""

import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage

from live.federation.deployment import Deployment, deployment_in, settings_table, wait_until
from live.handlers.fake_edge import EXAMPLES, Process, handler_command
from live.mqtt.packets import V5
from live.mqtt.paho_client import Paho, paho, value
from milepost.handlers.administration import read_table
from milepost.model.site_records import SUBSCRIPTION_INFO, Interest
from milepost.wire.records import from_record

HERE = {"latitude": 40.7608, "longitude": -111.891}
STATION = {"place": "station", "free": 2, **HERE}
FOUND = {"places": [{"place": "station", "free": 2, "distance_m": 0}]}


@contextmanager
def handler_in(deployment: Deployment, site: str) -> Iterator[Process]:
    """The parking handler at a site."""
    config = deployment.folder / "handler.toml"
    config.write_text(f"[site]\n{settings_table(deployment.sites[site])}\n")
    process = Process(handler_command(EXAMPLES / "parking.py", config), deployment.folder / "handler.log")
    try:
        process.wait_logged("partition served")
        yield process
        assert process.stop() == 0, process.logged()
    finally:
        process.kill()


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deployment_in(tmp_path) as made:
        yield made
        assert made.faults() == []


def send_request(driver: Paho, verb: str, body: object, **properties: Any) -> None:
    driver.publish(f"service/parking/{verb}", json.dumps(body), 1, **properties)


def content(message: MQTTMessage) -> tuple[str, object, str]:
    """Return topic, body and status of an answer."""
    return message.topic, json.loads(message.payload), dict(value(message, "UserProperty"))["status"]


def wait_found(driver: Paho, name: str) -> None:
    """Send requests until the subscriptions are known everywhere, and check the answer."""
    for number in range(60):
        send_request(driver, "find", HERE, ResponseTopic=f"reply/{name}", CorrelationData=b"%d" % number)
        with suppress(queue.Empty):
            message = driver.message(0.5)
            assert content(message) == (f"reply/{name}", FOUND, "accept")
            assert value(message, "CorrelationData").isdigit()
            return
    raise AssertionError(f"{name} was never answered")


def test_drivers_of_two_sites_use_a_handler_at_one_of_them(deployment: Deployment) -> None:
    # D1, D2, D5, D10
    for site in ("north", "south"):
        deployment.add_site(site)
    north, south = deployment.add_edge("north", "n1"), deployment.add_edge("south", "s1")
    deployment.add_hub()
    with handler_in(deployment, "north"), paho(north.tcp, "near", V5) as near, paho(south.tcp, "far", V5) as far:
        near.subscribe("reply/near", 1)
        far.subscribe("reply/far", 1)
        wait_until(lambda: "topic:service/parking/free" in announced_queries(deployment, "north"), "the handler is announced")
        send_request(near, "free", STATION)
        wait_found(near, "near")
        wait_found(far, "far")


def test_rejections_reach_the_driver_also_for_requests_sent_while_the_handler_was_down(deployment: Deployment) -> None:
    # D10
    deployment.add_site("north")
    edge = deployment.add_edge("north", "n1")
    with handler_in(deployment, "north"):
        pass
    with paho(edge.tcp, "driver", V5) as driver:
        driver.subscribe("service/parking/+/reject", 1)
        send_request(driver, "free", {**STATION, "free": -1})
        send_request(driver, "find", HERE)
        with handler_in(deployment, "north"):
            first, second = content(driver.message(30.0)), content(driver.message(30.0))
    assert first[0] == "service/parking/free/reject"
    assert "less than the minimum of 0" in str(first[1])
    assert second == ("service/parking/find/reject", {"reason": "no free space near you"}, "reject")


def announced_queries(deployment: Deployment, site: str) -> set[str]:
    found = [from_record(value) for value in read_table(deployment.log(site), SUBSCRIPTION_INFO).values()]
    return {str(one.subscription.query) for one in found if isinstance(one, Interest)}
