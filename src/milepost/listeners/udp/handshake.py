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
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Final, NamedTuple

from milepost.broker.broker_counters import BrokerCounters
from milepost.listeners.diagnostic_log import DiagnosticLog
from milepost.listeners.udp.settings import EdgeIdentity, UdpSettings
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.session_datagrams import AcknowledgeDatagram, Init, SessionToken, refusal_of
from milepost.trust.certificates import Certificate, read_certificate
from milepost.trust.cookies import Macs, cookie_of, reset_key, reset_of, seal_cookie
from milepost.trust.noise import InitiatorMessage, NoiseResponder, SessionKeys, public_of
from milepost.vetting.rates import Bucket, PrefixBuckets
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import (
    COOKIE_DATAGRAM_BYTES,
    INIT_BYTES_MAX,
    INIT_BYTES_MIN,
    KEY_BYTES,
    MAC_BYTES,
    MACS_BYTES,
    SealedType,
    hello_from_bytes,
    reset_datagram,
)

PENDING_NS: Final = 10 * SECOND_NS
"""Time an endpoint has for its first datagram after ACK."""

SECRET_NS: Final = 120 * SECOND_NS
"""Lifetime of a cookie secret; cookies of the previous secret are still valid."""

PREFIXES_MAX: Final = 10_000
NO_KEYS: Final = SessionKeys(b"", b"")

RandomBytes = Callable[[int], bytes]
"""Returns a number of random bytes."""

MayResume = Callable[[Init, str | None], bool]
"""Returns whether an endpoint with a role can resume the session named in its INIT."""

RefuseOpening = Callable[[EndpointId, str | None, Instant], Refused | None]
"""Returns why an endpoint with a role cannot open a session."""


class PendingSession(NamedTuple):
    """A session that was acknowledged and has received no datagram yet."""

    token: int
    name: EndpointId
    role: str | None
    serial: int
    keys: SessionKeys
    init: Init
    answer: bytes
    fingerprint: bytes
    """Identifies a repeated INIT."""
    is_resumed: bool
    """Whether the ACK announced that the previous session is resumed."""
    expires_at: int


class PendingSessions:
    """The pending sessions of a UDP listener."""

    def __init__(
        self,
        edge: EndpointId,
        settings: UdpSettings,
        random_bytes: RandomBytes,
        counts: BrokerCounters,
        is_known: Callable[[bytes], bool],
    ) -> None:
        self._edge = edge
        self._settings = settings
        self._random_bytes = random_bytes
        self._counts = counts
        self._is_known = is_known
        self.pending: dict[bytes, PendingSession] = {}
        """By token."""
        self._by_fingerprint: dict[bytes, PendingSession] = {}

    def maybe_pending(self, key: bytes) -> PendingSession | None:
        """Return the pending session of a token, as encoded in a datagram."""
        return self.pending.get(key)

    def remove(self, pending: PendingSession) -> None:
        """Remove a pending session that is open now, or has expired."""
        del self.pending[_key(pending.token)]
        del self._by_fingerprint[pending.fingerprint]

    def drop_expired(self, monotonic_now: int) -> None:
        """Remove expired pending sessions."""
        for pending in list(self.pending.values()):
            if pending.expires_at > monotonic_now:
                break  # entries are in order of time
            self.remove(pending)

    def drop_revoked(self, serials: AbstractSet[int]) -> None:
        """Remove the pending sessions of revoked certificates."""
        for pending in [one for one in self.pending.values() if one.serial in serials]:
            self._counts.refused[Reason.CERTIFICATE_REVOKED] += 1
            self.remove(pending)

    def add(self, pending: PendingSession) -> None:
        """Add a pending session; drop the oldest if there are too many."""
        if len(self.pending) >= self._settings.pending_max:
            self._counts.refused[Reason.HANDSHAKES_FULL] += 1
            self.remove(next(iter(self.pending.values())))
        self.pending[_key(pending.token)] = self._by_fingerprint[pending.fingerprint] = pending

    def maybe_repeated(self, fingerprint: bytes) -> PendingSession | None:
        """Return the pending session of a repeated INIT."""
        return self._by_fingerprint.get(fingerprint)

    def new_token(self) -> int:
        """Return a token that is not in use."""
        while True:
            token = int.from_bytes(self._random_bytes(8), "little")
            if token and _key(token) not in self.pending and not self._is_known(_key(token)):
                return token

    def acknowledge(self, token: int, *, is_resumed: bool, reset: bytes) -> bytes:
        """Return the encoded ACKNOWLEDGE of a session."""
        settings = self._settings
        return encode(
            AcknowledgeDatagram(
                SessionToken(token),
                settings.reporting_interval_ns,
                self._edge,
                is_resumed,
                reset,
                settings.key_lifetime_ns if reset else None,
                settings.cells,
            )
        )


class PlainServerHandshake:
    """The handshake without encryption."""

    def __init__(
        self, pending_sessions: PendingSessions, counts: BrokerCounters, may_resume: MayResume, refuse_opening: RefuseOpening
    ) -> None:
        self._pending_sessions = pending_sessions
        self._counts = counts
        self._may_resume = may_resume
        self._refuse_opening = refuse_opening

    def on_unknown(self, data: bytes, address: bytes, now: Instant, monotonic_now: int) -> bytes:
        """Return the reply to a datagram of no known session; empty if there is none."""
        fingerprint = address + data
        if (repeated := self._pending_sessions.maybe_repeated(fingerprint)) is not None:
            return repeated.answer
        try:
            value = decode(data)
        except Malformed as fault:
            self._counts.refused[fault.reason] += 1
            return b""
        if not isinstance(value, Init):
            self._counts.refused[Reason.SESSION_UNKNOWN] += 1
            return _unless_longer(encode(refusal_of(Refused(Reason.SESSION_UNKNOWN), session=value.session)), data)
        name = value.report.endpoint
        if (refused := self._refuse_opening(name, None, now)) is not None:
            self._counts.refused[refused.reason] += 1
            return _unless_longer(encode(refusal_of(refused)), data)
        token, is_resumed = self._pending_sessions.new_token(), self._may_resume(value, None)
        answer = _unless_longer(self._pending_sessions.acknowledge(token, is_resumed=is_resumed, reset=b""), data)
        if answer:
            self._pending_sessions.add(
                PendingSession(token, name, None, 0, NO_KEYS, value, answer, fingerprint, is_resumed, monotonic_now + PENDING_NS)
            )
        return answer


class SealedServerHandshake:
    """The encrypted handshake; datagrams of unknown senders cost little."""

    def __init__(
        self,
        pending_sessions: PendingSessions,
        identity: EdgeIdentity,
        settings: UdpSettings,
        random_bytes: RandomBytes,
        counts: BrokerCounters,
        may_resume: MayResume,
        refuse_opening: RefuseOpening,
        log: DiagnosticLog,
    ) -> None:
        self._pending_sessions = pending_sessions
        self._log = log
        self._identity = identity
        self._settings = settings
        self._random_bytes = random_bytes
        self._counts = counts
        self._may_resume = may_resume
        self._refuse_opening = refuse_opening
        self._public = public_of(identity.static_key)
        self._responder = NoiseResponder(identity.static_key)
        self._macs = Macs(self._public)
        self._reset_key = reset_key(identity.static_key)
        rate = settings.handshakes_per_s
        self._free = Bucket(rate, rate)
        self._proven = PrefixBuckets(rate, rate, prefixes_max=PREFIXES_MAX)
        self._resets = Bucket(10 * rate, 10 * rate)
        self._secrets = (random_bytes(KEY_BYTES), random_bytes(KEY_BYTES))
        self._drawn_at: int | None = None
        self._latest: dict[bytes, Instant] = {}

    def on_unknown(self, data: bytes, address: bytes, now: Instant, monotonic_now: int) -> bytes:
        """Return the reply to a datagram of no known session; empty if there is none."""
        kind = data[0] if data else 0
        try:
            if kind == SealedType.INIT:
                return self._on_init(data, address, now, monotonic_now)
            if kind == SealedType.DATA:
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
        return _unless_longer(reset_datagram(token, reset_of(self._reset_key, token)), data) if self._resets.take(1, now) else b""

    def _on_init(self, data: bytes, address: bytes, now: Instant, monotonic_now: int) -> bytes:
        if not INIT_BYTES_MIN <= len(data) <= INIT_BYTES_MAX or not self._macs.is_mac1_valid(data):
            raise Malformed(Reason.DECRYPTION_FAILED, "INIT for another edge")
        fingerprint = data[1 : 1 + KEY_BYTES]
        if (repeated := self._pending_sessions.maybe_repeated(fingerprint)) is not None:
            return _unless_longer(repeated.answer, data)
        if not self._free.take(1, now) and not self._is_proven(data, address, now, monotonic_now):
            self._counts.refused[Reason.COOKIE_NEEDED] += 1
            return self._cookie(data, address, monotonic_now)
        initiation = self._responder.read(data[1:-MACS_BYTES])
        return _unless_longer(self._answer(initiation, fingerprint, now, monotonic_now), data)

    def _is_proven(self, data: bytes, address: bytes, now: Instant, monotonic_now: int) -> bool:
        """Return whether mac2 proves that the endpoint receives at its address, and its network prefix is within its rate."""
        self._renew_secrets(monotonic_now)
        has_cookie = any(self._macs.is_mac2_valid(data, cookie_of(secret, address)) for secret in self._secrets)
        return has_cookie and self._proven.take(prefix_of(address), 1, now)

    def _cookie(self, data: bytes, address: bytes, monotonic_now: int) -> bytes:
        self._renew_secrets(monotonic_now)
        salt = self._random_bytes(16)
        mac1 = data[-MACS_BYTES:-MAC_BYTES]
        answer = bytes((SealedType.COOKIE,)) + salt + seal_cookie(self._public, salt, cookie_of(self._secrets[0], address), mac1)
        assert len(answer) == COOKIE_DATAGRAM_BYTES
        return answer

    def _renew_secrets(self, monotonic_now: int) -> None:
        if self._drawn_at is None or monotonic_now - self._drawn_at > SECRET_NS:
            is_last_fresh = self._drawn_at is not None and monotonic_now - self._drawn_at <= 2 * SECRET_NS
            self._drawn_at = monotonic_now
            self._secrets = (self._random_bytes(KEY_BYTES), self._secrets[0] if is_last_fresh else self._random_bytes(KEY_BYTES))

    def _answer(self, initiation: InitiatorMessage, fingerprint: bytes, now: Instant, monotonic_now: int) -> bytes:
        """Return ACK, with the session or with the reason of the refusal."""
        sent_at, certificate_bytes, datagram = hello_from_bytes(initiation.payload)
        certificate = read_certificate(certificate_bytes)
        init = decode(datagram)
        if not isinstance(init, Init):
            raise Malformed(Reason.MALFORMED, f"{type(init).__name__} in a handshake")
        refused = self._refusal_of(certificate, initiation, init, sent_at, now)
        if refused is not None:
            self._counts.refused[refused.reason] += 1
            self._log.info_limited("handshake refused", client=certificate.id, reason=refused.reason.name, detail=refused.detail)
            answer, _ = self._responder.answer(initiation, self._random_bytes(KEY_BYTES), encode(refusal_of(refused)))
            return bytes((SealedType.ACK,)) + answer
        self._remember(initiation.key, sent_at, now)
        role, serial, token = certificate.role, certificate.serial, self._pending_sessions.new_token()
        is_resumed = self._may_resume(init, role)
        acknowledgement = self._pending_sessions.acknowledge(token, is_resumed=is_resumed, reset=reset_of(self._reset_key, token))
        message, keys = self._responder.answer(initiation, self._random_bytes(KEY_BYTES), acknowledgement)
        answer = bytes((SealedType.ACK,)) + message
        expires_at = monotonic_now + PENDING_NS
        self._pending_sessions.add(
            PendingSession(token, certificate.id, role, serial, keys, init, answer, fingerprint, is_resumed, expires_at)
        )
        return answer

    def _refusal_of(
        self, certificate: Certificate, initiation: InitiatorMessage, init: Init, sent_at: Instant, now: Instant
    ) -> Refused | None:
        if certificate.key != initiation.key:
            return Refused(Reason.CERTIFICATE_INVALID, "the certificate is for another key")
        if abs(sent_at - now) > self._settings.clock_skew_ns_max:
            off_s = (sent_at - now) / SECOND_NS
            return Refused(Reason.HANDSHAKE_STALE, f"your clock is {abs(off_s):.0f} s {'ahead' if off_s > 0 else 'behind'}")
        # Ignore a latest time too far ahead: it was stored before the edge's clock was set back, and would block the endpoint.
        if sent_at <= self._latest.get(initiation.key, 0) <= now + self._settings.clock_skew_ns_max:
            return Refused(Reason.HANDSHAKE_STALE, "a later handshake of this key was received already")
        refused = self._identity.certificate_authority.check(certificate, now)
        if refused is None and init.report.endpoint != certificate.id:
            return Refused(Reason.REPORT_NOT_OWN, f"the certificate belongs to {certificate.id}")
        return refused or self._refuse_opening(certificate.id, certificate.role, now)

    def _remember(self, key: bytes, sent_at: Instant, now: Instant) -> None:
        """Store the time of the latest handshake of a key; drop entries so old that the clock check refuses them anyway."""
        self._latest.pop(key, None)
        self._latest[key] = sent_at
        for other, at in list(islice(self._latest.items(), 2)):
            if now - at > 2 * self._settings.clock_skew_ns_max:
                del self._latest[other]


def prefix_of(address: bytes) -> bytes:
    """Return the network prefix of an address: /24 of IPv4, /56 of IPv6."""
    return address[4:7] if address[0] == 2 else address[8:15]


def _unless_longer(answer: bytes, request: bytes) -> bytes:
    """Return the reply, or nothing if it is longer than the request."""
    return answer if len(answer) <= len(request) else b""


def _key(token: int) -> bytes:
    return token.to_bytes(8, "little")
