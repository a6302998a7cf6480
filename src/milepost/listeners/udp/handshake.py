"""The UDP handshake: from the INIT of an endpoint to a pending session.

    INIT ─▶ mac1 ─▶ repeated? ─▶ under load: mac2 ─▶ noise ─▶ certificate ─▶ clock ─▶ pending, ACK
      │     └ dropped  └ same ACK            └ COOKIE └ dropped └ refused, encrypted           │
      └ without encryption: repeated? ─▶ pending, ACK                                          └ first DATA opens it (`listener`)

Invariants:
- no reply is longer than its request (no amplification); no state is held for an endpoint that is sent a cookie;
- an INIT changes nothing but `pending`, which is bounded and short-lived: a replayed INIT opens no session;
- a repeated INIT receives the same reply and costs no second key exchange.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from milepost.broker.counts import Counts
from milepost.listeners.log import Log
from milepost.listeners.udp.settings import Identity, UdpSettings
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.sessions import Acknowledge, Init, SessionToken, refusal_of
from milepost.trust.certificates import Certificate, read_certificate
from milepost.trust.cookies import Macs, cookie_of, reset_key, reset_of, seal_cookie
from milepost.trust.noise import Heard, Keys, Responder, public_of
from milepost.vetting.rates import Bucket, PrefixBuckets
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import (
    COOKIE_DATAGRAM_BYTES,
    INIT_BYTES_MAX,
    INIT_BYTES_MIN,
    KEY_BYTES,
    MAC_BYTES,
    MACS_BYTES,
    Kind,
    hello_from_bytes,
    reset_datagram,
)

PENDING_NS: Final = 10 * SECOND_NS
"""Time an endpoint has for its first datagram after ACK."""

SECRET_NS: Final = 120 * SECOND_NS
"""Lifetime of a cookie secret; cookies of the previous secret are still valid."""

PREFIXES_MAX: Final = 10_000
NO_KEYS: Final = Keys(b"", b"")

Draw = Callable[[int], bytes]
"""Returns a number of random bytes."""

MayResume = Callable[[Init, str | None], bool]
"""Returns whether an endpoint with a role can resume the session named in its INIT."""


class Pending(NamedTuple):
    """A session that was acknowledged and has received no datagram yet."""

    token: int
    name: EndpointId
    role: str | None
    serial: int
    keys: Keys
    init: Init
    answer: bytes
    mark: bytes
    """Identifies a repeated INIT."""
    is_resumed: bool
    """Whether the ACK announced that the former session is resumed."""
    due: int


class Opening:
    """The pending sessions of a UDP listener."""

    def __init__(
        self, edge: EndpointId, settings: UdpSettings, draw: Draw, counts: Counts, is_known: Callable[[bytes], bool]
    ) -> None:
        self._edge = edge
        self._settings = settings
        self._draw = draw
        self._counts = counts
        self._is_known = is_known
        self.pending: dict[bytes, Pending] = {}
        """By token."""
        self._by_mark: dict[bytes, Pending] = {}

    def maybe_pending(self, key: bytes) -> Pending | None:
        """Return the pending session of a token, as encoded in a datagram."""
        return self.pending.get(key)

    def close(self, pending: Pending) -> None:
        """Remove a pending session that is open now, or has expired."""
        del self.pending[_key(pending.token)]
        del self._by_mark[pending.mark]

    def tick(self, beat: int) -> None:
        """Remove expired pending sessions."""
        for pending in list(self.pending.values()):
            if pending.due > beat:
                break  # entries are in order of time
            self.close(pending)

    def enter(self, pending: Pending) -> None:
        """Add a pending session; drop the oldest if there are too many."""
        if len(self.pending) >= self._settings.pending_max:
            self._counts.refused[Reason.HANDSHAKES_FULL] += 1
            self.close(next(iter(self.pending.values())))
        self.pending[_key(pending.token)] = self._by_mark[pending.mark] = pending

    def maybe_same(self, mark: bytes) -> Pending | None:
        """Return the pending session of a repeated INIT."""
        return self._by_mark.get(mark)

    def new_token(self) -> int:
        """Return a token that is not in use."""
        while True:
            token = int.from_bytes(self._draw(8), "little")
            if token and _key(token) not in self.pending and not self._is_known(_key(token)):
                return token

    def acknowledge(self, token: int, *, is_resumed: bool, reset: bytes) -> bytes:
        """Return the encoded ACKNOWLEDGE of a session."""
        settings = self._settings
        return encode(
            Acknowledge(
                SessionToken(token),
                settings.reporting_interval_ns,
                self._edge,
                is_resumed,
                reset,
                settings.keys_ns if reset else None,
                settings.cells,
            )
        )


class PlainOpening:
    """The handshake without encryption."""

    def __init__(self, opening: Opening, counts: Counts, may_resume: MayResume) -> None:
        self._opening = opening
        self._counts = counts
        self._may_resume = may_resume

    def on_stranger(self, data: bytes, address: bytes, now: Instant, beat: int) -> bytes:
        """Return the reply to a datagram of no known session; empty if there is none."""
        del now
        mark = address + data
        if (same := self._opening.maybe_same(mark)) is not None:
            return same.answer
        try:
            value = decode(data)
        except Malformed as fault:
            self._counts.refused[fault.reason] += 1
            return b""
        if not isinstance(value, Init):
            self._counts.refused[Reason.SESSION_UNKNOWN] += 1
            return _no_longer(encode(refusal_of(Refused(Reason.SESSION_UNKNOWN), session=value.session)), data)
        token, is_resumed, name = self._opening.new_token(), self._may_resume(value, None), value.report.endpoint
        answer = _no_longer(self._opening.acknowledge(token, is_resumed=is_resumed, reset=b""), data)
        if answer:
            self._opening.enter(Pending(token, name, None, 0, NO_KEYS, value, answer, mark, is_resumed, beat + PENDING_NS))
        return answer


class SealedOpening:
    """The encrypted handshake; datagrams of unknown senders cost little."""

    def __init__(
        self,
        opening: Opening,
        identity: Identity,
        settings: UdpSettings,
        draw: Draw,
        counts: Counts,
        may_resume: MayResume,
        log: Log,
    ) -> None:
        self._opening = opening
        self._log = log
        self._identity = identity
        self._settings = settings
        self._draw = draw
        self._counts = counts
        self._may_resume = may_resume
        self._public = public_of(identity.static)
        self._responder = Responder(identity.static)
        self._macs = Macs(self._public)
        self._reset_key = reset_key(identity.static)
        rate = settings.handshakes_per_s
        self._free = Bucket(rate, rate)
        self._proven = PrefixBuckets(rate, rate, prefixes_max=PREFIXES_MAX)
        self._resets = Bucket(10 * rate, 10 * rate)
        self._secrets = (draw(KEY_BYTES), draw(KEY_BYTES))
        self._drawn_at: int | None = None
        self._latest: dict[bytes, Instant] = {}

    def on_stranger(self, data: bytes, address: bytes, now: Instant, beat: int) -> bytes:
        """Return the reply to a datagram of no known session; empty if there is none."""
        kind = data[0] if data else 0
        try:
            if kind == Kind.INIT:
                return self._on_init(data, address, now, beat)
            if kind == Kind.DATA:
                return self._reset(data, now)
        except Malformed as fault:
            self._counts.refused[fault.reason] += 1
            return b""
        self._counts.refused[Reason.MALFORMED] += 1
        return b""

    def _reset(self, data: bytes, now: Instant) -> bytes:
        """Return RESET for an unknown session: its reset token proves that this edge issued the session token."""
        self._counts.refused[Reason.SESSION_UNKNOWN] += 1
        token = int.from_bytes(data[1:9], "little")
        return _no_longer(reset_datagram(token, reset_of(self._reset_key, token)), data) if self._resets.take(1, now) else b""

    def _on_init(self, data: bytes, address: bytes, now: Instant, beat: int) -> bytes:
        if not INIT_BYTES_MIN <= len(data) <= INIT_BYTES_MAX or not self._macs.is_first_right(data):
            raise Malformed(Reason.SEAL_BROKEN, "INIT for another edge")
        mark = data[1 : 1 + KEY_BYTES]
        if (same := self._opening.maybe_same(mark)) is not None:
            return _no_longer(same.answer, data)
        if not self._free.take(1, now) and not self._is_proven(data, address, now, beat):
            self._counts.refused[Reason.COOKIE_NEEDED] += 1
            return self._cookie(data, address, beat)
        heard = self._responder.read(data[1:-MACS_BYTES])
        return _no_longer(self._answer(heard, mark, now, beat), data)

    def _is_proven(self, data: bytes, address: bytes, now: Instant, beat: int) -> bool:
        """Return whether mac2 proves that the endpoint receives at its address, and its network prefix is within its rate."""
        self._renew_secrets(beat)
        is_shown = any(self._macs.is_second_right(data, cookie_of(secret, address)) for secret in self._secrets)
        return is_shown and self._proven.take(prefix_of(address), 1, now)

    def _cookie(self, data: bytes, address: bytes, beat: int) -> bytes:
        self._renew_secrets(beat)
        salt = self._draw(16)
        mac1 = data[-MACS_BYTES:-MAC_BYTES]
        answer = bytes((Kind.COOKIE,)) + salt + seal_cookie(self._public, salt, cookie_of(self._secrets[0], address), mac1)
        assert len(answer) == COOKIE_DATAGRAM_BYTES
        return answer

    def _renew_secrets(self, beat: int) -> None:
        if self._drawn_at is None or beat - self._drawn_at > SECRET_NS:
            is_last_fresh = self._drawn_at is not None and beat - self._drawn_at <= 2 * SECRET_NS
            self._drawn_at = beat
            self._secrets = (self._draw(KEY_BYTES), self._secrets[0] if is_last_fresh else self._draw(KEY_BYTES))

    def _answer(self, heard: Heard, mark: bytes, now: Instant, beat: int) -> bytes:
        """Return ACK, with the session or with the reason of the refusal."""
        sent_at, certificate_bytes, datagram = hello_from_bytes(heard.payload)
        certificate = read_certificate(certificate_bytes)
        init = decode(datagram)
        if not isinstance(init, Init):
            raise Malformed(Reason.MALFORMED, f"{type(init).__name__} in a handshake")
        refused = self._why_not(certificate, heard, init, sent_at, now)
        if refused is not None:
            self._counts.refused[refused.reason] += 1
            self._log.seldom("handshake refused", client=certificate.id, reason=refused.reason.name, detail=refused.detail)
            answer, _ = self._responder.answer(heard, self._draw(KEY_BYTES), encode(refusal_of(refused)))
            return bytes((Kind.ACK,)) + answer
        self._remember(heard.key, sent_at, now)
        role, serial, token = certificate.role, certificate.serial, self._opening.new_token()
        is_resumed = self._may_resume(init, role)
        said = self._opening.acknowledge(token, is_resumed=is_resumed, reset=reset_of(self._reset_key, token))
        message, keys = self._responder.answer(heard, self._draw(KEY_BYTES), said)
        answer = bytes((Kind.ACK,)) + message
        due = beat + PENDING_NS
        self._opening.enter(Pending(token, certificate.id, role, serial, keys, init, answer, mark, is_resumed, due))
        return answer

    def _why_not(self, certificate: Certificate, heard: Heard, init: Init, sent_at: Instant, now: Instant) -> Refused | None:
        if certificate.key != heard.key:
            return Refused(Reason.CERTIFICATE_INVALID, "it is for another key")
        if abs(sent_at - now) > self._settings.clock_off_ns_max:
            off_s = (sent_at - now) / SECOND_NS
            return Refused(Reason.HANDSHAKE_STALE, f"your clock is {abs(off_s):.0f} s {'ahead' if off_s > 0 else 'behind'}")
        # Ignore a latest time too far ahead: it was stored before the edge's clock was set back, and would block the endpoint.
        if sent_at <= self._latest.get(heard.key, 0) <= now + self._settings.clock_off_ns_max:
            return Refused(Reason.HANDSHAKE_STALE, "a later one has come")
        refused = self._identity.authority.check(certificate, now)
        if refused is None and init.report.endpoint != certificate.id:
            return Refused(Reason.REPORT_NOT_OWN, f"the certificate is {certificate.id}'s")
        return refused

    def _remember(self, key: bytes, sent_at: Instant, now: Instant) -> None:
        """Store the time of the latest handshake of a key; drop entries so old that the clock check refuses them anyway."""
        self._latest.pop(key, None)
        self._latest[key] = sent_at
        for other, at in list(islice(self._latest.items(), 2)):
            if now - at > 2 * self._settings.clock_off_ns_max:
                del self._latest[other]


def prefix_of(address: bytes) -> bytes:
    """Return the network prefix of an address: /24 of IPv4, /56 of IPv6."""
    return address[4:7] if address[0] == 2 else address[8:15]


def _no_longer(answer: bytes, asked: bytes) -> bytes:
    """Return the reply, or nothing if it is longer than the request."""
    return answer if len(answer) <= len(asked) else b""


def _key(token: int) -> bytes:
    return token.to_bytes(8, "little")
