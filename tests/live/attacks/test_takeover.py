"""Attack: an anonymous client uses the name of a vehicle that has proven its identity with a certificate.

It must not end the vehicle's session or receive its messages, at the same edge, at another one of the site, or at another site.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from live.attacks.strangers import wait_until_trusted
from live.federation.deployment import Deployment, deployment_in, settings_table
from live.mqtt.packets import P
from live.mqtt.raw_client import Closed, RawClient
from live.udp.edges import HERE, UdpEdge, edge_in
from live.udp.local_authority import LocalAuthority
from milepost.client import Client, Inbox, RefusedByEdge
from milepost.model import Circle, EndpointId, ToArea, ToEndpoint
from milepost.model.addresses import ToNotified

TRUCK: Final = "truck-17"
OTHER_TRUCK: Final = "truck-18"
NOT_AUTHORIZED: Final = 0x87
DEADLINE_S: Final = 60.0
SHORT_SESSIONS: Final = 5


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """north: n1, n2; south: s1; the central hub; UDP with certificates, MQTT open to anonymous clients."""
    folder = tmp_path_factory.mktemp("takeover")
    authority = LocalAuthority.open(folder)
    with deployment_in(folder) as deployment:
        for site, names in (("north", ("n1", "n2")), ("south", ("s1",))):
            table = f"[site]\n{settings_table(deployment.add_site(site))}"
            for name in names:
                deployment.edges[name] = _edge(folder / f"edge-{name}", authority, name, table)
        for edge in deployment.edges.values():
            edge.start()
        deployment.add_hub()
        yield deployment
        assert deployment.faults() == []


def _edge(folder: Path, authority: LocalAuthority, name: str, table: str) -> UdpEdge:
    folder.mkdir()
    return edge_in(folder, authority, udp="reporting_interval_s = 0.5", more=table, name=name)


def attack(edge: UdpEdge, *, clean: bool) -> int:
    """Connect without proof under the vehicle's name; return the reason code that ends the connection, 0 if none does."""
    with RawClient(edge.tcp) as attacker:
        answer = attacker.try_join(TRUCK, clean=clean, props=[(P.SESSION_EXPIRY, 300)])
        if answer.reason:
            return answer.reason
        attacker.subscribe(("private/#", 1))
        try:
            return attacker.close_reason() or 0
        except (TimeoutError, Closed, AssertionError):
            return 0


def order(edge: UdpEdge, payload: bytes, truck: str = TRUCK) -> None:
    """Publish an order for a vehicle."""
    with RawClient(edge.tcp) as publisher:
        publisher.join("dispatcher")
        publisher.publish(f"orders/{truck}", payload, qos=1)


@pytest.mark.parametrize("clean", [False, True], ids=["resume", "clean start"])
@pytest.mark.parametrize("place", ["n1", "n2", "s1"], ids=["same edge", "another edge", "another site"])
def test_an_anonymous_client_does_not_displace_a_certified_vehicle(town: Deployment, place: str, clean: bool) -> None:
    home, attacked = town.edges["n1"], town.edges[place]

    async def work() -> None:
        async with home.client(TRUCK) as truck, truck.subscribe(f"orders/{TRUCK}") as inbox:
            await asyncio.to_thread(order, home, b"before")
            assert (await inbox.receive()).body == b"before"
            reason = await asyncio.to_thread(attack, attacked, clean=clean)
            await asyncio.to_thread(order, home, b"after")
            assert (await inbox.receive()).body == b"after", "the vehicle keeps its session and gets its messages"
            assert reason == NOT_AUTHORIZED

    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))


def test_a_certified_vehicle_displaces_an_anonymous_client_at_another_edge(town: Deployment) -> None:
    async def work(squatter: RawClient) -> None:
        home = town.edges["n1"]
        async with home.client(OTHER_TRUCK) as truck, truck.subscribe(f"orders/{OTHER_TRUCK}") as inbox:
            assert await asyncio.to_thread(squatter.close_reason) == NOT_AUTHORIZED
            await asyncio.to_thread(order, home, b"go", OTHER_TRUCK)
            assert (await inbox.receive()).body == b"go"

    with RawClient(town.edges["n2"].tcp) as squatter:
        squatter.join(OTHER_TRUCK, clean=True)
        asyncio.run(asyncio.wait_for(work(squatter), DEADLINE_S))


def test_the_next_client_with_a_vehicles_name_does_not_cancel_its_alert(town: Deployment) -> None:
    home, name = town.edges["n1"], "truck-19"

    async def cancel(edge: UdpEdge, car: Client, got: Inbox) -> list[bytes]:
        async with edge.mqtt_client(name) as successor:
            await successor.publish("road", b"over", to=ToNotified(("I-9",)), qos=1)
            await successor.publish("road", b"last", to=ToEndpoint(EndpointId(car.name)), qos=1)
        found = []
        while (body := (await got.receive()).body) != b"last":
            found.append(body)
        return found

    async def work() -> None:
        async with home.client("car-19") as car, car.messages() as got:
            async with home.client(name) as truck:
                await wait_until_trusted(truck)
                await truck.publish("road", b"ice", to=ToArea(Circle(HERE, 500.0), "I-9"), valid_for_s=600, qos=1)
                while (await got.receive()).topic != "road":
                    pass
            until = time.monotonic() + DEADLINE_S
            while True:  # until the edge knows that the truck has left
                try:
                    assert await cancel(home, car, got) == []
                    break
                except RefusedByEdge:
                    assert time.monotonic() < until

    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))


def test_a_name_is_free_again_once_its_short_certified_session_has_ended(town: Deployment) -> None:
    home = town.edges["n1"]

    async def visit(name: str) -> None:
        async with home.client(name):
            pass

    for number in range(SHORT_SESSIONS):
        name = f"visitor-{number}"
        asyncio.run(visit(name))
        time.sleep(1.0)  # the edge reads its own claim and its withdrawal
        with RawClient(home.tcp) as client:
            assert client.try_join(name).reason == 0
