"""The client library, with asyncio. `docs/reference/client.md` is its page.

async with milepost.client.connect("mqtt://127.0.0.1:1883") as client:
    await client.report(latitude=48.1, longitude=11.6)
    async with client.subscribe("hazard/#", query="collision & !cleared", area=Around(2_000)) as hazards:
        async for message in hazards: ...
"""

from milepost.client.client import Client, ClientCounters
from milepost.client.errors import ClientClosed, ClientFault, EdgeUnreachable, RefusedByEdge
from milepost.client.events import ClientState, ClientStateChange, ClientStateChanges
from milepost.client.inbox import Inbox
from milepost.client.messages import OutgoingMessage, ReceivedMessage
from milepost.client.udp.credentials import Credentials
from milepost.client.urls import connect

__all__ = [
    "Client",
    "ClientClosed",
    "ClientCounters",
    "ClientFault",
    "ClientState",
    "ClientStateChange",
    "ClientStateChanges",
    "Credentials",
    "EdgeUnreachable",
    "Inbox",
    "OutgoingMessage",
    "ReceivedMessage",
    "RefusedByEdge",
    "connect",
]
