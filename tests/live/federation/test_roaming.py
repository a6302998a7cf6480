"""Endpoints that move between edges lose nothing and get nothing twice, without any special support (D8)."""

import pytest

from live.federation.client_pool import ClientPool
from live.federation.deployment import Deployment
from live.federation.roaming_clients import LeaveMode
from live.mqtt.raw_client import RawClient

ROUND = ("n2", "s1", "n1")


@pytest.mark.parametrize("edges", [("n2", "n1"), ("s1", "n1"), ROUND], ids=["in a site", "between sites", "round"])
def test_an_endpoint_moving_quickly_between_edges_loses_nothing_and_always_finds_its_session(
    deployment: Deployment, pool: ClientPool, name: str, edges: tuple[str, ...]
) -> None:
    # D8
    publishers = {f"{name}-{edge}-{qos}": (deployment.edges[edge], qos) for edge in ("n1", "n2", "s1") for qos in (1, 2)}
    for publisher, (edge, qos) in publishers.items():
        pool.publisher(publisher, edge, topic=f"{name}/{publisher}", qos=qos, rate=50)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=tuple(publishers))
    for leave in LeaveMode:
        for there in edges:
            assert pool.arrive(subscriber.name, deployment.edges[there], leave), f"to {there}, {leave.value}"
            for publisher in publishers:
                pool.wait_seen(subscriber.name, publisher, 2)
    pool.finish()
    pool.check()


def test_an_endpoint_that_moves_again_before_it_is_admitted_loses_nothing(
    deployment: Deployment, pool: ClientPool, name: str
) -> None:
    publishers = tuple(f"{name}-{edge}" for edge in ("n1", "n2", "s1"))
    for publisher in publishers:
        pool.publisher(publisher, deployment.edges[publisher.rpartition("-")[2]], topic=f"{name}/{publisher}", rate=100)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=publishers)
    for number in range(20):
        pool.move(subscriber.name, deployment.edges[ROUND[number % 3]], list(LeaveMode)[number % 2])
        pool.wait(lambda: subscriber.sock is not None, "it knocks")
    assert pool.arrive(subscriber.name, deployment.edges["n1"])
    pool.ledger.allow_any_order(subscriber.name)
    pool.finish()
    pool.check()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize(
    "publisher_edges", [("n1", "n2"), ROUND], ids=["publishers stay in their site", "publishers move between sites"]
)
def test_no_message_of_a_burst_is_lost_while_publishers_and_subscribers_move(
    deployment: Deployment, pool: ClientPool, name: str, qos: int, publisher_edges: tuple[str, ...]
) -> None:
    # D15
    publishers = [f"{name}-{at}" for at in ("this", "that")]
    for publisher in publishers:
        pool.publisher(publisher, deployment.edges["n2"], topic=f"{name}/{publisher}", qos=qos)
    subscribers = [
        pool.subscriber(f"{name}-{at}", deployment.edges["n1"], f"{name}/#", of=tuple(publishers)).name for at in range(3)
    ]
    for number, edge in enumerate(ROUND * 2):
        pool.burst(200, *publishers)
        pool.wait_seen(subscribers[0], publishers[number % 2], 30)
        for subscriber in subscribers:
            pool.move(subscriber, deployment.edges[edge])
        pool.publish_and_move(publishers[number % 2], deployment.edges[publisher_edges[number % len(publisher_edges)]], 10)
    for one in (*publishers, *subscribers):
        pool.wait(lambda: pool.roaming_clients[one].is_subscribed, "it is let in")  # noqa: B023
        assert all(pool.roaming_clients[one].session_present[1:])
    pool.wait(lambda: all(pool.ledger.count_sent(publisher) > 1_200 for publisher in publishers), "all messages are sent")
    if publisher_edges == ROUND:
        for subscriber in subscribers:
            pool.ledger.allow_any_order(subscriber)  # the order of a publisher is guaranteed while it stays at its site
    pool.finish()
    pool.check()


def test_messages_queued_for_an_offline_endpoint_are_delivered_at_another_edge(
    deployment: Deployment, pool: ClientPool, name: str
) -> None:
    """The endpoint is offline: its session is handed over on its next CONNECT, with the messages queued meanwhile."""
    # O4
    publisher = pool.publisher(f"{name}-publisher", deployment.edges["n2"], topic=f"{name}/x", qos=2)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=(publisher.name,))
    for edge in ("s1", "n2", "n1"):
        pool.go_offline(subscriber.name, LeaveMode.WITH_DISCONNECT)
        sent = pool.ledger.count_sent(publisher.name)
        pool.burst(200, publisher.name)
        pool.wait(lambda: pool.ledger.count_acknowledged(publisher.name) >= sent + 200, "all is acknowledged")  # noqa: B023
        assert pool.arrive(subscriber.name, deployment.edges[edge])
        pool.wait(pool.ledger.is_complete, "all messages are received")
    pool.finish()
    pool.check()


def test_a_clean_start_at_another_edge_discards_the_old_session(deployment: Deployment, pool: ClientPool, name: str) -> None:
    publisher = pool.publisher(f"{name}-publisher", deployment.edges["n2"], topic=f"{name}/x")
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#")
    pool.wait_subscribed(subscriber.name, publisher.name)
    pool.go_offline(subscriber.name, LeaveMode.WITH_DISCONNECT)
    pool.burst(50, publisher.name)
    for edge in ("n2", "s1"):
        with RawClient(deployment.edges[edge].tcp) as anew:
            assert not anew.join(subscriber.name, clean=True).session_present
            assert anew.drain() == []
    assert pool.arrive(subscriber.name, deployment.edges["n1"]) is False


def test_a_move_writes_one_log_line(deployment: Deployment, pool: ClientPool, name: str) -> None:
    publisher = pool.publisher(f"{name}-publisher", deployment.edges["n2"], topic=f"{name}/x", qos=1)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=(publisher.name,))
    pool.go_offline(subscriber.name, LeaveMode.WITH_DISCONNECT)
    pool.burst(5, publisher.name)
    pool.wait(lambda: pool.ledger.count_acknowledged(publisher.name) >= 5, "all is acknowledged")
    assert pool.arrive(subscriber.name, deployment.edges["n2"])
    pool.wait(pool.ledger.is_complete, "all messages are received")

    def lines() -> list[str]:
        return [line for line in deployment.edges["n2"].log().splitlines() if "session moved" in line and subscriber.name in line]

    pool.wait(lambda: bool(lines()), "the line is there")
    (line,) = lines()
    assert all(one in line for one in ("north/n1", "north/n2", "completed", "caught up")), line
    pool.finish()
    pool.check()
