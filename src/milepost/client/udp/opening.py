"""Opening a session: INIT, sent again and again until the edge answers.

What must hold:
- an INIT is sent, then repeated three times byte by byte; then another is made, with the latest report and a new key;
- waits double from 0.25 s to 4 s and stay there; they begin anew after a session that lasted;
- of all INITs the last one can be answered, and once.
"""

from collections.abc import Callable
from typing import Final

from milepost.client.udp.seals import Handshake, Opened, Seal
from milepost.client.udp.waits import Draw, wait_ns
from milepost.model.instants import FOREVER, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.sessions import Init, Refusal

FIRST_NS: Final = 250_000_000
MOST_NS: Final = 4_000_000_000
REPEATS: Final = 3
"""So often one INIT is repeated."""


class Opening:
    """The INIT of a session, while it is asked for one."""

    def __init__(self, seal: Seal, draw: Draw) -> None:
        self.next_at: Instant = FOREVER
        """When INIT is to be sent."""
        self.seal = seal
        self._draw = draw
        self._handshake: Handshake | None = None
        self._times = 0
        self._waits = 0

    def begin(self, now: Instant, *, at_once: bool) -> None:
        """Ask for a session, now or after the next wait."""
        self._handshake = None
        self.next_at = now if at_once else self._after_a_wait(now)

    def end(self) -> None:
        """Ask no longer."""
        self._handshake = None
        self.next_at = FOREVER

    def settle(self) -> None:
        """The last session lasted: waits begin anew."""
        self._waits = 0

    def maybe_init(self, now: Instant, init: Callable[[], Init]) -> bytes | None:
        """The INIT to be sent now, if it is time."""
        if now < self.next_at:
            return None
        if self._handshake is None or self._times > REPEATS:
            self._handshake = self.seal.begin(init(), now, self._draw)
            self._times = 0
        self._times += 1
        self.next_at = self._after_a_wait(now)
        return self._handshake.datagram(now)

    def maybe_again(self, data: bytes, now: Instant) -> bytes | None:
        """COOKIE came: the INIT with what it asks for."""
        if self._handshake is None or not self._handshake.has_new_cookie(data, now):
            return None
        return self._handshake.datagram(now)

    def answer(self, data: bytes) -> Opened | Refusal:
        """What the edge answered; `Malformed` if it answers nothing that is under way."""
        if self._handshake is None:
            raise Malformed(Reason.SESSION_UNKNOWN, "an answer to no INIT")
        return self._handshake.read_answer(data)

    def _after_a_wait(self, now: Instant) -> Instant:
        wait = wait_ns(FIRST_NS, MOST_NS, self._waits, self._draw)
        self._waits += 1
        return Instant(now + wait)
