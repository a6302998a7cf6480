"""Messages to an area reach the edges that it concerns, and no others (M15); without a centre, neighbours pass them on (M33).

Who comes in later is told then, and the last word goes to exactly those who were told, through moves and a death.

north: west (covers WEST), middle (covers MIDDLE)      south: east (covers EAST); nobody covers FAR
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from live.client.running import run
from live.federation.records import Watch
from live.federation.town import Town, table_of, town_in
from milepost.client import Edge, Inbox
from milepost.federation.member_state import HUB_AWAY_NS
from milepost.model import Circle, Place, ToArea
from milepost.model.addresses import ToNotified
from milepost.model.instants import SECOND_NS
from milepost.model.sites import CROSS_HUB, ForwardedMessage

WEST, MIDDLE, EAST, FAR = Place(48.0, 10.0), Place(48.0, 11.0), Place(48.0, 12.0), Place(45.0, 9.0)
HOMES = {"west": ("north", WEST), "middle": ("north", MIDDLE), "east": ("south", EAST)}
ANYWHERE = "[vetting]\nmove_mps_max = 0"
OFTEN = "places_s = 0.25\nahead_s = 0"


@pytest.fixture(scope="module")
def land(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    with town_in(tmp_path_factory.mktemp("land")) as town:
        sites = {name: town.add_site(name) for name in ("north", "south")}
        for name, (site, place) in HOMES.items():
            other = sites["south" if site == "north" else "north"]
            more = f"[[site.neighbours]]\n{table_of(other)}\n{ANYWHERE}"
            coverage = f"circle {place.latitude},{place.longitude} 20000"
            town.add_edge(site, name, coverage=coverage, limits=OFTEN, more=more, starts=False)
        town.add_centre(starts=False)
        town.repair()
        yield town
        assert town.faults() == []


class Ears:
    """An endpoint at each edge, in the middle of what it covers, and what has reached it."""

    def __init__(self, clients: dict[str, Edge], inboxes: dict[str, Inbox]) -> None:
        self.clients = clients
        self.inboxes = inboxes

    async def say(self, at: str, to: Place, body: str, *, radius_m: float = 500.0) -> None:
        await self.clients[at].publish("warning", body, to=ToArea(Circle(to, radius_m)), qos=1)

    async def heard(self, name: str, within_s: float = 15.0) -> str:
        async with asyncio.timeout(within_s):
            return (await self.inboxes[name].receive()).body.decode()

    def waiting(self) -> dict[str, int]:
        return {name: len(inbox) for name, inbox in self.inboxes.items() if len(inbox)}


def with_ears(land: Town, name: str, work: Callable[[Ears], Coroutine[Any, Any, None]]) -> None:
    """Run a test with an endpoint at each edge."""

    async def all_of_it() -> None:
        async with AsyncExitStack() as stack:
            clients: dict[str, Edge] = {}
            for at, (_, place) in HOMES.items():
                clients[at] = await stack.enter_async_context(land.edges[at].mqtt_client(f"{name}-{at}"))
                await clients[at].report(place.latitude, place.longitude)
            inboxes = {at: await stack.enter_async_context(client.messages()) for at, client in clients.items()}
            ears = Ears(clients, inboxes)
            await wait_settled(ears)
            await work(ears)

    run(all_of_it())


async def wait_settled(ears: Ears) -> None:
    """Until everybody knows of everybody: each hears a message to its place from each edge."""
    for at in HOMES:
        for to, (_, place) in HOMES.items():
            for _ in range(100):
                await ears.say(at, place, "settle")
                try:
                    await ears.heard(to, within_s=0.2)
                except TimeoutError:
                    continue
                break
            else:
                raise AssertionError(f"{to} never heard {at}")
    await asyncio.sleep(0.2)
    for inbox in ears.inboxes.values():
        while len(inbox):
            await inbox.receive()


def said_in(watch: Watch, body: str) -> int:
    return len([one for one in watch.of(ForwardedMessage) if one.message.body.decode() == body])


def test_a_message_to_an_area_goes_where_an_edge_covers_a_part_of_it_and_nowhere_else(land: Town, name: str) -> None:
    # M14, M15
    watches = {site: Watch(land.log(site), CROSS_HUB) for site in ("north", "south")}

    async def work(ears: Ears) -> None:
        for to, (_, place) in HOMES.items():
            await ears.say("west", place, f"{name} {to}")
        await ears.say("west", FAR, f"{name} nowhere")
        await ears.say("west", Place(48.0, 11.5), f"{name} both", radius_m=60_000.0)
        assert await ears.heard("west") == f"{name} west"
        assert [await ears.heard("middle") for _ in range(2)] == [f"{name} middle", f"{name} both"]
        assert [await ears.heard("east") for _ in range(2)] == [f"{name} east", f"{name} both"]
        assert ears.waiting() == {}

    with_ears(land, name, work)
    for to, in_north, in_south in (("west", 0, 0), ("middle", 1, 0), ("east", 1, 1), ("nowhere", 0, 0), ("both", 1, 1)):
        assert (said_in(watches["north"], f"{name} {to}"), said_in(watches["south"], f"{name} {to}")) == (in_north, in_south), to
    for watch in watches.values():
        watch.close()


def test_who_strays_from_what_its_edge_covers_is_found_by_messages_to_where_it_is(land: Town, name: str) -> None:
    async def work(ears: Ears) -> None:
        await ears.clients["west"].report(FAR.latitude, FAR.longitude)
        for at in ("middle", "east"):
            for number in range(100):
                await ears.say(at, FAR, f"{at} {number}")
                try:
                    assert (await ears.heard("west", within_s=0.2)).startswith(at)
                except TimeoutError:
                    continue
                break
            else:
                raise AssertionError(f"{at} does not find it")
        await ears.clients["west"].report(WEST.latitude, WEST.longitude)

    with_ears(land, name, work)


def test_without_a_centre_neighbours_pass_on_what_concerns_them_and_a_centre_that_is_back_does_not_repeat_it(
    land: Town, name: str
) -> None:
    # M33
    assert land.centre is not None
    centre, watch = land.centre, Watch(land.log("south"), CROSS_HUB)

    async def work(ears: Ears) -> None:
        await asyncio.to_thread(centre.kill)
        gone_at = time.monotonic()
        await asyncio.sleep(gone_at + 1.2 * HUB_AWAY_NS / SECOND_NS - time.monotonic())
        for number in range(5):
            await ears.say("west", EAST, f"{name} {number}")
        assert [await ears.heard("east") for _ in range(5)] == [f"{name} {number}" for number in range(5)]
        await ears.say("east", MIDDLE, f"{name} back")
        assert await ears.heard("middle") == f"{name} back"
        await asyncio.to_thread(centre.start)
        await ears.say("west", EAST, f"{name} with")
        assert await ears.heard("east") == f"{name} with"
        await asyncio.sleep(0.5)  # what comes twice comes now
        assert ears.waiting() == {}

    with_ears(land, name, work)
    assert [said_in(watch, f"{name} {word}") for word in (*map(str, range(5)), "with")] == [1] * 6
    watch.close()


async def bodies_of(inbox: Inbox, within_s: float = 1.5) -> list[str]:
    """All that comes in a while."""
    await asyncio.sleep(within_s)
    return [(await inbox.receive()).body.decode() for _ in range(len(inbox))]


def test_who_comes_in_later_is_told_then_and_the_last_word_goes_to_exactly_those_who_were_told(land: Town, name: str) -> None:
    everywhere = ToArea(Circle(MIDDLE, 150_000.0), name)

    async def work(ears: Ears) -> None:
        await ears.clients["middle"].publish("warning", "ice", to=everywhere, qos=1, valid_for_s=300)
        assert [await ears.heard(at) for at in HOMES] == ["ice"] * 3
        async with land.edges["west"].mqtt_client(f"{name}-late") as late, late.messages() as inbox:
            await late.report(FAR.latitude, FAR.longitude)
            assert await bodies_of(inbox) == []
            await late.report(WEST.latitude, WEST.longitude)
            assert await bodies_of(inbox) == ["ice"]
        async with land.edges["east"].mqtt_client(f"{name}-late") as late, late.messages() as inbox:
            await late.report(EAST.latitude, EAST.longitude)
            assert await bodies_of(inbox, 4.0) == [], "it was told where it came from"
            land.edges["west"].kill()
            land.edges["west"].start()
            async with land.edges["west"].mqtt_client(f"{name}-new") as new, new.messages() as news:
                await new.report(WEST.latitude, WEST.longitude)
                assert await bodies_of(news, 4.0) == ["ice"], "it stands after a death"
                async with land.edges["west"].mqtt_client(f"{name}-far") as far, far.messages() as nothing:
                    await far.report(FAR.latitude, FAR.longitude)
                    await ears.clients["middle"].publish("warning", "over", to=ToNotified((name,)), qos=1)
                    assert await bodies_of(inbox) == ["over"]
                    assert await bodies_of(news, 0.0) == ["over"]
                    assert await bodies_of(nothing, 0.0) == []
                    assert [await ears.heard(at) for at in HOMES] == ["over"] * 3
                    await far.report(WEST.latitude, WEST.longitude)
                    assert await bodies_of(nothing) == []
        assert ears.waiting() == {}

    with_ears(land, name, work)
