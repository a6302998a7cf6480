"""`within_m` cannot be stretched by a time long ago: 8,152 km were accepted with one of two days ago."""

import asyncio
import time
from pathlib import Path

import pytest

from live.attacks.strangers import RETRY_S, refusal, running_edge
from live.client.deadline import run
from live.udp.edges import HERE, UdpEdge
from milepost.client import Client
from milepost.model import SECOND_NS, Instant
from milepost.model.places import moved

NEAR = '[[access.rules]]\nallow = true\naction = "publish"\ntopics = "Collision"\nwithin_m = 250\n'
FAR = moved(HERE, 270.0, 8_152_000.0)
TWO_DAYS_S = 2 * 86_400


async def publish_backdated(edge: UdpEdge, reason: str) -> None:
    """Publish a collision far away with a time of two days ago, once the position of the client counts; it must be refused."""
    async with edge.mqtt_client("rogue") as rogue:
        await publish_here(rogue)
        long_ago = Instant(time.time_ns() - TWO_DAYS_S * SECOND_NS)
        assert await refusal(rogue.publish("Collision", b"false", place=FAR, seen_at=long_ago, qos=1)) == reason


async def publish_here(client: Client) -> None:
    """Report and publish at HERE until it is accepted."""
    while True:
        await client.report(HERE.latitude, HERE.longitude)
        name = await refusal(client.publish("Collision", b"true", place=HERE, qos=1))
        if not name:
            return
        assert name == "POSITION_TOO_NEW"
        await asyncio.sleep(RETRY_S)


@pytest.mark.parametrize(
    ("more", "reason"),
    [(NEAR, "CLOCK_BEHIND"), (f"{NEAR}[vetting]\nclock_behind_s_max = 0\n", "PLACE_NOT_SEEN")],
    ids=["default", "messages of any age"],
)
def test_a_message_of_two_days_ago_does_not_reach_another_continent(tmp_path: Path, more: str, reason: str) -> None:
    with running_edge(tmp_path, more) as edge:
        run(publish_backdated(edge, reason))
