"""A network in virtual time: datagrams are lost, delayed, duplicated and reordered; the same seed gives the same run."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from random import Random

from milepost.model.instants import SECOND_NS

Receive = Callable[[bytes, bytes], None]
"""Receives a datagram and its source address."""


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """The current loss, duplication and delay."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_s: tuple[float, float] = (0.005, 0.02)
    """Each datagram has its own delay: datagrams may overtake each other."""


PERFECT = NetworkConditions()


class Network:
    """Addresses with their receivers, and datagrams in transit."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now_ns = 0
        """Nanoseconds since the start; never decreases."""
        self.conditions = PERFECT
        self.cut_off: set[bytes] = set()
        """Addresses that can neither send nor receive."""
        self.carried = 0
        self._homes: dict[bytes, Receive] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def listen(self, address: bytes, receive: Receive) -> None:
        """Register the receiver of an address."""
        self._homes[address] = receive

    def leave(self, address: bytes) -> None:
        """Remove the receiver of an address."""
        del self._homes[address]

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Schedule a call."""
        heappush(self._due, (self.now_ns + round(seconds * SECOND_NS), next(self._order), call))

    def send(self, data: bytes, source: bytes, target: bytes) -> None:
        """Send a datagram."""
        if source in self.cut_off or target in self.cut_off:
            return
        conditions = self.conditions
        copies = (self.random.random() >= conditions.loss) + (self.random.random() < conditions.duplication)
        for _ in range(copies):
            self.after(self.random.uniform(*conditions.delay_s), lambda: self._arrive(data, source, target))

    def _arrive(self, data: bytes, source: bytes, target: bytes) -> None:
        receive = self._homes.get(target)
        if receive is not None and target not in self.cut_off:
            self.carried += 1
            receive(data, source)

    def run(self, seconds: float) -> None:
        """Advance the time."""
        until = self.now_ns + round(seconds * SECOND_NS)
        while self._due and self._due[0][0] <= until:
            self.now_ns, _, call = heappop(self._due)
            call()
        self.now_ns = until
