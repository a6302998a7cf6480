"""Servers that name other servers: followed, left when nobody is there, and not followed in circles."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from live.client.running import run, wait_state
from live.mqtt.brokers import free_port
from milepost.client import Change, RefusedByEdge, State, connect
from milepost.wire.mqtt import Code, Connack, Disconnect, Packet, Properties, Version, encode

Answers = Callable[[int], list[Packet]]
"""What a server says to its clients, the first, the second and so on; a DISCONNECT among it ends the connection."""


class Scripted:
    """A server that says what it is told to say, and counts who came."""

    def __init__(self, answers: Answers) -> None:
        self.port = 0
        self.came = 0
        self._answers = answers

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def reference(self) -> Properties:
        return Properties(server_reference=f"127.0.0.1:{self.port}")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        await reader.read(65_536)
        said = self._answers(self.came)
        writer.write(b"".join(encode(packet, Version.V5) for packet in said))
        if said[-1] == Connack(False):
            while await reader.read(65_536):
                pass
        writer.close()


@asynccontextmanager
async def serving(*answers: Answers) -> AsyncIterator[list[Scripted]]:
    servers = [Scripted(one) for one in answers]
    running = []
    for server in servers:
        running.append(await asyncio.start_server(server.serve, "127.0.0.1", 0))
        server.port = running[-1].sockets[0].getsockname()[1]
    try:
        yield servers
    finally:
        for one in running:
            one.close()
            await one.wait_closed()


def yes(number: int) -> list[Packet]:
    return [Connack(False)]


@pytest.mark.parametrize("is_first", [True, False], ids=["in CONNACK", "in DISCONNECT"])
def test_a_client_goes_where_it_is_told_to_and_says_so(is_first: bool) -> None:
    def go(number: int) -> list[Packet]:
        if is_first:
            return [Connack(False, Code.USE_ANOTHER_SERVER, there.reference)]
        return [Connack(False), Disconnect(Code.SERVER_MOVED, there.reference)]

    there = Scripted(yes)

    async def work() -> None:
        nonlocal there
        async with serving(go, yes) as (home, there):
            edge = connect(home.url)
            changes = edge.changes()
            await edge.open()
            while (change := await anext(changes)).why != f"at {there.url}":
                assert change.state in (State.CONNECTING if is_first else State.AWAY, State.CONNECTED)
                assert change.why == "" or change.why.endswith(f"; going to {there.url}")
            assert (edge.url, edge.state, home.came, there.came) == (there.url, State.CONNECTED, 1, 1)
            await edge.close()

    run(work())


def test_a_server_that_is_not_there_is_left_for_the_address_that_was_given() -> None:
    nowhere = Properties(server_reference=f"127.0.0.1:{free_port()}")

    def go(number: int) -> list[Packet]:
        return [Connack(False), Disconnect(Code.USE_ANOTHER_SERVER, nowhere)] if number == 1 else [Connack(False)]

    async def work() -> None:
        async with serving(go) as (home,):
            edge = connect(home.url)
            changes = edge.changes()
            await edge.open()
            await wait_state(changes, State.CONNECTED)
            found = [await anext(changes) for _ in range(3)]
            assert found[1:] == [Change(State.AWAY, f"Connection refused; going to {home.url}"), Change(State.CONNECTED)]
            assert (edge.url, home.came) == (home.url, 2)
            await edge.close()

    run(work())


def test_a_server_that_refuses_for_good_is_left_at_once() -> None:
    def no(number: int) -> list[Packet]:
        return [Connack(False, Code.NOT_AUTHORIZED)]

    def go(number: int) -> list[Packet]:
        return [Connack(False, Code.USE_ANOTHER_SERVER, there.reference)] if number == 1 else [Connack(False)]

    there = Scripted(no)

    async def work() -> None:
        nonlocal there
        async with serving(go, no) as (home, there), connect(home.url) as edge:
            assert (edge.url, home.came, there.came) == (home.url, 2, 1)

    run(work())


def test_who_was_let_in_elsewhere_and_is_told_to_stay_away_does() -> None:
    def taken_over(number: int) -> list[Packet]:
        return [Connack(False), Disconnect(Code.SESSION_TAKEN_OVER)]

    def go(number: int) -> list[Packet]:
        return [Connack(False, Code.USE_ANOTHER_SERVER, there.reference)]

    there = Scripted(taken_over)

    async def work() -> None:
        nonlocal there
        async with serving(go, taken_over) as (home, there):
            edge = connect(home.url)
            await edge.open()
            await wait_state(edge.changes(), State.CLOSED)
            with pytest.raises(RefusedByEdge, match="SESSION_TAKEN_OVER"):
                await edge.publish("a")
            assert (home.came, there.came) == (1, 1)

    run(work())


def test_servers_that_send_clients_round_in_circles_are_asked_less_and_less_often() -> None:
    def to_there(number: int) -> list[Packet]:
        return [Connack(False, Code.USE_ANOTHER_SERVER, there.reference)]

    def to_home(number: int) -> list[Packet]:
        return [Connack(False, Code.USE_ANOTHER_SERVER, home.reference)]

    home, there = Scripted(to_there), Scripted(to_home)

    async def work() -> None:
        nonlocal home, there
        async with serving(to_there, to_home) as (home, there):
            with pytest.raises(RefusedByEdge, match="USE_ANOTHER_SERVER"):
                await connect(home.url, connect_within_s=4).open()
            assert there.came > 1
            assert home.came + there.came < 8

    run(work())
