"""The course: which server the next attempt goes to, when servers send their clients on to others (MQTT 5, 4.11).

    at home      a server names another        ─▶ elsewhere
    elsewhere    let in by nobody, 3 times     ─▶ home
                 refused there for good        ─▶ home
                 a server names another        ─▶ elsewhere, but home if that went so 5 times in a row
                 a connection that lasted      ─▶ counts anew

What must hold: servers that send clients round in circles keep nobody from waiting longer and longer between attempts.
"""

from typing import Final

from milepost.client.mqtt.streams import Target, referred

FAILURES_MAX: Final = 3
"""So often a server is tried that another one named and that lets nobody in."""

FOLLOWED_MAX: Final = 5
"""So many servers are followed from one to the next, without a connection that lasted."""


class Course:
    """Where a client is headed."""

    def __init__(self, home: Target) -> None:
        self._home = home
        self.target = home
        """Where it is connected, or tries to be."""
        self._failures = 0
        self._followed = 0

    @property
    def is_home(self) -> bool:
        """Whether that is the address it was given."""
        return self.target == self._home

    def follow(self, reference: str) -> bool:
        """A server names others, with spaces between; tells whether it makes sense to go on."""
        named = [found for one in reference.split() if (found := referred(self._home, one)) is not None]
        if not named:
            return False
        self._failures = 0
        self._followed += 1
        self.target = named[0] if self._followed <= FOLLOWED_MAX else self._home
        return True

    def turn_back(self) -> bool:
        """There is no getting in; tells whether there is another place to go to."""
        was_home, self.target = self.is_home, self._home
        return not was_home

    def failed(self) -> None:
        """An attempt was in vain."""
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            self.turn_back()

    def opened(self) -> None:
        """A server let us in."""
        self._failures = 0

    def settled(self) -> None:
        """A connection lasted."""
        self._followed = 0
