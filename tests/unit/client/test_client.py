"""Inboxes and the distribution of messages to them, over a transport without a network."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from milepost.client.client import Client
from milepost.client.errors import ClientClosed, ClientFault, RefusedByEdge
from milepost.client.events import Arrival, ClientState, ClientStateChange
from milepost.client.messages import OutgoingMessage, ReceivedMessage, SubscriptionRequest
from milepost.client.transport import PositionFix, TransportObserver
from milepost.model import Circle, Instant, Malformed, Place, Reason, ToEveryone
from milepost.model.tags import tags as tag_set

UNCLAIMED_MAX = 3
REFUSED = RefusedByEdge.of(Reason.NOT_ALLOWED)


class RecordingCarrier:
    """A transport without a network: records the calls, and numbers subscriptions by filter."""

    name = "car-1"
    url = "mqtt://nowhere"

    def __init__(self) -> None:
        self.acknowledged: list[object] = []
        self.published: list[OutgoingMessage] = []
        self.subscription_ids: dict[str, int] = {}
        self.ended: list[int] = []
        self.refused: RefusedByEdge | None = None
        self.observer: TransportObserver | None = None

    async def open(self, observer: TransportObserver) -> None:
        self.observer = observer
        observer.on_change(ClientStateChange(ClientState.CONNECTED))

    async def publish(self, publication: OutgoingMessage) -> None:
        self.published.append(publication)

    async def report(self, fix: PositionFix) -> None: ...

    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        return self.subscription_ids.setdefault(request.filter, len(self.subscription_ids) + 1)

    async def subscribe(self, subscription_id: int, request: SubscriptionRequest) -> None:
        if self.refused is not None:
            raise self.refused

    async def unsubscribe(self, subscription_id: int) -> None:
        self.ended.append(subscription_id)

    def acknowledge(self, receipt: object) -> None:
        self.acknowledged.append(receipt)

    async def close(self) -> None:
        assert self.observer is not None
        self.observer.on_end(None)


def message(body: bytes, *subscription_ids: int, receipt: object = None) -> Arrival:
    return Arrival(ReceivedMessage("a", body, Instant(0)), subscription_ids, receipt)


def run_with_client(work: Callable[[Client, RecordingCarrier], Awaitable[None]]) -> None:
    async def run() -> None:
        transport = RecordingCarrier()
        client = Client(transport, unclaimed_max=UNCLAIMED_MAX)
        async with asyncio.timeout(10):
            await client.open()
            await work(client, transport)

    asyncio.run(run())


def test_a_message_goes_to_the_inboxes_of_its_subscriptions_and_to_catch_all_inboxes() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        async with client.subscribe("a") as a, client.subscribe("b") as b, client.messages() as everything:
            client.on_arrival(message(b"1", 1))
            client.on_arrival(message(b"2", 1, 2))
            assert [len(a), len(b), len(everything)] == [2, 1, 2]
            assert [(await a.receive()).body, (await a.receive()).body, (await b.receive()).body] == [b"1", b"2", b"2"]
        assert sorted(transport.ended) == [1, 2]

    run_with_client(work)


def test_a_message_is_acknowledged_when_the_last_inbox_has_handed_it_out() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        async with client.subscribe("a") as a, client.subscribe("b") as b:
            client.on_arrival(message(b"1", 1, 2, receipt="x"))
            await a.receive()
            assert transport.acknowledged == []
            await b.receive()
            assert transport.acknowledged == ["x"]

    run_with_client(work)


def test_leaving_an_inbox_acknowledges_its_queued_messages() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        async with client.subscribe("a"):
            client.on_arrival(message(b"1", 1, receipt="x"))
        assert transport.acknowledged == ["x"]

    run_with_client(work)


def test_only_qos_0_messages_are_dropped_oldest_first_and_counted() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        async with client.subscribe("a", limit=2) as inbox:
            client.on_arrival(message(b"kept", 1, receipt="x"))
            for number in range(4):
                client.on_arrival(message(b"%d" % number, 1))
            assert [(await inbox.receive()).body for _ in range(3)] == [b"kept", b"2", b"3"]
            assert (inbox.dropped, client.counters.dropped, client.counters.received) == (2, 2, 5)

    run_with_client(work)


def test_messages_without_an_inbox_wait_for_one_and_are_dropped_oldest_first() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        for number in range(UNCLAIMED_MAX + 1):
            client.on_arrival(message(b"%d" % number, 1, receipt=number))
        client.on_arrival(message(b"other"))
        assert (transport.acknowledged, client.counters.unclaimed) == ([0, 1], 2)
        async with client.subscribe("a") as inbox:
            assert [(await inbox.receive()).body for _ in range(2)] == [b"2", b"3"]
        async with client.messages() as everything:
            assert (await everything.receive()).body == b"other"

    run_with_client(work)


def test_a_cancelled_receive_loses_no_message() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        async with client.subscribe("a") as inbox:
            waiting = asyncio.create_task(inbox.receive())
            await asyncio.sleep(0)
            client.on_arrival(message(b"1", 1))
            waiting.cancel()
            await asyncio.wait([waiting])
            assert waiting.cancelled()
            assert (await inbox.receive()).body == b"1"

    run_with_client(work)


def test_closing_ends_the_iteration_after_the_queued_messages() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        async with client.subscribe("a") as inbox:
            client.on_arrival(message(b"1", 1))
            await client.close()
            assert [one.body async for one in inbox] == [b"1"]
            with pytest.raises(ClientClosed):
                await inbox.receive()
        with pytest.raises(ClientClosed):
            await client.subscribe("b").__aenter__()

    run_with_client(work)


def test_a_fault_is_raised_in_waiting_receivers() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        async with client.subscribe("a") as inbox, client.messages() as everything:
            waiting = asyncio.create_task(inbox.receive())
            await asyncio.sleep(0)
            client.on_end(REFUSED)
            for one in (waiting, everything.receive()):
                with pytest.raises(ClientFault, match="NOT_ALLOWED"):
                    await one

    run_with_client(work)


def test_a_subscription_refused_later_ends_only_its_inbox() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        async with client.subscribe("a") as a, client.subscribe("b") as b:
            client.on_refused(1, REFUSED)
            with pytest.raises(RefusedByEdge):
                await a.receive()
            client.on_arrival(message(b"1", 2))
            assert (await b.receive()).body == b"1"

    run_with_client(work)


def test_a_refused_subscription_leaves_no_state() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        transport.refused = REFUSED
        with pytest.raises(RefusedByEdge):
            await client.subscribe("a").__aenter__()
        client.on_arrival(message(b"1", 1, receipt="x"))
        assert transport.acknowledged == []  # it waits for another inbox

    run_with_client(work)


def test_state_changes_can_be_followed_until_closed() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        changes = client.changes()
        client.on_change(ClientStateChange(ClientState.RECONNECTING, "gone"))
        client.on_change(ClientStateChange(ClientState.CONNECTED))
        await client.close()
        assert [change.state async for change in changes] == [ClientState.RECONNECTING, ClientState.CONNECTED, ClientState.CLOSED]
        assert [change.state async for change in client.changes()] == [ClientState.CLOSED]
        assert client.state is ClientState.CLOSED

    run_with_client(work)


def test_a_publication_has_the_given_fields() -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        await client.publish("a", "text", tags=["ice"], within=Circle(Place(0, 0), 5.0), qos=2)
        await client.publish("a", b"bytes", to=ToEveryone())
        first, second = transport.published
        assert (first.body, first.qos, first.tags) == (b"text", 2, tag_set(["ice"]))
        assert second.address == ToEveryone()
        assert client.counters.published == 2
        with pytest.raises(Malformed):
            await client.publish("a", to=ToEveryone(), within=Circle(Place(0, 0), 5.0))
        with pytest.raises(Malformed):
            await client.publish("a", tags=["no spaces"])

    run_with_client(work)


@pytest.mark.parametrize(
    "asked", [{"query": "a &"}, {"area": "around x"}, {"time_window": "tomorrow"}, {"filter": "#/b"}, {"qos": 7}]
)
def test_an_invalid_subscription_is_refused_before_it_is_sent(asked: dict[str, str]) -> None:
    async def work(client: Client, transport: RecordingCarrier) -> None:
        with pytest.raises(Malformed):
            client.subscribe(**asked)  # type: ignore[arg-type]  # that is the test

    run_with_client(work)
