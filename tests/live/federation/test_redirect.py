"""An endpoint that drives into another edge's coverage is sent there, although its network would still carry it here (D8)."""

import asyncio
from typing import Final

import pytest

from live.client.running import run
from live.federation.town import Town
from live.mqtt.brokers import free_port
from live.udp.edges import UdpEdge
from milepost.client import Change, Edge, Inbox, State, connect
from milepost.model import Place

FIRST, SECOND = Place(40.76, -111.90), Place(40.76, -111.80)
ROUND_S: Final = 0.5
STEPS: Final = 20
PARKED: Final = 60
MESSAGES: Final = 300


def add_edge(town: Town, name: str, place: Place, *, advertised: int | None = None) -> UdpEdge:
    """An edge that covers 4 km around a place and says that it is reached at its port, or at another one."""
    port = free_port()
    limits = f'advertise = "mqtt://127.0.0.1:{advertised or port}"\nplaces_s = {ROUND_S}'
    coverage = f"circle {place.latitude},{place.longitude} 4000"
    edge = town.add_edge(
        "north", name, coverage=coverage, limits=limits, more="[vetting]\nmove_mps_max = 0\nmove_slack_m = 1e9", starts=False
    )
    edge.tcp = port
    edge.start()
    return edge


def url_of(edge: UdpEdge) -> str:
    return f"mqtt://127.0.0.1:{edge.tcp}"


def redirected(edge: UdpEdge) -> float:
    return edge.figures().get('milepost_site_events_total{event="redirected"}', 0.0)


async def drive(car: Edge) -> None:
    """From the first edge's coverage into the second's, and stay there for a while."""
    for step in range(STEPS):
        part = (step + 1) / STEPS
        await car.report(FIRST.latitude, FIRST.longitude + part * (SECOND.longitude - FIRST.longitude))
        await asyncio.sleep(0.05)
    for _ in range(PARKED):
        await car.report(SECOND.latitude, SECOND.longitude)
        await asyncio.sleep(0.1)


async def flow(sender: Edge, topic: str, taker: Inbox) -> list[int]:
    """Say numbers one after the other, as long as the car drives, and hear them: all of them, in the order they are heard."""
    tuning = asyncio.create_task(taker.receive())
    while not tuning.done():  # until the taker's wish has reached the sender's edge
        await sender.publish(topic, b"tuning", qos=2)
        await asyncio.wait([tuning], timeout=0.05)

    async def send() -> None:
        for number in range(MESSAGES):
            await sender.publish(topic, b"%d" % number, qos=2)
            await asyncio.sleep(0.01)
        await sender.publish(topic, b"last", qos=2)

    sending = asyncio.create_task(send())
    heard = []
    while (body := (await taker.receive()).body) != b"last":
        if body != b"tuning":
            heard.append(int(body))
    await sending
    return heard


@pytest.mark.parametrize("is_there", [True, False], ids=["reached", "out of reach"])
def test_who_reports_from_another_edges_coverage_goes_there_if_it_can_and_loses_nothing(
    own_town: Town, name: str, is_there: bool
) -> None:
    own_town.add_site("north")
    first = add_edge(own_town, "first", FIRST)
    second = add_edge(own_town, "second", SECOND, advertised=None if is_there else free_port())

    async def work() -> list[Change]:
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
            *heard, _ = await asyncio.gather(
                flow(near, f"{name}/near", from_near),
                flow(far, f"{name}/far", from_far),
                flow(car, f"{name}/car", from_car),
                drive(car),
            )
            assert heard == [list(range(MESSAGES))] * 3
            assert (car.state, car.url) == (State.CONNECTED, url_of(second if is_there else first))
        return [change async for change in changes]

    told, *others = run(work())
    assert told.state is State.AWAY
    assert told.why.startswith("179 OUTSIDE_COVERAGE")
    if is_there:
        assert told.why.endswith(f"; going to {url_of(second)}")
        assert others == [Change(State.CONNECTED, f"at {url_of(second)}"), Change(State.CLOSED)]
    else:
        turned_back = Change(State.AWAY, f"Connection refused; going to {url_of(first)}")
        assert others == [turned_back, Change(State.CONNECTED), Change(State.CLOSED)]
    assert (redirected(first), redirected(second)) == (1, 0)
