"""A full disk under the log of a site, or under the data of an edge: acknowledged messages arrive when there is room again."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from live.federation.client_pool import ClientPool
from live.federation.conftest import HANDOVER_TIMEOUT_S
from live.federation.deployment import Deployment
from live.federation.roaming_clients import LeaveMode
from parts import need

FULL_S: Final = 2.0


@contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[Path]:
    """A disk in memory, larger than the limit of SQLite's write-ahead log."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk; fix: sudo make test")
    at.mkdir(parents=True)
    subprocess.run([need("mount", debian="mount"), "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(at)], check=True)
    try:
        yield at
    finally:
        subprocess.run([need("umount", debian="mount"), "--lazy", str(at)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """Fill the disk for the time of the context."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1 << 8):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass
    try:
        yield
    finally:
        ballast.unlink()


@pytest.fixture
def disk(own_deployment: Deployment, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A deployment with the log of the site, or the data of the edge n1, on a small disk."""
    folder = own_deployment.folder / request.param
    with small_disk(folder, 96) as at:
        own_deployment.add_site("north", folder=own_deployment.folder / "log")
        for name in ("n1", "n2"):
            own_deployment.add_edge("north", name, limits=f"handover_timeout_s = {HANDOVER_TIMEOUT_S}", starts=False)
        own_deployment.repair()
        yield at
        own_deployment.end()


@pytest.mark.parametrize("disk", ["log"], indirect=True)
def test_while_the_disk_of_the_log_is_full_edges_spool_forwarded_messages(
    own_deployment: Deployment, disk: Path, pool: ClientPool, name: str
) -> None:
    n1, n2 = own_deployment.edges["n1"], own_deployment.edges["n2"]
    publisher, subscriber = f"{name}-publisher", f"{name}-subscriber"
    pool.publisher(publisher, n1, topic=f"{name}/x", qos=2, rate=50)
    here = pool.subscriber(f"{name}-here", n1, f"{name}/#", of=(publisher,)).name
    pool.subscriber(subscriber, n2, f"{name}/#", of=(publisher,))
    with filled(disk):
        pool.wait_seen(here, publisher, 100)
        stood = len(pool.ledger.seen(subscriber, publisher))
        pool.wait_seen(here, publisher, 200)
        assert len(pool.ledger.seen(subscriber, publisher)) - stood < 100, "the disk was not full"
        assert pool.roaming_clients[publisher].refusals == []
    pool.wait_seen(subscriber, publisher, 100)
    for edge in (n1, n2):
        assert pool.arrive(subscriber, edge)
    pool.finish()
    pool.check()


@pytest.mark.parametrize("disk", ["edge-n1/data"], indirect=True)
def test_while_the_disk_of_an_edge_is_full_it_acknowledges_no_forwarded_message(
    own_deployment: Deployment, disk: Path, pool: ClientPool, name: str
) -> None:
    n1, n2 = own_deployment.edges["n1"], own_deployment.edges["n2"]
    publisher, far, subscriber = f"{name}-publisher", f"{name}-far", f"{name}-subscriber"
    pool.publisher(publisher, n1, topic=f"{name}/x", qos=2, rate=50)
    pool.publisher(far, n2, topic=f"{name}/far", qos=2, rate=50)
    pool.subscriber(subscriber, n1, f"{name}/#", of=(publisher, far))
    other = pool.subscriber(f"{name}-other", n2, f"{name}/#", of=(publisher, far)).name
    pool.ledger.allow_any_order(subscriber)
    with filled(disk):
        acknowledged = pool.ledger.count_acknowledged(publisher)
        pool.wait(
            lambda: bool(pool.roaming_clients[publisher].refusals or pool.roaming_clients[publisher].rejected_connects),
            "the edge refuses",
        )
        pool.wait_seen(other, far, 50)
        pool.move(subscriber, n2, LeaveMode.BY_CLOSING)
        time.sleep(FULL_S)
        pool.move(subscriber, n1, LeaveMode.BY_CLOSING)
        assert pool.ledger.count_acknowledged(publisher) - acknowledged < 100
    pool.wait_seen(other, publisher, 50)
    pool.wait_seen(subscriber, publisher, 50)
    pool.wait_seen(subscriber, far, 50)
    pool.finish()
    pool.check()
