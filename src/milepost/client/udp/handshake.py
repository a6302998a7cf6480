"""The handshake of a session: INIT, repeated until the edge answers.

Invariants:
- an INIT is sent, then repeated three times byte for byte; then a new one is built, with the latest report and a new key;
- waits double from 0.25 s to 4 s and stay there; they restart after a stable session;
- only the last INIT can be answered, and only once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from milepost.client.transport import Draw, jitter
from milepost.client.trust import ClientTrust
from milepost.client.udp.encryption import AcceptedHandshake, Handshake, NoiseCredentials, Protection
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.retry import RetryPolicy
from milepost.model.session_datagrams import Init, Refusal


@dataclass(frozen=True, slots=True)
class UdpSetup:
    """The identity and limits of an endpoint."""

    endpoint: EndpointId
    credentials: NoiseCredentials | None = None
    """None: datagrams are not encrypted."""
    trust: ClientTrust | None = None
    """Verifies signed messages; None: signatures are not verified."""
    pending_max: int = 1_000
    """Maximum unanswered publications."""
    untaken_max: int = 1_000
    """Maximum messages not yet taken by the application."""
    joins_multicast: bool = False
    """Whether the endpoint joins the multicast groups for messages to an area."""


INIT_RETRY: Final = RetryPolicy(first_s=0.25, limit_s=4.0, spread=0.25)
REPEATS: Final = 3
"""Repetitions of one INIT."""


class HandshakeAttempts:
    """The INIT of a session that is being requested."""

    def __init__(self, protection: Protection, draw: Draw) -> None:
        self.next_at: Instant = FOREVER
        """When INIT is sent next."""
        self.protection = protection
        self._draw = draw
        self._handshake: Handshake | None = None
        self._sent_count = 0
        self._backoff_step = 0

    def begin(self, now: Instant, *, at_once: bool) -> None:
        """Request a session, now or after the next back-off."""
        self._handshake = None
        self.next_at = now if at_once else self._next_attempt_at(now)

    def end(self) -> None:
        """Stop requesting."""
        self._handshake = None
        self.next_at = FOREVER

    def reset_backoff(self) -> None:
        """Restart the back-off after a stable session."""
        self._backoff_step = 0

    def maybe_init(self, now: Instant, init: Callable[[], Init]) -> bytes | None:
        """Return the INIT if it is due."""
        if now < self.next_at:
            return None
        if self._handshake is None or self._sent_count > REPEATS:
            self._handshake = self.protection.begin(init(), now, self._draw)
            self._sent_count = 0
        self._sent_count += 1
        self.next_at = self._next_attempt_at(now)
        return self._handshake.datagram(now)

    def maybe_init_with_cookie(self, data: bytes, now: Instant) -> bytes | None:
        """Return the INIT with the cookie that the edge requires."""
        if self._handshake is None or not self._handshake.has_new_cookie(data, now):
            return None
        return self._handshake.datagram(now)

    def answer(self, data: bytes) -> AcceptedHandshake | Refusal:
        """Decode the edge's answer; raise `Malformed` if no INIT is pending."""
        if self._handshake is None:
            raise Malformed(Reason.SESSION_UNKNOWN, "an answer without a pending INIT")
        return self._handshake.read_answer(data)

    def _next_attempt_at(self, now: Instant) -> Instant:
        wait = INIT_RETRY.wait_ns(self._backoff_step, jitter(self._draw))
        self._backoff_step += 1
        return Instant(now + wait)
