"""The handshake of a session: INIT, repeated until the edge answers.

Invariants:
- an INIT is sent, then repeated three times byte for byte; then a new one is built, with the latest report and a new key;
- waits double from 0.25 s to 4 s and stay there; they restart after a stable session;
- only the last INIT can be answered, and only once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from milepost.client.carrier import Draw, jitter
from milepost.client.udp.seals import Credentials, Handshake, Opened, Seal
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.retry import RetryPolicy
from milepost.model.sessions import Init, Refusal
from milepost.trust.certificates import Authority


@dataclass(frozen=True, slots=True)
class UdpSetup:
    """The identity and limits of an endpoint."""

    endpoint: EndpointId
    trust: Credentials | None = None
    """None: datagrams are not encrypted."""
    authority: Authority | None = None
    """The certificate authority whose edges may sign messages; None: signatures are not verified."""
    waiting_max: int = 1_000
    """Maximum unanswered publications."""
    held_max: int = 1_000
    """Maximum messages not yet taken by the application."""
    hears_cells: bool = False
    """Whether the endpoint joins the multicast groups for messages to an area."""


INIT_RETRY: Final = RetryPolicy(first_s=0.25, limit_s=4.0, spread=0.25)
REPEATS: Final = 3
"""Repetitions of one INIT."""


class Opening:
    """The INIT of a session that is being requested."""

    def __init__(self, seal: Seal, draw: Draw) -> None:
        self.next_at: Instant = FOREVER
        """When INIT is sent next."""
        self.seal = seal
        self._draw = draw
        self._handshake: Handshake | None = None
        self._times = 0
        self._waits = 0

    def begin(self, now: Instant, *, at_once: bool) -> None:
        """Request a session, now or after the next back-off."""
        self._handshake = None
        self.next_at = now if at_once else self._after_a_wait(now)

    def end(self) -> None:
        """Stop requesting."""
        self._handshake = None
        self.next_at = FOREVER

    def settle(self) -> None:
        """Restart the back-off after a stable session."""
        self._waits = 0

    def maybe_init(self, now: Instant, init: Callable[[], Init]) -> bytes | None:
        """Return the INIT if it is due."""
        if now < self.next_at:
            return None
        if self._handshake is None or self._times > REPEATS:
            self._handshake = self.seal.begin(init(), now, self._draw)
            self._times = 0
        self._times += 1
        self.next_at = self._after_a_wait(now)
        return self._handshake.datagram(now)

    def maybe_again(self, data: bytes, now: Instant) -> bytes | None:
        """Return the INIT with the cookie that the edge requires."""
        if self._handshake is None or not self._handshake.has_new_cookie(data, now):
            return None
        return self._handshake.datagram(now)

    def answer(self, data: bytes) -> Opened | Refusal:
        """Decode the edge's answer; raise `Malformed` if no INIT is pending."""
        if self._handshake is None:
            raise Malformed(Reason.SESSION_UNKNOWN, "an answer to no INIT")
        return self._handshake.read_answer(data)

    def _after_a_wait(self, now: Instant) -> Instant:
        wait = INIT_RETRY.wait_ns(self._waits, jitter(self._draw))
        self._waits += 1
        return Instant(now + wait)
