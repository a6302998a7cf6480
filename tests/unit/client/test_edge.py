"""Inboxes and who gets what, over a carrier that carries nothing."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from milepost.client.carrier import CarrierObserver, Motion
from milepost.client.edge import Edge
from milepost.client.errors import ClientFault, EdgeClosed, RefusedByEdge
from milepost.client.events import Arrival, Change, State
from milepost.client.values import Publication, Received, SubscriptionRequest
from milepost.model import Circle, Instant, Malformed, Place, Reason, ToEveryone
from milepost.model.tags import tags as tag_set

UNCLAIMED_MAX = 3
REFUSED = RefusedByEdge.of(Reason.NOT_ALLOWED)


class Nowhere:
    """A carrier to nowhere: remembers what it was asked, subscription_ids wishes by their filter."""

    name = "car-1"
    url = "mqtt://nowhere"

    def __init__(self) -> None:
        self.taken: list[object] = []
        self.published: list[Publication] = []
        self.subscription_ids: dict[str, int] = {}
        self.ended: list[int] = []
        self.refused: RefusedByEdge | None = None
        self.observer: CarrierObserver | None = None

    async def open(self, observer: CarrierObserver) -> None:
        self.observer = observer
        observer.on_change(Change(State.CONNECTED))

    async def publish(self, publication: Publication) -> None:
        self.published.append(publication)

    async def report(self, motion: Motion) -> None: ...

    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        return self.subscription_ids.setdefault(request.filter, len(self.subscription_ids) + 1)

    async def subscribe(self, subscription_id: int, request: SubscriptionRequest) -> None:
        if self.refused is not None:
            raise self.refused

    async def unsubscribe(self, subscription_id: int) -> None:
        self.ended.append(subscription_id)

    def acknowledge(self, receipt: object) -> None:
        self.taken.append(receipt)

    async def close(self) -> None:
        assert self.observer is not None
        self.observer.on_end(None)


def message(body: bytes, *subscription_ids: int, receipt: object = None) -> Arrival:
    return Arrival(Received("a", body, Instant(0)), subscription_ids, receipt)


def with_edge(work: Callable[[Edge, Nowhere], Awaitable[None]]) -> None:
    async def run() -> None:
        carrier = Nowhere()
        edge = Edge(carrier, unclaimed_max=UNCLAIMED_MAX)
        async with asyncio.timeout(10):
            await edge.open()
            await work(edge, carrier)

    asyncio.run(run())


def test_a_message_goes_to_the_inboxes_it_came_for_and_to_those_that_take_all() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        async with edge.subscribe("a") as a, edge.subscribe("b") as b, edge.messages() as everything:
            edge.on_arrival(message(b"1", 1))
            edge.on_arrival(message(b"2", 1, 2))
            assert [len(a), len(b), len(everything)] == [2, 1, 2]
            assert [(await a.receive()).body, (await a.receive()).body, (await b.receive()).body] == [b"1", b"2", b"2"]
        assert sorted(carrier.ended) == [1, 2]

    with_edge(work)


def test_the_receipt_goes_back_when_the_last_inbox_has_handed_the_message_out() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        async with edge.subscribe("a") as a, edge.subscribe("b") as b:
            edge.on_arrival(message(b"1", 1, 2, receipt="x"))
            await a.receive()
            assert carrier.taken == []
            await b.receive()
            assert carrier.taken == ["x"]

    with_edge(work)


def test_an_inbox_that_is_left_gives_back_what_it_held() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        async with edge.subscribe("a"):
            edge.on_arrival(message(b"1", 1, receipt="x"))
        assert carrier.taken == ["x"]

    with_edge(work)


def test_of_quality_0_the_oldest_is_dropped_and_counted_and_of_others_none() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        async with edge.subscribe("a", limit=2) as inbox:
            edge.on_arrival(message(b"kept", 1, receipt="x"))
            for number in range(4):
                edge.on_arrival(message(b"%d" % number, 1))
            assert [(await inbox.receive()).body for _ in range(3)] == [b"kept", b"2", b"3"]
            assert (inbox.dropped, edge.counts.dropped, edge.counts.received) == (2, 2, 5)

    with_edge(work)


def test_what_nobody_asked_for_waits_for_whoever_asks_and_is_given_up_oldest_first() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        for number in range(UNCLAIMED_MAX + 1):
            edge.on_arrival(message(b"%d" % number, 1, receipt=number))
        edge.on_arrival(message(b"other"))
        assert (carrier.taken, edge.counts.unclaimed) == ([0, 1], 2)
        async with edge.subscribe("a") as inbox:
            assert [(await inbox.receive()).body for _ in range(2)] == [b"2", b"3"]
        async with edge.messages() as everything:
            assert (await everything.receive()).body == b"other"

    with_edge(work)


def test_whoever_is_cancelled_while_it_waits_loses_nothing() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        async with edge.subscribe("a") as inbox:
            waiting = asyncio.create_task(inbox.receive())
            await asyncio.sleep(0)
            edge.on_arrival(message(b"1", 1))
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            assert (await inbox.receive()).body == b"1"

    with_edge(work)


def test_a_closed_edge_ends_the_iteration_after_what_is_here() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        async with edge.subscribe("a") as inbox:
            edge.on_arrival(message(b"1", 1))
            await edge.close()
            assert [one.body async for one in inbox] == [b"1"]
            with pytest.raises(EdgeClosed):
                await inbox.receive()
        with pytest.raises(EdgeClosed):
            await edge.subscribe("b").__aenter__()

    with_edge(work)


def test_a_fault_reaches_whoever_waits() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        async with edge.subscribe("a") as inbox, edge.messages() as everything:
            waiting = asyncio.create_task(inbox.receive())
            await asyncio.sleep(0)
            edge.on_end(REFUSED)
            for one in (waiting, everything.receive()):
                with pytest.raises(ClientFault, match="NOT_ALLOWED"):
                    await one

    with_edge(work)


def test_a_subscription_that_is_refused_later_ends_alone() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        async with edge.subscribe("a") as a, edge.subscribe("b") as b:
            edge.on_refused(1, REFUSED)
            with pytest.raises(RefusedByEdge):
                await a.receive()
            edge.on_arrival(message(b"1", 2))
            assert (await b.receive()).body == b"1"

    with_edge(work)


def test_a_subscription_that_is_refused_leaves_nothing_behind() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        carrier.refused = REFUSED
        with pytest.raises(RefusedByEdge):
            await edge.subscribe("a").__aenter__()
        edge.on_arrival(message(b"1", 1, receipt="x"))
        assert carrier.taken == []  # it waits for somebody else

    with_edge(work)


def test_changes_can_be_followed_to_the_end() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        changes = edge.changes()
        edge.on_change(Change(State.AWAY, "gone"))
        edge.on_change(Change(State.CONNECTED))
        await edge.close()
        assert [change.state async for change in changes] == [State.AWAY, State.CONNECTED, State.CLOSED]
        assert [change.state async for change in edge.changes()] == [State.CLOSED]
        assert edge.state is State.CLOSED

    with_edge(work)


def test_a_publication_says_what_was_said() -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        await edge.publish("a", "text", tags=["ice"], within=Circle(Place(0, 0), 5.0), qos=2)
        await edge.publish("a", b"bytes", to=ToEveryone())
        first, second = carrier.published
        assert (first.body, first.qos, first.tags) == (b"text", 2, tag_set(["ice"]))
        assert second.address == ToEveryone()
        assert edge.counts.published == 2
        with pytest.raises(Malformed):
            await edge.publish("a", to=ToEveryone(), within=Circle(Place(0, 0), 5.0))
        with pytest.raises(Malformed):
            await edge.publish("a", tags=["no spaces"])

    with_edge(work)


@pytest.mark.parametrize(
    "asked", [{"query": "a &"}, {"area": "around x"}, {"time_window": "tomorrow"}, {"filter": "#/b"}, {"qos": 7}]
)
def test_what_cannot_be_asked_is_told_before_it_is_sent(asked: dict[str, str]) -> None:
    async def work(edge: Edge, carrier: Nowhere) -> None:
        with pytest.raises(Malformed):
            edge.subscribe(**asked)  # type: ignore[arg-type]  # that is the test

    with_edge(work)
