"""Free ports on loopback."""

import random
import socket
from typing import Final

from milepost.config.errors import StartFault

LOOPBACK: Final = "127.0.0.1"

# Below the ephemeral ports of Linux: a restarted server finds its port free.
_RANGE: Final = range(20_000, 32_000)
_TRIES_MAX: Final = 1_000
_DRAW: Final = random.SystemRandom()  # not `random`: tests with the same seed would draw the same ports


def free_ports(count: int) -> list[int]:
    """Return ports that are free right now."""
    found: list[int] = []
    for port in _DRAW.sample(_RANGE, _TRIES_MAX):
        if len(found) == count:
            return found
        if is_free(port):
            found.append(port)
    raise StartFault(f"no {count} free ports between {_RANGE.start} and {_RANGE.stop}: free some, or give the ports to use")


def is_free(port: int) -> bool:
    """Return whether a port can be bound."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
