"""A full disk under the log of a site, and under the data of an edge: what was acknowledged arrives when there is room again."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from live.federation.conftest import HOLD_S
from live.federation.crowds import Crowd
from live.federation.town import Town
from live.federation.travellers import Leave
from parts import need

FULL_S: Final = 2.0


@contextmanager
def small_disk(at: Path, megabytes: int) -> Iterator[Path]:
    """A disk of its own, in memory: larger than what SQLite lets its log grow to."""
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
    """While it is full."""
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
def disk(own_town: Town, request: pytest.FixtureRequest) -> Iterator[Path]:
    """What the test names is on a small disk: the log of the site, or the data of the edge n1."""
    folder = own_town.folder / request.param
    with small_disk(folder, 96) as at:
        own_town.add_site("north", folder=own_town.folder / "log")
        for name in ("n1", "n2"):
            own_town.add_edge("north", name, limits=f"hold_s = {HOLD_S}", starts=False)
        own_town.repair()
        yield at
        own_town.end()


@pytest.mark.parametrize("disk", ["log"], indirect=True)
def test_while_the_disk_of_the_log_is_full_edges_keep_what_is_for_others(
    own_town: Town, disk: Path, crowd: Crowd, name: str
) -> None:
    n1, n2 = own_town.edges["n1"], own_town.edges["n2"]
    sender, taker = f"{name}-sender", f"{name}-taker"
    crowd.sender(sender, n1, topic=f"{name}/x", qos=2, rate=50)
    here = crowd.taker(f"{name}-here", n1, f"{name}/#", of=(sender,)).name
    crowd.taker(taker, n2, f"{name}/#", of=(sender,))
    with filled(disk):
        crowd.wait_seen(here, sender, 100)
        stood = len(crowd.ledger.seen(taker, sender))
        crowd.wait_seen(here, sender, 200)
        assert len(crowd.ledger.seen(taker, sender)) - stood < 100, "the disk was not full"
        assert crowd.travellers[sender].refusals == []
    crowd.wait_seen(taker, sender, 100)
    for edge in (n1, n2):
        assert crowd.arrive(taker, edge)
    crowd.finish()
    crowd.check()


@pytest.mark.parametrize("disk", ["edge-n1/data"], indirect=True)
def test_while_the_disk_of_an_edge_is_full_it_acknowledges_nothing_that_others_would_miss(
    own_town: Town, disk: Path, crowd: Crowd, name: str
) -> None:
    n1, n2 = own_town.edges["n1"], own_town.edges["n2"]
    sender, far, taker = f"{name}-sender", f"{name}-far", f"{name}-taker"
    crowd.sender(sender, n1, topic=f"{name}/x", qos=2, rate=50)
    crowd.sender(far, n2, topic=f"{name}/far", qos=2, rate=50)
    crowd.taker(taker, n1, f"{name}/#", of=(sender, far))
    other = crowd.taker(f"{name}-other", n2, f"{name}/#", of=(sender, far)).name
    crowd.ledger.expect_any_order(taker)
    with filled(disk):
        acknowledged = crowd.ledger.count_acknowledged(sender)
        crowd.wait(lambda: bool(crowd.travellers[sender].refusals or crowd.travellers[sender].turned_away), "it says no")
        crowd.wait_seen(other, far, 50)
        crowd.move(taker, n2, Leave.ABRUPTLY)
        time.sleep(FULL_S)
        crowd.move(taker, n1, Leave.ABRUPTLY)
        assert crowd.ledger.count_acknowledged(sender) - acknowledged < 100
    crowd.wait_seen(other, sender, 50)
    crowd.wait_seen(taker, sender, 50)
    crowd.wait_seen(taker, far, 50)
    crowd.finish()
    crowd.check()
