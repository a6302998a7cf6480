"""An exchange: every member publishes to all, and every message arrives exactly once."""

import asyncio
from collections import Counter

from live.udp.edges import UdpEdge
from milepost.client import Client, Inbox


async def exchange(edge: UdpEdge, name: str, members: list[Client], count: int) -> None:
    """Let each member publish *count* reliable messages at once; each member and the edge must get every message once."""
    before = await asyncio.to_thread(edge.metrics)
    inboxes = [await one.subscribe(f"{name}/#").__aenter__() for one in members]
    sent = {f"{one.name} {number}".encode() for one in members for number in range(count)}
    async with asyncio.TaskGroup() as group:
        for one in members:
            for number in range(count):
                group.create_task(one.publish(f"{name}/{number % 7}", f"{one.name} {number}", qos=1))
        for inbox in inboxes:
            group.create_task(take_all(inbox, sent))
    for one, inbox in zip(members, inboxes, strict=True):
        assert one.counters.connections == 1, f"{one.name} lost its session"
        assert len(inbox) == 0, f"{one.name} received a duplicate"
    after = await asyncio.to_thread(edge.metrics)
    accepted = after["milepost_messages_accepted_total"] - before["milepost_messages_accepted_total"]
    assert accepted == len(sent), f"the edge accepted {accepted} messages for {len(sent)}"


async def take_all(inbox: Inbox, sent: set[bytes]) -> None:
    """Receive all sent messages, each once; a duplicate would be among them."""
    got = Counter([(await inbox.receive()).body for _ in sent])
    assert got == Counter(sent), (
        f"received is not what was sent: more of {sorted(got - Counter(sent))}, less of {sorted(Counter(sent) - got)}"
    )
