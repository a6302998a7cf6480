"""Sites on Kafka behave as on the embedded log, while brokers fail and while the cluster is unavailable.

During an outage edges serve their own sessions, spool the messages for other edges, and refuse messages when the spool is full.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient

from effort import amount
from live.federation.client_pool import ClientPool
from live.federation.conftest import HANDOVER_TIMEOUT_S
from live.federation.deployment import Deployment, deployment_in
from live.federation.roaming_clients import LeaveMode
from live.mqtt.brokers import free_port
from milepost.model.site_records import CROSS_HUB
from milepost.runtime.services.kafka import Kafka, running_kafka

AWAY_S: Final = float(amount("KAFKA_AWAY_S", fast=20, long=20, soak=600))
SPOOL_MAX: Final = 100
QUOTA_EXCEEDED: Final = "0x97"


@pytest.fixture(scope="module")
def three(need_java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running_kafka(tmp_path_factory.mktemp("hub-kafka"), brokers=3) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def deployment(three: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """north: n1, n2 (with a small spool); south: s1; and the central hub."""
    with deployment_in(tmp_path_factory.mktemp("city")) as deployment:
        for site, edges in (("north", ("n1", "n2")), ("south", ("s1",))):
            deployment.add_kafka_site(site, three.address, f"{site}.")
            for name in edges:
                small = f"spool_messages_max = {SPOOL_MAX}\n" if name == "n2" else ""
                deployment.add_edge(site, name, limits=f"handover_timeout_s = {HANDOVER_TIMEOUT_S}\n{small}", starts=False)
        deployment.add_hub(starts=False)
        deployment.repair()
        yield deployment
        assert deployment.faults() == []


def test_an_endpoint_moving_quickly_between_edges_and_sites_on_kafka_loses_nothing(
    deployment: Deployment, pool: ClientPool, name: str
) -> None:
    publishers = tuple(f"{name}-{edge}" for edge in ("n1", "n2", "s1"))
    for publisher in publishers:
        pool.publisher(publisher, deployment.edges[publisher.rpartition("-")[2]], topic=f"{name}/{publisher}", qos=2, rate=50)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=publishers)
    for leave in LeaveMode:
        for edge in ("n2", "s1", "n1"):
            assert pool.arrive(subscriber.name, deployment.edges[edge], leave), f"to {edge}, {leave.value}"
            for publisher in publishers:
                pool.wait_seen(subscriber.name, publisher, 2)
    pool.finish()
    pool.check()


def leader_of(kafka: Kafka, topic: str) -> int:
    found = AdminClient({"bootstrap.servers": kafka.address, "log_level": 0}).list_topics(topic, timeout=10)
    leader: int = found.topics[topic].partitions[0].leader
    return leader


def test_one_of_three_brokers_is_killed_while_endpoints_move_and_nothing_is_lost(
    deployment: Deployment, three: Kafka, pool: ClientPool, name: str
) -> None:
    publishers = tuple(f"{name}-{edge}" for edge in ("n1", "s1"))
    for publisher in publishers:
        pool.publisher(publisher, deployment.edges[publisher.rpartition("-")[2]], topic=f"{name}/{publisher}", qos=2, rate=50)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=publishers)
    pool.ledger.allow_any_order(subscriber.name)  # a leader may be away for longer than a client waits for its session
    leader = leader_of(three, f"north.{CROSS_HUB}")
    three.kill(leader)
    try:
        for edge in ("s1", "n1"):
            pool.arrive(subscriber.name, deployment.edges[edge])
            for publisher in publishers:
                pool.wait_seen(subscriber.name, publisher, 20)
    finally:
        three.start(leader)
    pool.finish()
    pool.check()


def test_while_kafka_is_down_edges_serve_locally_spool_and_refuse_beyond_the_limit(
    deployment: Deployment, three: Kafka, pool: ClientPool, name: str
) -> None:
    patient, full = f"{name}-patient", f"{name}-full"
    pool.publisher(patient, deployment.edges["n1"], topic=f"{name}/patient", rate=50)
    pool.publisher(full, deployment.edges["n2"], topic=f"{name}/full", rate=20)
    here = pool.subscriber(f"{name}-here", deployment.edges["n1"], f"{name}/patient", of=(patient,)).name
    far = pool.subscriber(f"{name}-far", deployment.edges["s1"], f"{name}/#", of=(patient, full)).name
    three.pause()
    try:
        until = time.monotonic() + AWAY_S
        stood = len(pool.ledger.seen(far, patient))
        pool.wait_seen(here, patient, 100)
        pool.wait(lambda: bool(pool.roaming_clients[full].refusals), "the spool is full")
        time.sleep(max(0.0, until - time.monotonic()))
        pool.wait_seen(here, patient, 20)
        with pool.lock:
            assert len(pool.ledger.seen(far, patient)) - stood < 100, "Kafka was not down"
            assert pool.roaming_clients[patient].refusals == []
    finally:
        three.resume()
    refusals = pool.roaming_clients[full].refusals
    assert {one.split()[0] for one in refusals} == {QUOTA_EXCEEDED}
    assert "SPOOL_FULL" in refusals[0]
    pool.wait_seen(far, patient, 100)
    pool.wait_seen(far, full, 50)
    refused = len(refusals)
    pool.wait_seen(far, full, 20)
    pool.finish(within_s=60)
    pool.check()
    assert len(pool.roaming_clients[full].refusals) == refused, "it accepts messages again"
    assert deployment.edges["n2"].refused("SPOOL_FULL") == refused


def test_an_edge_started_while_kafka_is_down_serves_or_logs_why_it_does_not(own_deployment: Deployment) -> None:
    address = f"127.0.0.1:{free_port()}"
    own_deployment.add_kafka_site("north", address, "north.")
    edge = own_deployment.add_edge("north", "n1", starts=False)
    with suppress(pytest.fail.Exception):
        edge.start()
    assert address in edge.log()
    assert edge.faults() == []
