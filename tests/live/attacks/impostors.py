"""Impostors: clients that use the name of an edge or a service, and the messages that vehicles receive meanwhile."""

import asyncio
import time
from contextlib import suppress

from milepost.client import Client, Inbox, connect
from milepost.client.messages import ReceivedMessage
from milepost.model.addresses import Address

WAIT_S = 30.0
"""How long a genuine message may take."""


async def next_with(messages: Inbox, *bodies: bytes) -> ReceivedMessage:
    """Return the next message with one of these bodies; others are skipped."""
    async with asyncio.timeout(WAIT_S):
        while True:
            found = await messages.receive()
            if found.body in bodies:
                return found


async def received_before(client: Client, messages: Inbox, publisher: Client, marker: bytes) -> list[ReceivedMessage]:
    """Return the messages that arrive before a marker, which is published last, on a topic that the client subscribes to."""
    found: list[ReceivedMessage] = []
    async with client.subscribe("marker", qos=1) as marked, asyncio.timeout(WAIT_S):
        await asyncio.sleep(1.0)  # records that were appended before are read
        await publisher.publish("marker", marker, qos=1)
        while (await marked.receive()).body != marker:
            pass
        with suppress(TimeoutError):
            while True:
                found.append(await asyncio.wait_for(messages.receive(), 0.5))
    return found


async def attack(port: int, client_id: str, topic: str, body: bytes, to: Address) -> None:
    """Publish a message as an anonymous client of any name; the rules of the edge must allow it."""
    async with connect(f"mqtt://127.0.0.1:{port}", client_id=client_id) as impostor:
        await impostor.report(40.7608, -111.891)
        await impostor.publish(topic, body, to=to, qos=1, valid_for_s=60)


def field_of(message: ReceivedMessage, name: str) -> str:
    """Return a field of a message."""
    return dict(message.properties).get(name, "")


def now_ns() -> int:
    """Return the time."""
    return time.time_ns()
