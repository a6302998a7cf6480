"""Garbage in the log of a site is counted: readers continue, and endpoints move as before."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from live.federation.client_pool import ClientPool
from live.federation.deployment import Deployment, ask, wait_until
from milepost.eventlog.log import RECORD_BYTES_MAX, Entry, Log
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.queries import OnTopic
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    ClaimNotice,
    EdgeInfo,
    EdgeRef,
    EndpointClaim,
    EndpointPosition,
    EndpointPositions,
    Epoch,
    ForwardedMessage,
    Handover,
    HandoverPart,
    HandoverTaken,
    HeldSubscription,
    HubInfo,
    Interest,
    MissedMessages,
    PrepareHandover,
    PriorEdge,
    QueuedMessage,
    SiteRecord,
    inbox_topic,
)
from milepost.model.subscriptions import Subscription
from milepost.wire.records import to_record

GHOST, N1 = EdgeRef("north", "ghost"), EdgeRef("north", "n1")
POISON: Final = EndpointId("poison")
WRONG: Final[list[Any]] = [None, [], {}, -1, 1.5, True, "", "x\n/y", "1" + "0" * 30, 10**30, [[]] * 3, {"type": "forwarded"}]
GARBAGE: Final = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"null",
    b"[]",
    b"{}",
    b'{"type":7}',
    b'{"type":"no such thing"}',
    b'{"type":"forwarded"',
    b"[" * 100_000,
    b'{"type":"forwarded","x":"' + b"y" * (RECORD_BYTES_MAX - 1_000) + b'"}',
]
KEYS: Final = ["", "@", "@@", "@@hub", "\n", "north/ghost\n\n", "@north/ghost", "poison\nnorth/", "x" * 10_000]


def samples() -> Iterator[SiteRecord]:
    """Yield a record of each kind, for an endpoint and an edge that do not exist."""
    epoch, at = Epoch(5), Instant(7)
    subscription = Subscription(POISON, OnTopic("poison/#"))
    held = (HeldSubscription("poison/#", subscription),)
    message = ForwardedMessage(GHOST, 3, Message(MessageId(1), POISON, "poison/x", at, body=b"poison"))
    yield message
    yield Handover(
        POISON, epoch, GHOST, N1, 4, subscriptions=held, queued=(QueuedMessage(1, 1, False, False, (), False, "", 0, b"x"),)
    )
    yield HandoverPart(POISON, epoch, GHOST, N1, 5)
    yield MissedMessages(POISON, epoch, GHOST, N1, 6, "north/ghost 4", (message,))
    yield HandoverTaken(POISON, epoch, GHOST, N1, 7, held)
    yield EndpointClaim(POISON, GHOST, epoch)
    yield EndpointPositions(GHOST, (EndpointPosition(POISON, Place(1, 2), 3.0, 4.0, at),))
    yield ClaimNotice(EndpointClaim(POISON, GHOST, epoch))
    yield PriorEdge(POISON, epoch, GHOST)
    yield PrepareHandover(POISON, GHOST, epoch, held)
    yield Interest(GHOST, subscription)
    yield EdgeInfo(GHOST, address="mqtt://nowhere:1")
    yield HubInfo("centre", ("north",), at)


def mutations(value: Any) -> Iterator[Any]:
    """Yield the value with one wrong or missing element, at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield {other: one for other, one in value.items() if other != name}
            if name != "type":
                for wrong in [*WRONG, *mutations(inner)]:
                    yield {**value, name: wrong}
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            for wrong in mutations(inner):
                yield [*value[:place], wrong, *value[place + 1 :]]


def poisons() -> list[bytes]:
    found = [*GARBAGE, *(to_record(one) for one in samples())]
    for one in samples():
        found += [json.dumps(mutation).encode() for mutation in mutations(json.loads(to_record(one)))]
    return found


def append_all(log: Log, entries: list[Entry]) -> None:
    confirmations: list[Exception | None] = []
    for first in range(0, len(entries), 200):
        log.append(entries[first : first + 200], confirmations.append)
        wait_until(lambda: len(confirmations) > first // 200, "it is appended")  # noqa: B023
    assert set(confirmations) == {None}


def unreadable(deployment: Deployment, edge: str) -> float:
    page = ask(deployment.edges[edge].http, "/metrics")
    return sum(float(line.rpartition(" ")[2]) for line in page.splitlines() if 'site_events_total{event="unreadable"' in line)


@pytest.mark.parametrize("site", ["north", "south"])
def test_garbage_in_every_reserved_topic_is_only_counted(deployment: Deployment, pool: ClientPool, name: str, site: str) -> None:
    assert deployment.hub is not None
    edge = "n1" if site == "north" else "s1"
    publishers = tuple(f"{name}-{one}" for one in ("n1", "n2", "s1"))
    for publisher in publishers:
        pool.publisher(publisher, deployment.edges[publisher.rpartition("-")[2]], topic=f"{name}/{publisher}", qos=2, rate=30)
    subscriber = pool.subscriber(f"{name}-subscriber", deployment.edges["n1"], f"{name}/#", of=publishers)
    values = poisons()
    before = unreadable(deployment, edge)
    for topic in (CROSS_HUB, SUBSCRIPTION_INFO, VEHICLE_INFO, inbox_topic(EdgeRef(site, edge))):
        keys = [str(EdgeRef(site, edge)), *KEYS]
        entries = [Entry(topic, keys[number // 2 % len(keys) * (number % 2)], value) for number, value in enumerate(values)]
        append_all(deployment.log(site), [*entries, *(Entry(topic, key, None) for key in KEYS)])
    for there in ("n2", "s1", "n1"):
        pool.arrive(subscriber.name, deployment.edges[there])
        for publisher in publishers:
            pool.wait_seen(subscriber.name, publisher, 5)
    pool.finish()
    pool.check()
    assert all(subscriber.session_present[1:])
    assert unreadable(deployment, edge) > before + 100
    assert all(one.is_alive() for one in deployment.processes)
