"""A certificate that is revoked while its endpoint is connected."""

import asyncio
import re
import subprocess
import sys
import time

import pytest

from live.client.deadline import run
from live.udp.edges import UdpEdge
from milepost.client import Inbox, RefusedByEdge

WITHIN_S = 2.0


async def drain(inbox: Inbox) -> None:
    """Receive messages: alerts of other tests may still be active at this position."""
    for _ in range(10):
        await inbox.receive()


def test_a_revoked_endpoint_is_expelled_within_two_seconds_and_refused_afterwards(edge: UdpEdge, name: str) -> None:
    authority = edge.authority
    assert authority is not None
    command = [sys.executable, "-m", "milepost", "trust", "revoke", str(authority.folder), f"{name}-bad"]

    async def work() -> None:
        bad, good = edge.client(f"{name}-bad"), edge.client(f"{name}-good")
        async with good, bad, bad.messages() as inbox:
            done = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True, timeout=60)
            revoked_at = time.monotonic()
            assert b"is revoked" in done.stdout
            with pytest.raises(RefusedByEdge, match="220 NOT_ALLOWED: the edge expelled this endpoint"):
                await drain(inbox)
            assert time.monotonic() - revoked_at < WITHIN_S
            with pytest.raises(RefusedByEdge):
                await bad.publish(name, qos=1)
            with pytest.raises(RefusedByEdge, match="CERTIFICATE_REVOKED"):
                await edge.client(f"{name}-bad").open()
            await good.publish(name, qos=1)
            assert good.counters.connections == 1

    run(work())
    assert re.search(r"revocation list loaded revoked=\d+ ended=1\n", edge.log())
