"""Messages to an area reach the edges that cover a part of it, and no others (M15); without a hub, edges forward them (M33).

Endpoints that enter later are notified then, and the all-clear goes to exactly the notified ones, through moves and a kill.

north: west (covers WEST), middle (covers MIDDLE)      south: east (covers EAST); no edge covers FAR
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from live.client.deadline import run
from live.federation.deployment import Deployment, deployment_in, settings_table
from live.federation.records import LogWatcher
from milepost.client import Client, Inbox
from milepost.federation.member_state import HUB_TIMEOUT_NS
from milepost.model import Circle, Place, ToArea
from milepost.model.addresses import ToNotified
from milepost.model.instants import SECOND_NS
from milepost.model.site_records import CROSS_HUB, ForwardedMessage

WEST, MIDDLE, EAST, FAR = Place(48.0, 10.0), Place(48.0, 11.0), Place(48.0, 12.0), Place(45.0, 9.0)
HOMES = {"west": ("north", WEST), "middle": ("north", MIDDLE), "east": ("south", EAST)}
ANYWHERE = "[vetting]\nmove_mps_max = 0"
OFTEN = "position_interval_s = 0.25\nprediction_s = 0"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with deployment_in(tmp_path_factory.mktemp("land")) as deployment:
        sites = {name: deployment.add_site(name) for name in ("north", "south")}
        for name, (site, place) in HOMES.items():
            other = sites["south" if site == "north" else "north"]
            more = f"[[site.neighbours]]\n{settings_table(other)}\n{ANYWHERE}"
            coverage = f"circle {place.latitude},{place.longitude} 20000"
            deployment.add_edge(site, name, coverage=coverage, limits=OFTEN, more=more, starts=False)
        deployment.add_hub(starts=False)
        deployment.repair()
        yield deployment
        assert deployment.faults() == []


class AreaEndpoints:
    """An endpoint at each edge, in the middle of its coverage, with its inbox."""

    def __init__(self, clients: dict[str, Client], inboxes: dict[str, Inbox]) -> None:
        self.clients = clients
        self.inboxes = inboxes

    async def publish(self, at: str, to: Place, body: str, *, radius_m: float = 500.0) -> None:
        await self.clients[at].publish("warning", body, to=ToArea(Circle(to, radius_m)), qos=1)

    async def receive(self, name: str, within_s: float = 15.0) -> str:
        async with asyncio.timeout(within_s):
            return (await self.inboxes[name].receive()).body.decode()

    def waiting(self) -> dict[str, int]:
        return {name: len(inbox) for name, inbox in self.inboxes.items() if len(inbox)}


def with_endpoints(deployment: Deployment, name: str, work: Callable[[AreaEndpoints], Coroutine[Any, Any, None]]) -> None:
    """Run a test with an endpoint at each edge."""

    async def all_of_it() -> None:
        async with AsyncExitStack() as stack:
            clients: dict[str, Client] = {}
            for at, (_, place) in HOMES.items():
                clients[at] = await stack.enter_async_context(deployment.edges[at].mqtt_client(f"{name}-{at}"))
                await clients[at].report(place.latitude, place.longitude)
            inboxes = {at: await stack.enter_async_context(client.messages()) for at, client in clients.items()}
            endpoints = AreaEndpoints(clients, inboxes)
            await wait_until_known(endpoints)
            await work(endpoints)

    run(all_of_it())


async def wait_until_known(endpoints: AreaEndpoints) -> None:
    """Wait until every edge knows all others: each endpoint receives a message to its place from each edge."""
    for at in HOMES:
        for to, (_, place) in HOMES.items():
            for _ in range(100):
                await endpoints.publish(at, place, "probe")
                try:
                    await endpoints.receive(to, within_s=0.2)
                except TimeoutError:
                    continue
                break
            else:
                raise AssertionError(f"{to} never received from {at}")
    await asyncio.sleep(0.2)
    for inbox in endpoints.inboxes.values():
        while len(inbox):
            await inbox.receive()


def count_in(watch: LogWatcher, body: str) -> int:
    return len([one for one in watch.of(ForwardedMessage) if one.message.body.decode() == body])


def test_a_message_to_an_area_reaches_exactly_the_edges_that_cover_a_part_of_it(deployment: Deployment, name: str) -> None:
    # M14, M15
    watches = {site: LogWatcher(deployment.log(site), CROSS_HUB) for site in ("north", "south")}

    async def work(endpoints: AreaEndpoints) -> None:
        for to, (_, place) in HOMES.items():
            await endpoints.publish("west", place, f"{name} {to}")
        await endpoints.publish("west", FAR, f"{name} nowhere")
        await endpoints.publish("west", Place(48.0, 11.5), f"{name} both", radius_m=60_000.0)
        assert await endpoints.receive("west") == f"{name} west"
        assert [await endpoints.receive("middle") for _ in range(2)] == [f"{name} middle", f"{name} both"]
        assert [await endpoints.receive("east") for _ in range(2)] == [f"{name} east", f"{name} both"]
        assert endpoints.waiting() == {}

    with_endpoints(deployment, name, work)
    for to, in_north, in_south in (("west", 0, 0), ("middle", 1, 0), ("east", 1, 1), ("nowhere", 0, 0), ("both", 1, 1)):
        assert (count_in(watches["north"], f"{name} {to}"), count_in(watches["south"], f"{name} {to}")) == (in_north, in_south), (
            to
        )
    for watch in watches.values():
        watch.close()


def test_an_endpoint_outside_its_edges_coverage_receives_messages_to_its_area(deployment: Deployment, name: str) -> None:
    async def work(endpoints: AreaEndpoints) -> None:
        await endpoints.clients["west"].report(FAR.latitude, FAR.longitude)
        for at in ("middle", "east"):
            for number in range(100):
                await endpoints.publish(at, FAR, f"{at} {number}")
                try:
                    assert (await endpoints.receive("west", within_s=0.2)).startswith(at)
                except TimeoutError:
                    continue
                break
            else:
                raise AssertionError(f"{at} does not find it")
        await endpoints.clients["west"].report(WEST.latitude, WEST.longitude)

    with_endpoints(deployment, name, work)


def test_without_a_hub_edges_forward_to_neighbouring_sites_and_the_hub_does_not_repeat_it(
    deployment: Deployment, name: str
) -> None:
    # M33
    assert deployment.hub is not None
    hub, watch = deployment.hub, LogWatcher(deployment.log("south"), CROSS_HUB)

    async def work(endpoints: AreaEndpoints) -> None:
        await asyncio.to_thread(hub.kill)
        gone_at = time.monotonic()
        await asyncio.sleep(gone_at + 1.2 * HUB_TIMEOUT_NS / SECOND_NS - time.monotonic())
        for number in range(5):
            await endpoints.publish("west", EAST, f"{name} {number}")
        assert [await endpoints.receive("east") for _ in range(5)] == [f"{name} {number}" for number in range(5)]
        await endpoints.publish("east", MIDDLE, f"{name} back")
        assert await endpoints.receive("middle") == f"{name} back"
        await asyncio.to_thread(hub.start)
        await endpoints.publish("west", EAST, f"{name} with")
        assert await endpoints.receive("east") == f"{name} with"
        await asyncio.sleep(0.5)  # duplicates would arrive now
        assert endpoints.waiting() == {}

    with_endpoints(deployment, name, work)
    assert [count_in(watch, f"{name} {word}") for word in (*map(str, range(5)), "with")] == [1] * 6
    watch.close()


async def bodies_of(inbox: Inbox, within_s: float = 1.5) -> list[str]:
    """Return the bodies of all messages that arrive in a while."""
    await asyncio.sleep(within_s)
    return [(await inbox.receive()).body.decode() for _ in range(len(inbox))]


def test_endpoints_that_enter_an_area_later_are_notified_then_and_exactly_the_notified_get_the_all_clear(
    deployment: Deployment, name: str
) -> None:
    everywhere = ToArea(Circle(MIDDLE, 150_000.0), name)

    async def work(endpoints: AreaEndpoints) -> None:
        await endpoints.clients["middle"].publish("warning", "ice", to=everywhere, qos=1, valid_for_s=300)
        assert [await endpoints.receive(at) for at in HOMES] == ["ice"] * 3
        async with deployment.edges["west"].mqtt_client(f"{name}-late") as late, late.messages() as inbox:
            await late.report(FAR.latitude, FAR.longitude)
            assert await bodies_of(inbox) == []
            await late.report(WEST.latitude, WEST.longitude)
            assert await bodies_of(inbox) == ["ice"]
        async with deployment.edges["east"].mqtt_client(f"{name}-late") as late, late.messages() as inbox:
            await late.report(EAST.latitude, EAST.longitude)
            assert await bodies_of(inbox, 4.0) == [], "it was notified at its previous edge"
            deployment.edges["west"].kill()
            deployment.edges["west"].start()
            async with deployment.edges["west"].mqtt_client(f"{name}-new") as new, new.messages() as new_inbox:
                await new.report(WEST.latitude, WEST.longitude)
                assert await bodies_of(new_inbox, 4.0) == ["ice"], "the alert is active after the edge was killed"
                async with deployment.edges["west"].mqtt_client(f"{name}-far") as far, far.messages() as nothing:
                    await far.report(FAR.latitude, FAR.longitude)
                    await endpoints.clients["middle"].publish("warning", "over", to=ToNotified((name,)), qos=1)
                    assert await bodies_of(inbox) == ["over"]
                    assert await bodies_of(new_inbox, 0.0) == ["over"]
                    assert await bodies_of(nothing, 0.0) == []
                    assert [await endpoints.receive(at) for at in HOMES] == ["over"] * 3
                    await far.report(WEST.latitude, WEST.longitude)
                    assert await bodies_of(nothing) == []
        assert endpoints.waiting() == {}

    with_endpoints(deployment, name, work)
