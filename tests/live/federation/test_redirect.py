"""An endpoint that drives into another edge's coverage is redirected there, although it could stay connected here (D8)."""

import asyncio
from typing import Final

import pytest

from live.client.deadline import run
from live.federation.deployment import Deployment
from live.mqtt.brokers import free_port
from live.udp.edges import UdpEdge
from milepost.client import Client, ClientState, ClientStateChange, Inbox, connect
from milepost.model import Place

FIRST, SECOND = Place(40.76, -111.90), Place(40.76, -111.80)
ROUND_S: Final = 0.5
STEPS: Final = 20
PARKED: Final = 60
MESSAGES: Final = 300


def add_edge(deployment: Deployment, name: str, place: Place, *, advertised: int | None = None) -> UdpEdge:
    """Add an edge that covers 4 km around a place and advertises its port, or another one."""
    port = free_port()
    limits = f'advertise = "mqtt://127.0.0.1:{advertised or port}"\nposition_interval_s = {ROUND_S}'
    coverage = f"circle {place.latitude},{place.longitude} 4000"
    edge = deployment.add_edge(
        "north", name, coverage=coverage, limits=limits, more="[vetting]\nmove_mps_max = 0\nposition_error_m = 1e9", starts=False
    )
    edge.tcp = port
    edge.start()
    return edge


def url_of(edge: UdpEdge) -> str:
    return f"mqtt://127.0.0.1:{edge.tcp}"


def redirected(edge: UdpEdge) -> float:
    return edge.metrics().get('milepost_site_events_total{event="redirected"}', 0.0)


async def drive(car: Client) -> None:
    """Drive from the first edge's coverage into the second's, and stay there for a while."""
    for step in range(STEPS):
        part = (step + 1) / STEPS
        await car.report(FIRST.latitude, FIRST.longitude + part * (SECOND.longitude - FIRST.longitude))
        await asyncio.sleep(0.05)
    for _ in range(PARKED):
        await car.report(SECOND.latitude, SECOND.longitude)
        await asyncio.sleep(0.1)


async def flow(publisher: Client, topic: str, subscriber: Inbox) -> list[int]:
    """Publish numbers while the car drives; return the received ones, in order of arrival."""
    tuning = asyncio.create_task(subscriber.receive())
    while not tuning.done():  # until the subscription is known at the publisher's edge
        await publisher.publish(topic, b"tuning", qos=2)
        await asyncio.wait([tuning], timeout=0.05)

    async def send() -> None:
        for number in range(MESSAGES):
            await publisher.publish(topic, b"%d" % number, qos=2)
            await asyncio.sleep(0.01)
        await publisher.publish(topic, b"last", qos=2)

    sending = asyncio.create_task(send())
    received = []
    while (body := (await subscriber.receive()).body) != b"last":
        if body != b"tuning":
            received.append(int(body))
    await sending
    return received


@pytest.mark.parametrize("is_there", [True, False], ids=["reached", "out of reach"])
def test_an_endpoint_in_another_edges_coverage_is_redirected_and_loses_nothing(
    own_deployment: Deployment, name: str, is_there: bool
) -> None:
    own_deployment.add_site("north")
    first = add_edge(own_deployment, "first", FIRST)
    second = add_edge(own_deployment, "second", SECOND, advertised=None if is_there else free_port())

    async def work() -> list[ClientStateChange]:
        car = connect(url_of(first), client_id=f"{name}-car")
        near, far = connect(url_of(first)), connect(url_of(second))
        async with (
            car,
            near,
            far,
            car.subscribe(f"{name}/near", qos=2) as from_near,
            car.subscribe(f"{name}/far", qos=2) as from_far,
            near.subscribe(f"{name}/car", qos=2) as from_car,
        ):
            changes = car.changes()
            *received, _ = await asyncio.gather(
                flow(near, f"{name}/near", from_near),
                flow(far, f"{name}/far", from_far),
                flow(car, f"{name}/car", from_car),
                drive(car),
            )
            assert received == [list(range(MESSAGES))] * 3
            assert (car.state, car.url) == (ClientState.CONNECTED, url_of(second if is_there else first))
        return [change async for change in changes]

    redirect, *others = run(work())
    assert redirect.state is ClientState.RECONNECTING
    assert redirect.reason.startswith("179 OUTSIDE_COVERAGE")
    if is_there:
        assert redirect.reason.endswith(f"; connecting to {url_of(second)} instead")
        assert others == [ClientStateChange(ClientState.CONNECTED, f"at {url_of(second)}"), ClientStateChange(ClientState.CLOSED)]
    else:
        turned_back = ClientStateChange(ClientState.RECONNECTING, f"Connection refused; connecting to {url_of(first)} instead")
        assert others == [turned_back, ClientStateChange(ClientState.CONNECTED), ClientStateChange(ClientState.CLOSED)]
    assert (redirected(first), redirected(second)) == (1, 0)
