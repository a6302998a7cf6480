"""Redirects: followed, abandoned if the target is unreachable, and not followed in a loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from live.client.deadline import run, wait_state
from live.mqtt.brokers import free_port
from milepost.client import ClientState, ClientStateChange, RefusedByEdge, connect
from milepost.wire.mqtt import Code, Connack, Disconnect, Packet, Properties, Version, encode

Answers = Callable[[int], list[Packet]]
"""The packets for the first client, the second and so on; DISCONNECT ends the connection."""


class Scripted:
    """A server that sends scripted packets and counts connections."""

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
        packets = self._answers(self.came)
        writer.write(b"".join(encode(packet, Version.V5) for packet in packets))
        if packets[-1] == Connack(False):
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
def test_a_client_follows_a_redirect_and_reports_it(is_first: bool) -> None:
    def go(number: int) -> list[Packet]:
        if is_first:
            return [Connack(False, Code.USE_ANOTHER_SERVER, there.reference)]
        return [Connack(False), Disconnect(Code.SERVER_MOVED, there.reference)]

    there = Scripted(yes)

    async def work() -> None:
        nonlocal there
        async with serving(go, yes) as (home, there):
            client = connect(home.url)
            changes = client.changes()
            await client.open()
            while (change := await anext(changes)).reason != f"at {there.url}":
                assert change.state in (ClientState.CONNECTING if is_first else ClientState.RECONNECTING, ClientState.CONNECTED)
                assert change.reason == "" or change.reason.endswith(f"; connecting to {there.url} instead")
            assert (client.url, client.state, home.came, there.came) == (there.url, ClientState.CONNECTED, 1, 1)
            await client.close()

    run(work())


def test_a_client_leaves_an_unreachable_redirect_target_for_its_original_address() -> None:
    nowhere = Properties(server_reference=f"127.0.0.1:{free_port()}")

    def go(number: int) -> list[Packet]:
        return [Connack(False), Disconnect(Code.USE_ANOTHER_SERVER, nowhere)] if number == 1 else [Connack(False)]

    async def work() -> None:
        async with serving(go) as (home,):
            client = connect(home.url)
            changes = client.changes()
            await client.open()
            await wait_state(changes, ClientState.CONNECTED)
            found = [await anext(changes) for _ in range(3)]
            assert found[1:] == [
                ClientStateChange(ClientState.RECONNECTING, f"Connection refused; connecting to {home.url} instead"),
                ClientStateChange(ClientState.CONNECTED),
            ]
            assert (client.url, home.came) == (home.url, 2)
            await client.close()

    run(work())


def test_a_redirect_target_that_refuses_permanently_is_left_at_once() -> None:
    def no(number: int) -> list[Packet]:
        return [Connack(False, Code.NOT_AUTHORIZED)]

    def go(number: int) -> list[Packet]:
        return [Connack(False, Code.USE_ANOTHER_SERVER, there.reference)] if number == 1 else [Connack(False)]

    there = Scripted(no)

    async def work() -> None:
        nonlocal there
        async with serving(go, no) as (home, there), connect(home.url) as client:
            assert (client.url, home.came, there.came) == (home.url, 2, 1)

    run(work())


def test_a_client_refused_permanently_after_a_redirect_stops() -> None:
    def taken_over(number: int) -> list[Packet]:
        return [Connack(False), Disconnect(Code.SESSION_TAKEN_OVER)]

    def go(number: int) -> list[Packet]:
        return [Connack(False, Code.USE_ANOTHER_SERVER, there.reference)]

    there = Scripted(taken_over)

    async def work() -> None:
        nonlocal there
        async with serving(go, taken_over) as (home, there):
            client = connect(home.url)
            await client.open()
            await wait_state(client.changes(), ClientState.CLOSED)
            with pytest.raises(RefusedByEdge, match="SESSION_TAKEN_OVER"):
                await client.publish("a")
            assert (home.came, there.came) == (1, 1)

    run(work())


def test_servers_in_a_redirect_loop_are_retried_with_back_off() -> None:
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
