"""Edges and the central hub are killed, paused and restarted while endpoints move: no acknowledged message is lost (D15).

An endpoint whose session does not come in time is admitted without it, and gets its earlier messages when the edge that has them
is back: then old messages come after new ones, and only lost and duplicated ones count.
"""

import os
import time
from functools import partial
from random import Random

import pytest

from live.federation.client_pool import ClientPool
from live.federation.deployment import Deployment, wait_until
from live.federation.records import Found, LogWatcher
from live.federation.roaming_clients import LeaveMode, RoamingClient
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    ClaimNotice,
    EdgeRef,
    EndpointClaim,
    Handover,
    HandoverTaken,
    Interest,
    MissedMessages,
    SiteRecord,
    inbox_topic,
)

EVERYWHERE = ("n1", "n2", "s1")
SEED = int(os.environ.get("HUB_SEED", "7"))


def senders_everywhere(deployment: Deployment, pool: ClientPool, name: str, *, rate: float, qos: int = 2) -> tuple[str, ...]:
    for edge in EVERYWHERE:
        pool.publisher(f"{name}-{edge}", deployment.edges[edge], topic=f"{name}/{edge}", qos=qos, rate=rate)
    return tuple(f"{name}-{edge}" for edge in EVERYWHERE)


def wait_all_seen(pool: ClientPool, subscriber: RoamingClient, publishers: tuple[str, ...], more: int) -> None:
    for publisher in publishers:
        pool.wait_seen(subscriber.name, publisher, more)


def leave_messages_waiting(pool: ClientPool, subscriber: RoamingClient, publishers: tuple[str, ...], missed: int) -> None:
    """Let messages of each publisher be queued for an endpoint that is offline."""
    pool.go_offline(subscriber.name)
    for publisher in publishers:
        sent = pool.ledger.count_acknowledged(publisher)
        pool.burst(missed, publisher)
        pool.wait(lambda: pool.ledger.count_acknowledged(publisher) >= sent + missed, f"{publisher} is acknowledged")  # noqa: B023


@pytest.mark.parametrize("new", ["n2", "s1"])
def test_messages_queued_at_a_dead_edge_are_handed_over_when_it_is_back(
    deployment: Deployment, pool: ClientPool, name: str, new: str
) -> None:
    publishers = senders_everywhere(deployment, pool, name, rate=50)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=publishers)
    pool.ledger.allow_any_order(subscriber.name)
    leave_messages_waiting(pool, subscriber, publishers, 30)
    deployment.edges["n1"].kill()
    assert not pool.arrive(subscriber.name, deployment.edges[new])
    wait_all_seen(pool, subscriber, tuple(one for one in publishers if not one.endswith("n1")), 20)
    deployment.edges["n1"].start()
    wait_all_seen(pool, subscriber, publishers, 20)
    pool.finish()
    pool.check()
    assert subscriber.session_present == [False, False]


def test_a_session_left_at_another_site_while_the_hub_is_down_is_merged_when_it_is_back(
    deployment: Deployment, pool: ClientPool, name: str
) -> None:
    assert deployment.hub is not None
    publishers = senders_everywhere(deployment, pool, name, rate=50)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=publishers)
    pool.ledger.allow_any_order(subscriber.name)
    leave_messages_waiting(pool, subscriber, publishers, 30)
    deployment.hub.kill()
    killed_at = time.monotonic()
    assert not pool.arrive(subscriber.name, deployment.edges["s1"])
    pool.wait_seen(subscriber.name, f"{name}-s1", 50)
    assert pool.arrive(subscriber.name, deployment.edges["s1"]), "within a site, sessions are found without a hub"
    time.sleep(max(0.0, killed_at + 10 - time.monotonic()))
    deployment.hub.start()
    wait_all_seen(pool, subscriber, publishers, 50)
    pool.finish()
    pool.check()


def test_endpoints_move_within_their_site_while_the_hub_is_down(deployment: Deployment, pool: ClientPool, name: str) -> None:
    assert deployment.hub is not None
    publishers = senders_everywhere(deployment, pool, name, rate=50)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=publishers)
    deployment.hub.kill()
    for edge in ("n2", "n1", "n2"):
        assert pool.arrive(subscriber.name, deployment.edges[edge])
        pool.wait_seen(subscriber.name, f"{name}-n1", 20)
    deployment.hub.start()
    wait_all_seen(pool, subscriber, publishers, 20)
    pool.finish()
    pool.check()


@pytest.mark.parametrize(("new", "pause_s"), [("n2", 10.0), ("s1", 4.0)])
def test_an_edge_paused_while_its_endpoint_left_hands_over_its_session_and_does_not_claim_it_back(
    deployment: Deployment, pool: ClientPool, name: str, new: str, pause_s: float
) -> None:
    """Its late writes change nothing: their epoch is lower."""
    old = deployment.edges["n1"]
    publishers = senders_everywhere(deployment, pool, name, rate=50)
    subscriber = pool.subscriber(f"{name}-subscriber", old, f"{name}/#", of=publishers)
    pool.ledger.allow_any_order(subscriber.name)
    with old.paused():
        paused_at = time.monotonic()
        assert not pool.arrive(subscriber.name, deployment.edges[new], LeaveMode.SILENTLY)
        pool.wait_seen(subscriber.name, f"{name}-{new}", 50)
        time.sleep(max(0.0, paused_at + pause_s - time.monotonic()))
    wait_all_seen(pool, subscriber, publishers, 50)
    pool.finish()
    pool.check()
    assert subscriber.session_present == [False, False], "it stays at the new edge"


def test_a_resumed_edge_that_reads_an_old_connect_hands_the_endpoint_back(
    deployment: Deployment, pool: ClientPool, name: str
) -> None:
    """Its CONNECT waits at the paused edge while the endpoint moves on: in the end one edge has the whole session."""
    publishers = senders_everywhere(deployment, pool, name, rate=50)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n2"], f"{name}/#", of=publishers)
    pool.ledger.allow_any_order(subscriber.name)
    with deployment.edges["n1"].paused():
        pool.move(subscriber.name, deployment.edges["n1"])
        pool.wait(lambda: subscriber.sock is not None, "it knocks")
        assert pool.arrive(subscriber.name, deployment.edges["n2"]), "no other edge has claimed it yet"
        wait_all_seen(pool, subscriber, (f"{name}-n2", f"{name}-s1"), 20)
    wait_all_seen(pool, subscriber, publishers, 50)
    pool.finish()
    pool.check()


def test_acknowledged_messages_arrive_whichever_process_is_killed_during_moves(
    deployment: Deployment, pool: ClientPool, name: str
) -> None:
    """Publishers stay at their edges, which come back: after a clean start they could not know which messages were accepted."""
    # D15
    assert deployment.hub is not None
    random = Random(SEED)
    publishers = senders_everywhere(deployment, pool, name, rate=50)
    subscribers = [
        pool.subscriber(f"{name}-at-{edge}", deployment.edges[edge], f"{name}/#", of=publishers) for edge in EVERYWHERE
    ]
    for subscriber in subscribers:
        pool.ledger.allow_any_order(subscriber.name)
    for victim in random.sample([*EVERYWHERE, "n1", "centre", "centre"], 6):
        for subscriber in subscribers:
            pool.move(subscriber.name, deployment.edges[random.choice(EVERYWHERE)], random.choice(list(LeaveMode)))
        time.sleep(random.uniform(0.0, 0.2))
        process = deployment.hub if victim == "centre" else deployment.edges[victim]
        process.kill()
        process.start()
    for subscriber in subscribers:
        pool.wait(lambda: subscriber.is_subscribed, "it is admitted")  # noqa: B023
        wait_all_seen(pool, subscriber, publishers, 20)
    pool.finish()
    pool.check()


def is_of(found: Found, kind: type[SiteRecord], endpoint: str) -> bool:
    """Return whether a record is a step of the move of an endpoint."""
    value = found.value
    if isinstance(value, Interest):
        return kind is Interest and f"\n{endpoint}\n" in found.key
    claim = value.claim if isinstance(value, ClaimNotice) else value
    return isinstance(value, kind) and getattr(claim, "endpoint", "") == endpoint


STEPS: list[tuple[str, type[SiteRecord], str]] = [
    ("south", EndpointClaim, VEHICLE_INFO),
    ("north", ClaimNotice, inbox_topic(EdgeRef("north", "n1"))),
    ("north", Handover, CROSS_HUB),
    ("south", Handover, CROSS_HUB),
    ("south", MissedMessages, CROSS_HUB),
    ("south", Interest, SUBSCRIPTION_INFO),
    ("south", HandoverTaken, CROSS_HUB),
    ("north", HandoverTaken, CROSS_HUB),
]


def test_the_next_hub_process_finishes_a_move_interrupted_at_any_step(
    deployment: Deployment, pool: ClientPool, name: str
) -> None:
    """Each step is a record: the hub is killed as soon as the log has it."""
    hub = deployment.hub
    assert hub is not None
    publishers = senders_everywhere(deployment, pool, name, rate=50)
    for number, (site, kind, topic) in enumerate(STEPS):
        subscriber = pool.subscriber(f"{name}-{number}", deployment.edges["n1"], f"{name}/#", of=publishers)
        pool.ledger.allow_any_order(subscriber.name)
        watch = LogWatcher(deployment.log(site), topic)
        watch.call_when(partial(is_of, kind=kind, endpoint=subscriber.name), hub.running.kill)
        pool.move(subscriber.name, deployment.edges["s1"])
        wait_until(lambda: not hub.is_alive(), f"{kind.__name__} is in the log of {site}")
        watch.close()
        hub.wait_ended()
        hub.start()
        pool.wait(lambda: subscriber.is_subscribed, "it is admitted")  # noqa: B023
        wait_all_seen(pool, subscriber, publishers, 5)
    pool.finish()
    pool.check()
