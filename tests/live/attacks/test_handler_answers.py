"""Attack: a client has a handler answer on a topic that it may not read, or reads answers that are not for it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.attacks.edge_rules import rule
from live.federation.deployment import Deployment, deployment_in, wait_until
from live.handlers.test_edges import HERE, STATION, announced_queries, handler_in
from live.mqtt.packets import Kind, P
from live.mqtt.raw_client import RawClient

NOT_AUTHORIZED = 0x87
WAIT_S = 30.0
ANSWERS = ("secret/answers", "service/parking/find/accept", "open/answers")
RULES = rule("secret/#", client="spy") + rule("service/parking/+/accept", client="spy") + rule("Alert/#", "publish")


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deployment_in(tmp_path) as made:
        yield made
        assert made.faults() == []


def send_request(client: RawClient, verb: str, body: object, response_topic: str = "") -> int:
    """Send a request; return the reason code of its PUBACK."""
    properties = [(P.RESPONSE_TOPIC, response_topic)] if response_topic else []
    answer = client.publish(f"service/parking/{verb}", json.dumps(body).encode(), qos=1, props=properties)
    assert answer is not None
    return answer.reason


def topics_of(client: RawClient) -> set[str]:
    """Return the topics of the messages received, and acknowledge them."""
    found = [one for one in client.drain() if one.kind is Kind.PUBLISH]
    for message in found:
        client.finish(message)
    return {one.topic for one in found}


def test_answers_go_only_to_topics_that_the_requester_may_read_and_only_to_their_readers(deployment: Deployment) -> None:
    deployment.add_site("north")
    edge = deployment.add_edge("north", "n1", more=RULES)
    with handler_in(deployment, "north"), RawClient(edge.tcp) as spy, RawClient(edge.tcp) as driver:
        spy.join("spy")
        driver.join("driver")
        wait_until(lambda: "topic:service/parking/free" in announced_queries(deployment, "north"), "the handler is announced")
        assert spy.subscribe(("#", 1)).codes == (1,)
        driver.subscribe(("#", 1))
        assert send_request(spy, "find", HERE, "secret/answers") == NOT_AUTHORIZED, "the requester may not read its answer"
        assert send_request(spy, "find", HERE, "Alert/Collision") == NOT_AUTHORIZED, "a handler does not warn for its requester"
        assert send_request(driver, "free", STATION) < 0x80
        found: set[str] = set()
        until = time.monotonic() + WAIT_S
        while not found.issuperset(ANSWERS):  # until the edge knows the handler
            assert time.monotonic() < until, found
            for response_topic in ("secret/answers", "", "open/answers"):
                assert send_request(driver, "find", HERE, response_topic) < 0x80
            found |= topics_of(driver)
        seen = topics_of(spy)
        assert "open/answers" in seen
        assert seen.isdisjoint({"secret/answers", "service/parking/find/accept"})
