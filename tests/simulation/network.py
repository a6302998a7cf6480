"""A network in virtual time: datagrams are lost, late, doubled and out of order as a seed says; the same seed, the same run."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random

from milepost.model.instants import SECOND_NS

Receive = Callable[[bytes, bytes], None]
"""Takes a datagram and the address it came from."""


@dataclass(frozen=True, slots=True)
class Weather:
    """How the network is at the moment."""

    loss: float = 0.0
    doubling: float = 0.0
    delay_s: tuple[float, float] = (0.005, 0.02)
    """Each datagram takes its own time: those that differ much overtake each other."""


FINE = Weather()


class Network:
    """Who is where, and what is on its way."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ns = 0
        """Nanoseconds since the beginning; goes forward only."""
        self.weather = FINE
        self.cut_off: set[bytes] = set()
        """Addresses from and to which nothing gets."""
        self.carried = 0
        self._homes: dict[bytes, Receive] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def listen(self, address: bytes, receive: Receive) -> None:
        """Somebody can be reached at an address from now on."""
        self._homes[address] = receive

    def leave(self, address: bytes) -> None:
        """Nobody is there any more."""
        del self._homes[address]

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Have something happen later."""
        heappush(self._due, (self.now_ns + round(seconds * SECOND_NS), next(self._order), call))

    def send(self, data: bytes, source: bytes, target: bytes) -> None:
        """Put a datagram on its way."""
        if source in self.cut_off or target in self.cut_off:
            return
        weather = self.weather
        copies = (self.random.random() >= weather.loss) + (self.random.random() < weather.doubling)
        for _ in range(copies):
            self.after(self.random.uniform(*weather.delay_s), lambda: self._arrive(data, source, target))

    def _arrive(self, data: bytes, source: bytes, target: bytes) -> None:
        receive = self._homes.get(target)
        if receive is not None and target not in self.cut_off:
            self.carried += 1
            receive(data, source)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now_ns + round(seconds * SECOND_NS)
        while self._due and self._due[0][0] <= until:
            self.now_ns, _, call = heappop(self._due)
            call()
        self.now_ns = until
