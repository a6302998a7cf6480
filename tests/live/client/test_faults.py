"""Refusals, killed and slow edges, slow applications."""

import asyncio

import pytest

from live.client.deadline import MakeEdge, run, url_of, wait_state
from live.mqtt.brokers import Broker, free_port
from milepost.client import Client, ClientClosed, ClientState, EdgeUnreachable, RefusedByEdge, connect
from milepost.model import Around, Circle, Place
from milepost.wire.mqtt import Code

HERE = Place(48.1, 11.6)
RULES = """
[[access.rules]]
allow = false
action = "both"
topics = "secret/#"
"""


def test_a_refused_message_carries_the_reason(make_edge: MakeEdge) -> None:
    broker = make_edge(more=RULES)

    async def work() -> None:
        async with connect(url_of(broker)) as client:
            for qos in (1, 2):
                with pytest.raises(RefusedByEdge) as fault:
                    await client.publish("secret/1", b"x", qos=qos)
                assert (fault.value.number, fault.value.name) == (220, "NOT_ALLOWED")
                assert "secret/#" in fault.value.detail
                assert fault.value.advice.startswith("Use a topic that the access rules allow")
            with pytest.raises(RefusedByEdge, match="NOT_ALLOWED"):
                await client.subscribe("secret/#").__aenter__()
            await client.publish("open/1", b"x", qos=1)

    run(work())


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_wrong_password_is_reported_and_not_retried(make_edge: MakeEdge, is_reference: bool) -> None:
    broker = make_edge(users={"ada": "swordfish"}, is_reference=is_reference)

    async def work() -> None:
        async with connect(url_of(broker), user="ada", password="swordfish") as client:
            assert client.state is ClientState.CONNECTED
        with pytest.raises(RefusedByEdge) as fault:
            await connect(url_of(broker), user="ada", password="wrong", connect_within_s=30).open()
        assert fault.value.name in ("BAD_CREDENTIALS", Code.NOT_AUTHORIZED.name)

    run(work())


def test_a_client_whose_session_is_taken_over_does_not_reconnect(broker: Broker, name: str) -> None:
    # without Mosquitto, because 2.0 sends no reason code
    async def work() -> None:
        first, second = connect(url_of(broker), client_id=name), connect(url_of(broker), client_id=name)
        async with first, first.messages() as inbox, second:
            with pytest.raises(RefusedByEdge, match="SESSION_TAKEN_OVER"):
                await inbox.receive()
            assert first.state is ClientState.CLOSED
            with pytest.raises(RefusedByEdge, match="SESSION_TAKEN_OVER"):
                await first.publish(name)

    run(work())


def test_an_unreachable_edge_is_reported_in_time() -> None:
    port = free_port()

    async def work() -> None:
        with pytest.raises(EdgeUnreachable, match=f"127.0.0.1:{port}: Connection refused"):
            await connect(f"mqtt://127.0.0.1:{port}", connect_within_s=0).open()
        with pytest.raises(EdgeUnreachable):
            await connect(f"ws://127.0.0.1:{port}", connect_within_s=0.5).open()

    run(work())


def test_an_edge_that_starts_late_is_waited_for(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge()
    broker.stop()

    async def work() -> None:
        client = connect(url_of(broker), connect_within_s=50)
        opening = asyncio.create_task(client.open())
        await asyncio.to_thread(broker.start)
        await opening
        await client.publish(name, qos=1)
        await client.close()

    run(work())


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_killed_and_restarted_edge_loses_nothing(make_edge: MakeEdge, name: str, is_reference: bool) -> None:
    broker = make_edge(is_reference=is_reference)

    async def work() -> None:
        async with connect(url_of(broker), client_id=f"{name}-a") as client, connect(url_of(broker)) as other:
            changes, others = client.changes(), other.changes()
            async with client.subscribe(f"{name}/#", area=None if is_reference else Circle(HERE, 1_000)) as inbox:
                await other.publish(f"{name}/1", b"before", place=HERE, qos=1)
                assert (await inbox.receive()).body == b"before"
                await answered(client, name)
                await asyncio.to_thread(broker.stop if is_reference else broker.kill)  # Mosquitto writes when it is stopped
                await wait_state(changes, ClientState.RECONNECTING)
                await wait_state(others, ClientState.RECONNECTING)
                waiting = [
                    asyncio.create_task(other.publish(f"{name}/1", b"%d" % number, place=HERE, qos=number)) for number in (1, 2)
                ]
                await restart(broker, is_reference=is_reference)
                await wait_state(changes, ClientState.CONNECTED)
                await asyncio.gather(*waiting)
                assert [(await inbox.receive()).body for _ in range(2)] == [b"1", b"2"]
                assert (client.state, client.counters.connections) == (ClientState.CONNECTED, 2)

    run(work())


async def restart(broker: Broker, *, is_reference: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("live.mqtt.brokers.IS_REFERENCE", is_reference)
        await asyncio.to_thread(broker.start)


def test_the_position_is_reported_again_to_a_restarted_edge(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge(more="[limits]\nsession_expiry_s_max = 0")  # it forgets every session

    async def work() -> None:
        async with connect(url_of(broker), client_id=name) as client:
            changes = client.changes()
            await client.report(HERE.latitude, HERE.longitude)
            async with client.subscribe(name, area=Around(1_000)) as inbox, client.subscribe(name, query="ice") as ice:
                await asyncio.to_thread(broker.kill)
                await restart(broker, is_reference=False)
                await wait_state(changes, ClientState.CONNECTED)
                await client.publish(name, b"here", place=HERE, tags=["ice"], qos=1)
                assert [(await one.receive()).body for one in (inbox, ice)] == [b"here", b"here"]

    run(work())


def test_under_faults_every_qos_2_message_arrives_exactly_once(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge()
    bodies = [b"%d" % number for number in range(300)]

    async def work() -> None:
        client, other = (connect(url_of(broker), client_id=f"{name}-{one}") for one in ("in", "out"))
        async with client, other:
            changes = client.changes()
            async with client.subscribe(name, qos=2) as inbox:
                sending = [asyncio.create_task(other.publish(name, body, qos=2)) for body in bodies]
                got: list[bytes] = []
                for kill_after in (50, 150):
                    got += [(await inbox.receive()).body for _ in range(kill_after - len(got))]
                    await asyncio.to_thread(broker.kill)
                    await restart(broker, is_reference=False)
                    await wait_state(changes, ClientState.CONNECTED)
                got += [(await inbox.receive()).body for _ in range(len(bodies) - len(got))]
                await asyncio.gather(*sending)
                await other.publish(name, b"last", qos=2)
                assert (await inbox.receive()).body == b"last"
        assert got == bodies

    run(work())


def test_a_restarted_client_gets_its_queued_messages_in_the_right_inbox(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge()

    async def first_life() -> None:
        client = connect(url_of(broker), client_id=name)
        await client.open()
        await client.subscribe(f"{name}/a").__aenter__()
        await client.subscribe(f"{name}/b").__aenter__()
        await client.close()  # without leaving the subscriptions, as one that crashes

    async def second_life() -> None:
        async with connect(url_of(broker)) as other:
            for topic in ("b", "a", "b"):
                await other.publish(f"{name}/{topic}", topic.encode(), qos=1)
        client = connect(url_of(broker), client_id=name)
        async with client, client.subscribe(f"{name}/b") as b, client.subscribe(f"{name}/a") as a:
            assert [(await b.receive()).body for _ in range(2)] == [b"b", b"b"]
            assert (await a.receive()).body == b"a"
            await client.publish(f"{name}/a", b"new", qos=2)
            assert (await a.receive()).body == b"new"

    run(first_life())
    run(second_life())


def test_a_slow_application_slows_the_edge_down_and_loses_nothing(either: Broker, name: str) -> None:
    async def work() -> None:
        slow, other = connect(url_of(either), receive_max=10), connect(url_of(either))
        async with slow, other, slow.subscribe(f"{name}/#") as inbox:
            for number in range(50):
                await other.publish(f"{name}/1", b"%d" % number, qos=1)
            await other.publish(f"{name}/0", b"done", qos=1)
            await answered(slow, name)
            assert len(inbox) == 10 or either.setup.folder.name.startswith("client-mosquitto")  # which miscounts
            got = [(await inbox.receive()).body for _ in range(51)]
        assert got == [*(b"%d" % number for number in range(50)), b"done"]

    run(work())


async def answered(client: Client, name: str) -> None:
    """Return once everything that the edge sent before has arrived: its answer comes after that."""
    await client.publish(f"elsewhere/{name}", qos=1)


def test_a_slow_application_drops_the_oldest_qos_0_messages_and_counts_them(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker)) as client, client.subscribe(name, qos=0, limit=5) as inbox:
            for number in range(20):
                await client.publish(name, b"%d" % number)
            await client.publish(name, b"last", qos=1)
            await answered(client, name)
            assert inbox.dropped == 16
            assert [(await inbox.receive()).body for _ in range(5)] == [b"16", b"17", b"18", b"19", b"last"]

    run(work())


def test_publications_beyond_the_limit_block_and_are_sent_in_order(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker), pending_max=3) as client, client.subscribe(name) as inbox:
            sending = [asyncio.create_task(client.publish(name, b"%d" % number, qos=1)) for number in range(100)]
            assert [(await inbox.receive()).body for _ in range(100)] == [b"%d" % number for number in range(100)]
            await asyncio.gather(*sending)

    run(work())


def test_pending_calls_fail_when_the_client_is_closed(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge()

    async def work() -> None:
        async with connect(url_of(broker)) as client:
            changes = client.changes()
            await asyncio.to_thread(broker.kill)
            await wait_state(changes, ClientState.RECONNECTING)
            waiting = asyncio.create_task(client.publish(name, qos=1))
            await asyncio.sleep(0)
        with pytest.raises(ClientClosed):
            await waiting
        with pytest.raises(ClientClosed):
            await client.publish(name)

    run(work())


def test_an_unreachable_edge_is_given_up_after_the_deadline(make_edge: MakeEdge) -> None:
    broker = make_edge()

    async def work() -> None:
        async with connect(url_of(broker), reconnect_within_s=0.5) as client, client.messages() as inbox:
            await asyncio.to_thread(broker.kill)
            with pytest.raises(EdgeUnreachable, match="Connection refused"):
                await inbox.receive()
            assert client.state is ClientState.CLOSED

    run(work())


def test_a_silent_server_is_given_up() -> None:
    async def work() -> None:
        held: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        server = await asyncio.start_server(lambda _, writer: held.put_nowait(writer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = connect(f"mqtt://127.0.0.1:{port}", connect_within_s=0)
        opening = asyncio.create_task(client.open())
        silent = await held.get()
        await client.close()
        with pytest.raises(ClientClosed):
            await opening
        silent.close()
        server.close()

    run(work())
