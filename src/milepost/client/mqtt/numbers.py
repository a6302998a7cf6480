"""Packet identifiers: shared by all that a client sends and waits for an answer to. [MQTT-2.2.1-3]"""

from typing import Final

NUMBER_MAX: Final = 65_535


class Numbers:
    """Gives numbers out in turn, and each again only when it was given back."""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._last = 0

    @property
    def has_any(self) -> bool:
        """Whether there is one left."""
        return len(self._taken) < NUMBER_MAX

    def take(self) -> int:
        """A number that nothing else has."""
        assert self.has_any, "whoever takes a number asks first whether there is one"
        number = self._last
        while True:
            number = number % NUMBER_MAX + 1
            if number not in self._taken:
                break
        self._last = number
        self._taken.add(number)
        return number

    def give_back(self, number: int) -> None:
        """The exchange under a number is over."""
        self._taken.discard(number)
