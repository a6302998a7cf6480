"""Sites on Kafka: everything as on the embedded log, while brokers die and while none of them can be reached.

While it cannot be reached, edges go on serving those who are here, keep what is for others, and refuse when that is too much.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from effort import amount
from live.federation.conftest import HOLD_S
from live.federation.crowds import Crowd
from live.federation.town import Town, town_in
from live.federation.travellers import Leave
from live.mqtt.brokers import free_port
from milepost.model.sites import CROSS_HUB
from milepost.runtime.services.kafka import Kafka, running_kafka

AWAY_S: Final = float(amount("KAFKA_AWAY_S", fast=20, long=20, soak=600))
SPOOL_MAX: Final = 100
QUOTA_EXCEEDED: Final = "0x97"


@pytest.fixture(scope="module")
def three(need_java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running_kafka(tmp_path_factory.mktemp("hub-kafka"), brokers=3) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def city(three: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """north: n1, n2 (which keeps little for others); south: s1; and the centre."""
    with town_in(tmp_path_factory.mktemp("city")) as town:
        for site, edges in (("north", ("n1", "n2")), ("south", ("s1",))):
            town.add_kafka_site(site, three.address, f"{site}.")
            for name in edges:
                small = f"spool_messages_max = {SPOOL_MAX}\n" if name == "n2" else ""
                town.add_edge(site, name, limits=f"hold_s = {HOLD_S}\n{small}", starts=False)
        town.add_centre(starts=False)
        town.repair()
        yield town
        assert town.faults() == []


def test_who_bounces_between_edges_and_sites_on_kafka_loses_nothing(city: Town, crowd: Crowd, name: str) -> None:
    senders = tuple(f"{name}-{edge}" for edge in ("n1", "n2", "s1"))
    for sender in senders:
        crowd.sender(sender, city.edges[sender.rpartition("-")[2]], topic=f"{name}/{sender}", qos=2, rate=50)
    taker = crowd.taker(f"{name}-taker", city.edges["n1"], f"{name}/#", of=senders)
    for leave in Leave:
        for edge in ("n2", "s1", "n1"):
            assert crowd.arrive(taker.name, city.edges[edge], leave), f"to {edge}, {leave.value}"
            for sender in senders:
                crowd.wait_seen(taker.name, sender, 2)
    crowd.finish()
    crowd.check()


def leader_of(kafka: Kafka, topic: str) -> int:
    found = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0}).list_topics(topic, timeout=10)
    leader: int = found.topics[topic].partitions[0].leader
    return leader


def test_one_of_three_brokers_is_killed_while_endpoints_move_and_nothing_is_lost(
    city: Town, three: Kafka, crowd: Crowd, name: str
) -> None:
    senders = tuple(f"{name}-{edge}" for edge in ("n1", "s1"))
    for sender in senders:
        crowd.sender(sender, city.edges[sender.rpartition("-")[2]], topic=f"{name}/{sender}", qos=2, rate=50)
    taker = crowd.taker(f"{name}-taker", city.edges["n1"], f"{name}/#", of=senders)
    crowd.ledger.expect_any_order(taker.name)  # a leader may be away for longer than a session is waited for
    leader = leader_of(three, f"north.{CROSS_HUB}")
    three.kill(leader)
    try:
        for edge in ("s1", "n1"):
            crowd.arrive(taker.name, city.edges[edge])
            for sender in senders:
                crowd.wait_seen(taker.name, sender, 20)
    finally:
        three.start(leader)
    crowd.finish()
    crowd.check()


def test_while_kafka_is_away_edges_serve_who_is_here_keep_what_is_for_others_and_refuse_when_it_is_too_much(
    city: Town, three: Kafka, crowd: Crowd, name: str
) -> None:
    patient, full = f"{name}-patient", f"{name}-full"
    crowd.sender(patient, city.edges["n1"], topic=f"{name}/patient", rate=50)
    crowd.sender(full, city.edges["n2"], topic=f"{name}/full", rate=20)
    here = crowd.taker(f"{name}-here", city.edges["n1"], f"{name}/patient", of=(patient,)).name
    far = crowd.taker(f"{name}-far", city.edges["s1"], f"{name}/#", of=(patient, full)).name
    three.pause()
    try:
        until = time.monotonic() + AWAY_S
        stood = len(crowd.ledger.seen(far, patient))
        crowd.wait_seen(here, patient, 100)
        crowd.wait(lambda: bool(crowd.travellers[full].refusals), "the spool is full")
        time.sleep(max(0.0, until - time.monotonic()))
        crowd.wait_seen(here, patient, 20)
        with crowd.lock:
            assert len(crowd.ledger.seen(far, patient)) - stood < 100, "it was not away"
            assert crowd.travellers[patient].refusals == []
    finally:
        three.resume()
    refusals = crowd.travellers[full].refusals
    assert {one.split()[0] for one in refusals} == {QUOTA_EXCEEDED}
    assert "SPOOL_FULL" in refusals[0]
    crowd.wait_seen(far, patient, 100)
    crowd.wait_seen(far, full, 50)
    refused = len(refusals)
    crowd.wait_seen(far, full, 20)
    crowd.finish(within_s=60)
    crowd.check()
    assert len(crowd.travellers[full].refusals) == refused, "it takes messages again"
    assert city.edges["n2"].refused("SPOOL_FULL") == refused


def test_an_edge_that_is_started_while_kafka_is_away_serves_or_says_why_it_does_not(own_town: Town) -> None:
    address = f"127.0.0.1:{free_port()}"
    own_town.add_kafka_site("north", address, "north.")
    edge = own_town.add_edge("north", "n1", starts=False)
    with suppress(pytest.fail.Exception):
        edge.start()
    assert address in edge.log()
    assert edge.faults() == []
