"""Network namespaces for tests: sockets and processes that a thread opens inside one stay in it."""

import contextlib
import ctypes
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Protocol

import pytest

from parts import need

NUMBERS: Final = count(1)
_NEW_NETWORK: Final = 0x40000000


@dataclass(frozen=True)
class Network:
    """One namespace, with only loopback up."""

    name: str

    def ip(self, *words: str) -> None:
        _run(need("ip", debian="iproute2"), "-n", self.name, *words)

    def nft(self, rules: str) -> str:
        """Run nft in the namespace; return its output."""
        return _run(need("ip", debian="iproute2"), "netns", "exec", self.name, need("nft", debian="nftables"), rules)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Put the sockets, processes and threads that this thread starts into this network."""
        with Path("/proc/thread-self/ns/net").open() as home, Path("/run/netns", self.name).open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def lose(self, permille: int) -> None:
        """Drop *permille* of the UDP datagrams that arrive in this network."""
        self.nft("add table inet lossy")
        self.nft("add chain inet lossy arriving { type filter hook input priority 0; }")
        self.nft(f"add rule inet lossy arriving meta l4proto udp numgen random mod 1000 < {permille} counter drop")

    def lost(self) -> int:
        """Return the number of dropped datagrams."""
        found = re.search(r"counter packets (\d+)", self.nft("list table inet lossy"))
        assert found is not None
        return int(found[1])


class MakeNetwork(Protocol):
    """The `make_network` fixture."""

    def __call__(self) -> Network: ...


def join(one: Network, one_address: str, other: Network, other_address: str) -> tuple[str, str]:
    """Connect two networks; return the interface names of both ends."""
    ends = f"mp{next(NUMBERS)}a", f"mp{next(NUMBERS)}b"
    one.ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", other.name)
    for network, end, address in ((one, ends[0], one_address), (other, ends[1], other_address)):
        network.ip("addr", "add", address, "dev", end)
        network.ip("link", "set", end, "up")
    return ends


@contextlib.contextmanager
def networks() -> Iterator[MakeNetwork]:
    """Create namespaces that are removed at the end, with their contents."""
    made: list[Network] = []

    def make() -> Network:
        tool = need("ip", debian="iproute2")
        if os.geteuid() != 0:
            pytest.skip("network namespaces need root")
        network = Network(f"milepost-{os.getpid()}-{next(NUMBERS)}")
        _run(tool, "netns", "add", network.name)
        made.append(network)
        network.ip("link", "set", "lo", "up")
        return network

    try:
        yield make
    finally:
        for one in made:
            _run(need("ip", debian="iproute2"), "netns", "del", one.name)


def _enter(file: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(file, _NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout
