"""A test of delivery: everybody says something to everybody, and everything arrives exactly once."""

import asyncio
from collections import Counter

from live.udp.edges import UdpEdge
from milepost.client import Edge, Inbox


async def exchange(edge: UdpEdge, name: str, members: list[Edge], count: int) -> None:
    """Each of the members publishes so many reliable messages at once; each must get all of them once, and the edge too."""
    before = await asyncio.to_thread(edge.figures)
    inboxes = [await one.subscribe(f"{name}/#").__aenter__() for one in members]
    said = {f"{one.name} {number}".encode() for one in members for number in range(count)}
    async with asyncio.TaskGroup() as group:
        for one in members:
            for number in range(count):
                group.create_task(one.publish(f"{name}/{number % 7}", f"{one.name} {number}", qos=1))
        for inbox in inboxes:
            group.create_task(take_all(inbox, said))
    for one, inbox in zip(members, inboxes, strict=True):
        assert one.counts.connections == 1, f"{one.name} lost its session"
        assert len(inbox) == 0, f"{one.name} got something twice"
    after = await asyncio.to_thread(edge.figures)
    accepted = after["milepost_messages_accepted_total"] - before["milepost_messages_accepted_total"]
    assert accepted == len(said), f"the edge took {accepted} messages for {len(said)}"


async def take_all(inbox: Inbox, said: set[bytes]) -> None:
    """All that was said has come, each thing once; a second copy of anything would be among them."""
    got = Counter([(await inbox.receive()).body for _ in said])
    assert got == Counter(said), f"not as said: more of {sorted(got - Counter(said))}, less of {sorted(Counter(said) - got)}"
