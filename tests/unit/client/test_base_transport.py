"""The base transport: waiting callers and what completes them, independent of the protocol."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable

import pytest

from milepost.client.base_transport import BaseTransport
from milepost.client.errors import ClientClosed, ClientFault, EdgeUnreachable, RefusedByEdge
from milepost.client.events import (
    Arrival,
    ClientState,
    ClientStateChange,
    Connected,
    Done,
    Ended,
    Event,
    Lost,
    ReportRefused,
    SubscriptionRefused,
    Suppressed,
    Suppression,
)
from milepost.client.messages import OutgoingMessage, ReceivedMessage, SubscriptionRequest
from milepost.client.transport import ClientLimits
from milepost.model import Instant, Reason

REFUSED = RefusedByEdge.of(Reason.NOT_ALLOWED)
REQUEST = SubscriptionRequest("a")


class Recorder:
    """An observer that records everything."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def on_arrival(self, arrival: Arrival) -> None:
        self.seen.append(arrival)

    def on_change(self, change: ClientStateChange) -> None:
        self.seen.append(change)

    def on_suppressed(self, suppressed: Suppressed) -> None:
        self.seen.append(suppressed)

    def on_refused(self, subscription_id: int, fault: ClientFault) -> None:
        self.seen.append((subscription_id, fault))

    def on_end(self, fault: ClientFault | None) -> None:
        self.seen.append(("end", fault))


class Scripted(BaseTransport):
    """A protocol whose events the test injects."""

    def __init__(self, *, pending_max: int = 10) -> None:
        super().__init__("car-1", ClientLimits(pending_max=pending_max))
        self.sent: list[tuple[str, object]] = []
        self.fault: Exception | None = None

    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        return 1

    def put(self, *events: Event) -> None:
        self._dispatch(events)

    def end(self, fault: Exception) -> None:
        self.fault = fault
        self._wake.set()

    async def _keep_connected(self) -> None:
        while not self._closing.is_set():
            await self._wake.wait()
            self._wake.clear()
            if self.fault is not None:
                raise self.fault

    def _publication_sender(self, publication: OutgoingMessage) -> Callable[[], Hashable]:
        return lambda: self._send("publish", publication.topic)

    def _send_subscribe(self, subscription_id: int, request: SubscriptionRequest) -> Hashable:
        return self._send("subscribe", subscription_id)

    def _send_unsubscribe(self, subscription_id: int) -> Hashable | None:
        return self._send("unsubscribe", subscription_id) if self._is_connected else None

    def _withdraw(self, key: Hashable) -> None:
        self.sent.append(("withdraw", key))

    def _on_connected(self) -> str:
        return "at home"

    def _on_ended(self, ended: Ended) -> None:
        if ended.fault is not None:
            self.end(ended.fault)

    def _send(self, kind: str, what: object) -> Hashable:
        self.sent.append((kind, what))
        return kind, what


def run(work: Callable[[Scripted, Recorder], Awaitable[None]], *, pending_max: int = 10) -> Recorder:
    """Open a core, connect it, do the work and close it."""
    recorder = Recorder()

    async def live() -> None:
        core = Scripted(pending_max=pending_max)
        async with asyncio.timeout(10):
            opening = asyncio.create_task(core.open(recorder))
            await asyncio.sleep(0)
            core.put(Connected(is_resumed=False))
            await opening
            await work(core, recorder)
            await core.close()

    asyncio.run(live())
    return recorder


async def begin(work: Awaitable[None]) -> "asyncio.Future[None]":
    """Let a call run until it waits."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


def test_a_call_returns_with_its_own_answer() -> None:
    async def work(core: Scripted, recorder: Recorder) -> None:
        first, second = await begin(core.publish(OutgoingMessage("a"))), await begin(core.publish(OutgoingMessage("b")))
        core.put(Done(("publish", "b"), REFUSED), Done(("publish", "unknown")))
        with pytest.raises(RefusedByEdge):
            await second
        assert not first.done()
        core.put(Done(("publish", "a")), Done(("publish", "a"), REFUSED))
        await first

    run(work)


@pytest.mark.parametrize("fault", [EdgeUnreachable("gone"), None])
def test_every_waiting_caller_gets_an_answer_when_the_client_ends(fault: ClientFault | None) -> None:
    async def work(core: Scripted, recorder: Recorder) -> None:
        calls = [await begin(core.publish(OutgoingMessage("a"))), await begin(core.subscribe(1, REQUEST))]
        if fault is None:
            await core.close()
        else:
            core.put(Ended(fault))
        for call in calls:
            with pytest.raises(ClientClosed if fault is None else EdgeUnreachable):
                await call
        with pytest.raises(ClientFault):
            await core.publish(OutgoingMessage("b"))
        await core.unsubscribe(1)

    assert run(work).seen[-1] == ("end", fault)


def test_the_number_of_unanswered_publications_is_limited() -> None:
    async def work(core: Scripted, recorder: Recorder) -> None:
        calls = [await begin(core.publish(OutgoingMessage(topic))) for topic in "abc"]
        assert core.sent == [("publish", "a"), ("publish", "b")]
        core.put(Done(("publish", "a")))
        await calls[0]
        await asyncio.sleep(0)
        assert core.sent[-1] == ("publish", "c")
        core.put(Done(("publish", "b")), Done(("publish", "c")))
        await asyncio.gather(*calls)

    run(work, pending_max=2)


def test_a_cancelled_call_is_withdrawn() -> None:
    async def work(core: Scripted, recorder: Recorder) -> None:
        call = await begin(core.publish(OutgoingMessage("a")))
        call.cancel()
        await asyncio.wait([call])
        assert core.sent[-1] == ("withdraw", ("publish", "a"))
        core.put(Done(("publish", "a")))

    run(work)


def test_cancelling_a_subscribe_call_ends_the_subscription() -> None:
    async def work(core: Scripted, recorder: Recorder) -> None:
        call = await begin(core.subscribe(7, REQUEST))
        call.cancel()
        await asyncio.wait([call])
        assert core.sent[-1] == ("unsubscribe", 7)

    run(work)


def test_unsubscribe_waits_for_an_answer_only_while_connected() -> None:
    async def work(core: Scripted, recorder: Recorder) -> None:
        call = await begin(core.unsubscribe(7))
        assert not call.done()
        core.put(Done(("unsubscribe", 7), REFUSED))
        await call  # refused or not, no message is delivered any more
        core.put(Lost("away"))
        await core.unsubscribe(8)

    run(work)


def test_the_observer_receives_states_messages_and_refusals_in_order() -> None:
    arrival = Arrival(ReceivedMessage("a", b"", Instant(0)), (1,))

    async def work(core: Scripted, recorder: Recorder) -> None:
        core.put(arrival, Suppressed(Suppression.FORGED), SubscriptionRefused(1, REFUSED), ReportRefused(REFUSED))
        core.put(Lost("silence"), Connected(is_resumed=True))

    connected = ClientStateChange(ClientState.CONNECTED, "at home")
    expected = [
        connected,
        arrival,
        Suppressed(Suppression.FORGED),
        (1, REFUSED),
        ClientStateChange(ClientState.RECONNECTING, "silence"),
        connected,
        ("end", None),
    ]
    assert run(work).seen == expected


def test_closing_while_connecting_raises_in_open() -> None:
    async def live() -> None:
        core = Scripted()
        opening = await begin(core.open(Recorder()))
        await core.close()
        with pytest.raises(ClientClosed):
            await opening

    asyncio.run(live())


def test_closing_does_not_hide_a_bug() -> None:
    async def live() -> None:
        core = Scripted()
        core.end(ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            await core.open(Recorder())

    asyncio.run(live())
