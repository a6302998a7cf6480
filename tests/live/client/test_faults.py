"""Refusals, edges that die, edges that are slow to be heard, applications that are slow to hear."""

import asyncio

import pytest

from live.client.running import MakeEdge, run, url_of, wait_state
from live.mqtt.brokers import Broker, free_port
from milepost.client import Edge, EdgeClosed, EdgeUnreachable, RefusedByEdge, State, connect
from milepost.model import Around, Circle, Place
from milepost.wire.mqtt import Code

HERE = Place(48.1, 11.6)
RULES = """
[[access.rules]]
allow = false
verbs = "both"
topics = "secret/#"
"""


def test_a_refused_message_says_why(make_edge: MakeEdge) -> None:
    broker = make_edge(more=RULES)

    async def work() -> None:
        async with connect(url_of(broker)) as edge:
            for qos in (1, 2):
                with pytest.raises(RefusedByEdge) as fault:
                    await edge.publish("secret/1", b"x", qos=qos)
                assert (fault.value.number, fault.value.name) == (220, "NOT_ALLOWED")
                assert "secret/#" in fault.value.detail
                assert fault.value.advice.startswith("Use a topic that the access rules open")
            with pytest.raises(RefusedByEdge, match="NOT_ALLOWED"):
                await edge.subscribe("secret/#").__aenter__()
            await edge.publish("open/1", b"x", qos=1)

    run(work())


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_wrong_password_is_told_and_not_tried_again(make_edge: MakeEdge, is_reference: bool) -> None:
    broker = make_edge(users={"ada": "swordfish"}, is_reference=is_reference)

    async def work() -> None:
        async with connect(url_of(broker), user="ada", password="swordfish") as edge:
            assert edge.state is State.CONNECTED
        with pytest.raises(RefusedByEdge) as fault:
            await connect(url_of(broker), user="ada", password="wrong", connect_within_s=30).open()
        assert fault.value.name in ("BAD_CREDENTIALS", Code.NOT_AUTHORIZED.name)

    run(work())


def test_whoever_is_taken_over_does_not_fight(broker: Broker, name: str) -> None:  # Mosquitto 2.0 tells nobody
    async def work() -> None:
        first, second = connect(url_of(broker), client_id=name), connect(url_of(broker), client_id=name)
        async with first, first.messages() as inbox, second:
            with pytest.raises(RefusedByEdge, match="SESSION_TAKEN_OVER"):
                await inbox.receive()
            assert first.state is State.CLOSED
            with pytest.raises(RefusedByEdge, match="SESSION_TAKEN_OVER"):
                await first.publish(name)

    run(work())


def test_an_edge_that_is_not_there_is_told_in_time() -> None:
    port = free_port()

    async def work() -> None:
        with pytest.raises(EdgeUnreachable, match=f"127.0.0.1:{port}: Connection refused"):
            await connect(f"mqtt://127.0.0.1:{port}", connect_within_s=0).open()
        with pytest.raises(EdgeUnreachable):
            await connect(f"ws://127.0.0.1:{port}", connect_within_s=0.5).open()

    run(work())


def test_an_edge_that_comes_late_is_waited_for(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge()
    broker.stop()

    async def work() -> None:
        edge = connect(url_of(broker), connect_within_s=50)
        opening = asyncio.create_task(edge.open())
        await asyncio.to_thread(broker.start)
        await opening
        await edge.publish(name, qos=1)
        await edge.close()

    run(work())


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_killed_edge_that_comes_back_loses_nothing(make_edge: MakeEdge, name: str, is_reference: bool) -> None:
    broker = make_edge(is_reference=is_reference)

    async def work() -> None:
        async with connect(url_of(broker), client_id=f"{name}-a") as edge, connect(url_of(broker)) as other:
            changes, others = edge.changes(), other.changes()
            async with edge.subscribe(f"{name}/#", area=None if is_reference else Circle(HERE, 1_000)) as inbox:
                await other.publish(f"{name}/1", b"before", place=HERE, qos=1)
                assert (await inbox.receive()).body == b"before"
                await answered(edge, name)
                await asyncio.to_thread(broker.stop if is_reference else broker.kill)  # Mosquitto writes when it is stopped
                await wait_state(changes, State.AWAY)
                await wait_state(others, State.AWAY)
                waiting = [
                    asyncio.create_task(other.publish(f"{name}/1", b"%d" % number, place=HERE, qos=number)) for number in (1, 2)
                ]
                await restart(broker, is_reference=is_reference)
                await wait_state(changes, State.CONNECTED)
                await asyncio.gather(*waiting)
                assert [(await inbox.receive()).body for _ in range(2)] == [b"1", b"2"]
                assert (edge.state, edge.counts.connections) == (State.CONNECTED, 2)

    run(work())


async def restart(broker: Broker, *, is_reference: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("live.mqtt.brokers.IS_REFERENCE", is_reference)
        await asyncio.to_thread(broker.start)


def test_an_edge_that_was_restarted_is_told_again_where_the_client_is(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge(more="[limits]\nsession_expiry_s_max = 0")  # it forgets every session

    async def work() -> None:
        async with connect(url_of(broker), client_id=name) as edge:
            changes = edge.changes()
            await edge.report(HERE.latitude, HERE.longitude)
            async with edge.subscribe(name, area=Around(1_000)) as inbox, edge.subscribe(name, query="ice") as ice:
                await asyncio.to_thread(broker.kill)
                await restart(broker, is_reference=False)
                await wait_state(changes, State.CONNECTED)
                await edge.publish(name, b"here", place=HERE, tags=["ice"], qos=1)
                assert [(await one.receive()).body for one in (inbox, ice)] == [b"here", b"here"]

    run(work())


def test_under_fire_every_message_of_quality_2_arrives_exactly_once(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge()
    bodies = [b"%d" % number for number in range(300)]

    async def work() -> None:
        edge, other = (connect(url_of(broker), client_id=f"{name}-{one}") for one in ("in", "out"))
        async with edge, other:
            changes = edge.changes()
            async with edge.subscribe(name, qos=2) as inbox:
                sending = [asyncio.create_task(other.publish(name, body, qos=2)) for body in bodies]
                got: list[bytes] = []
                for kill_after in (50, 150):
                    got += [(await inbox.receive()).body for _ in range(kill_after - len(got))]
                    await asyncio.to_thread(broker.kill)
                    await restart(broker, is_reference=False)
                    await wait_state(changes, State.CONNECTED)
                got += [(await inbox.receive()).body for _ in range(len(bodies) - len(got))]
                await asyncio.gather(*sending)
                await other.publish(name, b"last", qos=2)
                assert (await inbox.receive()).body == b"last"
        assert got == bodies

    run(work())


def test_a_client_restarted_under_its_name_gets_what_waited_into_the_right_inbox(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge()

    async def first_life() -> None:
        edge = connect(url_of(broker), client_id=name)
        await edge.open()
        await edge.subscribe(f"{name}/a").__aenter__()
        await edge.subscribe(f"{name}/b").__aenter__()
        await edge.close()  # without leaving the subscriptions, as one that crashes

    async def second_life() -> None:
        async with connect(url_of(broker)) as other:
            for topic in ("b", "a", "b"):
                await other.publish(f"{name}/{topic}", topic.encode(), qos=1)
        edge = connect(url_of(broker), client_id=name)
        async with edge, edge.subscribe(f"{name}/b") as b, edge.subscribe(f"{name}/a") as a:
            assert [(await b.receive()).body for _ in range(2)] == [b"b", b"b"]
            assert (await a.receive()).body == b"a"
            await edge.publish(f"{name}/a", b"new", qos=2)
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
            assert len(inbox) == 10 or either.setup.folder.name.startswith("client-mosquitto")  # which cannot count
            got = [(await inbox.receive()).body for _ in range(51)]
        assert got == [*(b"%d" % number for number in range(50)), b"done"]

    run(work())


async def answered(edge: Edge, name: str) -> None:
    """All that the edge sent before this has arrived: what it answers comes after that."""
    await edge.publish(f"elsewhere/{name}", qos=1)


def test_a_slow_application_drops_the_oldest_of_quality_0_and_counts_them(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker)) as edge, edge.subscribe(name, qos=0, limit=5) as inbox:
            for number in range(20):
                await edge.publish(name, b"%d" % number)
            await edge.publish(name, b"last", qos=1)
            await answered(edge, name)
            assert inbox.dropped == 16
            assert [(await inbox.receive()).body for _ in range(5)] == [b"16", b"17", b"18", b"19", b"last"]

    run(work())


def test_publications_beyond_the_limit_wait_and_are_sent_in_order(broker: Broker, name: str) -> None:
    async def work() -> None:
        async with connect(url_of(broker), waiting_max=3) as edge, edge.subscribe(name) as inbox:
            sending = [asyncio.create_task(edge.publish(name, b"%d" % number, qos=1)) for number in range(100)]
            assert [(await inbox.receive()).body for _ in range(100)] == [b"%d" % number for number in range(100)]
            await asyncio.gather(*sending)

    run(work())


def test_what_waits_when_the_edge_is_closed_is_told(make_edge: MakeEdge, name: str) -> None:
    broker = make_edge()

    async def work() -> None:
        async with connect(url_of(broker)) as edge:
            changes = edge.changes()
            await asyncio.to_thread(broker.kill)
            await wait_state(changes, State.AWAY)
            waiting = asyncio.create_task(edge.publish(name, qos=1))
            await asyncio.sleep(0)
        with pytest.raises(EdgeClosed):
            await waiting
        with pytest.raises(EdgeClosed):
            await edge.publish(name)

    run(work())


def test_an_edge_that_stays_away_is_given_up_after_the_deadline(make_edge: MakeEdge) -> None:
    broker = make_edge()

    async def work() -> None:
        async with connect(url_of(broker), reconnect_within_s=0.5) as edge, edge.messages() as inbox:
            await asyncio.to_thread(broker.kill)
            with pytest.raises(EdgeUnreachable, match="Connection refused"):
                await inbox.receive()
            assert edge.state is State.CLOSED

    run(work())


def test_a_server_that_says_nothing_is_given_up() -> None:
    async def work() -> None:
        held: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        server = await asyncio.start_server(lambda _, writer: held.put_nowait(writer), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        edge = connect(f"mqtt://127.0.0.1:{port}", connect_within_s=0)
        opening = asyncio.create_task(edge.open())
        silent = await held.get()
        await edge.close()
        with pytest.raises(EdgeClosed):
            await opening
        silent.close()
        server.close()

    run(work())
