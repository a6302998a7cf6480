"""The client library: an edge over asyncio, in five lines. `docs/reference/client.md` is its page.

async with milepost.client.connect("mqtt://127.0.0.1:1883") as edge:
    await edge.report(latitude=48.1, longitude=11.6)
    async with edge.subscribe("hazard/#", query="collision & !cleared", area=Around(2_000)) as hazards:
        async for message in hazards: ...
"""

from milepost.client.edge import Counts, Edge
from milepost.client.errors import ClientFault, EdgeClosed, EdgeUnreachable, RefusedByEdge
from milepost.client.events import Change, Changes, State
from milepost.client.inbox import Inbox
from milepost.client.udp.trust import Trust
from milepost.client.urls import connect
from milepost.client.values import Publication, Received

__all__ = [
    "Change",
    "Changes",
    "ClientFault",
    "Counts",
    "Edge",
    "EdgeClosed",
    "EdgeUnreachable",
    "Inbox",
    "Publication",
    "Received",
    "RefusedByEdge",
    "State",
    "Trust",
    "connect",
]
