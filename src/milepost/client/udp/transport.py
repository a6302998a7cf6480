"""UDP as a transport: the socket and the clock around `UdpSession`.

    _keep_connected   find an edge, then ticks until the client is closed or the session ends
      └ _tick           datagrams in, tick, datagrams out, events; then sleep until a datagram arrives, a call is made, or a timer
                        is due

Invariants:
- a socket error does not end the session: it continues over the next socket, because the edge follows address changes;
- the time of receipt is the time at which a datagram was read: it is processed later, after the sockets of all other clients of
  the process were read.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from secrets import token_hex
from time import monotonic_ns, time_ns
from typing import Final

from milepost.client.base_transport import BaseTransport
from milepost.client.errors import ClientClosed, ClientFault, EdgeUnreachable
from milepost.client.events import Ended
from milepost.client.messages import OutgoingMessage, SubscriptionRequest
from milepost.client.transport import ClientLimits, PositionFix
from milepost.client.trust import ClientTrust, signed_message_of
from milepost.client.udp.credentials import Credentials, signer_of
from milepost.client.udp.discovery import DiscoverySettings, EdgeAddress, Rediscovery, find_edge, open_socket, udp_target_of
from milepost.client.udp.encryption import NoiseCredentials
from milepost.client.udp.handshake import UdpSetup
from milepost.client.udp.mapping import subscription_of, udp_message_of
from milepost.client.udp.multicast import MulticastReceiver
from milepost.client.udp.session import UdpPhase, UdpSession
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import MessageName, SubscriptionName
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.sealed import KEY_BYTES

ATTEMPT_S: Final = 4.0
"""Minimum time to find an edge and open a session: datagrams may be lost, so a single one is not an attempt."""

RECEIVED_MAX: Final = 64
"""Maximum datagrams that were read and not processed: further ones are processed at once."""

_NO_ANSWER: Final = "no answer; an edge that requires encryption answers only clients with a certificate (option credentials)"
_REVOKED: Final = "the certificate of the edge is revoked"


OnSessionDatagram = Callable[[bytes, Instant], None]


class Clock:
    """A UTC clock that never goes back, so that no timer is prolonged when the system clock is set."""

    def __init__(self) -> None:
        self._offset_ns = time_ns() - monotonic_ns()

    def now(self) -> Instant:
        """Return the time."""
        monotonic_now = monotonic_ns()
        self._offset_ns = max(self._offset_ns, time_ns() - monotonic_now)
        return Instant(monotonic_now + self._offset_ns)


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """The connecting endpoint and its position."""

    name: EndpointId
    place: Place
    credentials: Credentials | None
    trust: ClientTrust | None = None
    untaken_max: int = 100
    joins_multicast: bool = False


def udp_transport(
    url: str,
    client_id: str | None,
    place: Place | None,
    credentials: Credentials | None,
    trust: ClientTrust | None,
    edge_key: bytes | None,
    resolver: tuple[str, int] | None,
    limits: ClientLimits,
    receive_max: int,
    *,
    joins_multicast: bool,
) -> "UdpTransport":
    """Return a transport that is not yet open; raise `Malformed` for an invalid option, `ValueError` for an invalid URL."""
    target = udp_target_of(url)
    if place is None:
        raise Malformed(
            Reason.FIELD_MISSING,
            "place: a session over udp begins with the endpoint's position; give place=Place(latitude, longitude)",
        )
    certificate = None if credentials is None else credentials.certificate
    if edge_key is not None and (len(edge_key) != KEY_BYTES or certificate is None):
        raise Malformed(Reason.FIELD_RANGE, f"edge_key must have {KEY_BYTES} bytes and needs a certificate: give credentials too")
    name = EndpointId(f"client-{token_hex(8)}") if client_id is None else endpoint_id(client_id)
    endpoint = LocalEndpoint(name, place, credentials, trust, receive_max, joins_multicast)
    ca = None if trust is None or certificate is None else trust.authority
    return UdpTransport(endpoint, DiscoverySettings(target, place, ca, edge_key or b"", resolver), limits)


class UdpTransport(BaseTransport):
    """One endpoint at one edge."""

    def __init__(self, endpoint: LocalEndpoint, discovery: DiscoverySettings, limits: ClientLimits) -> None:
        super().__init__(endpoint.name, limits)
        self._endpoint = endpoint
        self._discovery = discovery
        self._clock = Clock()
        self._place = endpoint.place
        self._rediscovery = Rediscovery(discovery, self._wake.set)
        self._multicast = MulticastReceiver(self._on_multicast)
        self._session: UdpSession | None = None
        self._received: list[tuple[OnSessionDatagram, bytes, Instant]] = []
        self._address: EdgeAddress | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self._is_socket_broken = True
        self._last_failure = "no answer" if endpoint.credentials is not None else _NO_ANSWER
        self._last_id = 0

    @property
    def url(self) -> str:
        """The URL of the edge in use or being tried; empty during discovery."""
        return "" if self._address is None else f"udp://{self._address}"

    @property
    def _open_session(self) -> UdpSession:
        self._check_open()
        if self._session is None:
            raise ClientClosed
        return self._session

    async def report(self, fix: PositionFix) -> None:
        """Report the endpoint's position; raise the refusal of the previous report, if any."""
        session, now = self._open_session, self._clock.now()
        session.report(self._report_of(fix, now), now)
        self._place = fix.place
        self._wake.set()
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused

    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        """Return the id for a new subscription."""
        return self._open_session.subscription_id_for(request)

    def acknowledge(self, receipt: object) -> None:
        """Acknowledge a message that the application has taken."""
        if self._session is not None:
            self._session.acknowledge(receipt)
            self._wake.set()

    def _publication_sender(self, publication: OutgoingMessage) -> Callable[[], Hashable]:
        now = self._clock.now()
        self._last_id = max(now, self._last_id + 1)
        message = self._message_of(publication, MessageId(self._last_id), now)

        def send() -> Hashable:
            self._open_session.publish(message, self._clock.now())
            return MessageName(message.source, message.id)

        return send

    def _message_of(self, publication: OutgoingMessage, number: MessageId, now: Instant) -> Message:
        message = udp_message_of(publication, self._endpoint.name, number, now)
        if not publication.is_signed:
            return message
        return signed_message_of(publication, signer_of(self._endpoint.credentials), self._endpoint.name, number, now)

    def _send_subscribe(self, subscription_id: int, request: SubscriptionRequest) -> Hashable:
        subscription = subscription_of(request, self._endpoint.name, subscription_id)
        self._open_session.subscribe(subscription, self._clock.now())
        return SubscriptionName(self._endpoint.name, subscription.id)

    def _send_unsubscribe(self, subscription_id: int) -> None:
        """Queue UNSUBSCRIBE; there is no answer to wait for, because messages are no longer delivered in either case."""
        self._open_session.unsubscribe(SubscriptionId(subscription_id), self._clock.now())

    def _withdraw(self, key: Hashable) -> None:
        if self._session is not None and isinstance(key, MessageName | SubscriptionName):
            self._session.withdraw(key)

    async def _keep_connected(self) -> None:
        within_s = max(self._limits.connect_within_s, ATTEMPT_S)
        self._begin_deadline(within_s)
        self._address = await self._unless_closing(find_edge(self._discovery, within_s))
        if self._address is None:
            return
        self._session = session = UdpSession(self._setup(self._address), os.urandom)
        now = self._clock.now()
        session.start(self._report_of(PositionFix(self._endpoint.place), now), now)
        if self._endpoint.trust is not None:
            self._follow_revocations()
        while session.phase is not UdpPhase.CLOSED:
            await self._tick(session)
            if self._closing.is_set():
                session.close(self._clock.now())
                self._send(session.take_outgoing())
        self._dispatch(session.take_events())  # the end event of a closed session

    def _finish(self, fault: ClientFault | None) -> None:
        self._rediscovery.end()
        self._multicast.close()
        if self._transport is not None:
            self._transport.close()
        super()._finish(fault)

    def _setup(self, address: EdgeAddress) -> UdpSetup:
        credentials, noise = self._endpoint.credentials, None
        if credentials is not None and credentials.certificate is not None:
            noise = NoiseCredentials(credentials.certificate, credentials.key, address.key)
        return UdpSetup(
            self._endpoint.name,
            noise,
            self._endpoint.trust,
            self._limits.pending_max,
            self._endpoint.untaken_max,
            self._endpoint.joins_multicast,
        )

    def _report_of(self, fix: PositionFix, now: Instant) -> Report:
        return Report(self._endpoint.name, fix.place, fix.seen_at or now, fix.heading_deg, fix.speed_mps)

    async def _tick(self, session: UdpSession) -> None:
        """Process received datagrams and timers, send queued datagrams, then sleep."""
        self._process_received()
        is_edge_revoked = self._is_edge_revoked()
        if is_edge_revoked:
            session.leave_edge(_REVOKED, self._clock.now())
            self._send(session.take_outgoing())
        session.on_tick(self._clock.now())
        if (outgoing := session.take_outgoing()) and not is_edge_revoked:
            await self._ensure_socket()
            self._send(outgoing)
        self._dispatch(session.take_events())
        self._check_deadline()
        if self._transport is not None:
            self._multicast.listen(session.cells, self._place, self._transport.get_extra_info("sockname")[0])
        if session.phase is UdpPhase.RECONNECTING:
            self._rediscover(session)
        if not self._closing.is_set() and session.phase is not UdpPhase.CLOSED:
            await self._sleep(session)

    def _rediscover(self, session: UdpSession) -> None:
        address = self._rediscovery.poll(self._place)
        if address is not None and (address != self._address or self._is_edge_revoked()):
            self._address, self._is_socket_broken = address, True
            session.switch_edge(address.key, self._clock.now())

    def _is_edge_revoked(self) -> bool:
        """Return whether the list of revoked signers has the certificate of this edge: nothing more is sent to it."""
        trust, serial = self._endpoint.trust, None if self._address is None else self._address.serial
        return trust is not None and serial is not None and trust.authority.is_revoked(serial)

    async def _sleep(self, session: UdpSession) -> None:
        wait_s, left_s = max(0.0, (session.next_at - self._clock.now()) / SECOND_NS), self._left_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s if left_s is None else min(wait_s, left_s)):
                await self._wake.wait()
        self._wake.clear()

    def _check_deadline(self) -> None:
        left_s = self._left_s
        if left_s is None:
            return
        is_refused = self._last_failure == os.strerror(errno.ECONNREFUSED) and not self._was_connected
        if not left_s or (is_refused and self._limits.connect_within_s == 0):
            raise self._refused or EdgeUnreachable(f"{self._discovery.target}: {self._last_failure}")

    async def _ensure_socket(self) -> None:
        """Open a socket unless one is usable; datagrams that cannot be sent meanwhile are lost, as on any network."""
        if not self._is_socket_broken:
            return
        assert self._address is not None, "an edge was found"
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        try:
            self._transport = await open_socket((self._address.host, self._address.port), self._on_datagram, self._on_fault)
            self._is_socket_broken = False
        except OSError as fault:
            self._on_fault(fault)

    def _send(self, outgoing: list[bytes]) -> None:
        for data in outgoing:
            if self._transport is not None and not self._transport.is_closing():
                self._transport.sendto(data)

    def _on_datagram(self, data: bytes, host: str) -> None:
        del host
        if self._session is not None:
            self._receive(self._session.on_datagram, data)

    def _on_multicast(self, data: bytes) -> None:
        if self._session is not None:
            self._receive(self._session.on_multicast, data)

    def _receive(self, process: OnSessionDatagram, data: bytes) -> None:
        self._received.append((process, data, self._clock.now()))
        if len(self._received) >= RECEIVED_MAX:
            self._process_received()
        self._wake.set()

    def _process_received(self) -> None:
        received, self._received = self._received, []
        for process, data, received_at in received:
            process(data, received_at)

    def _on_fault(self, fault: OSError) -> None:
        """Record a socket error: no listener at the port (temporary), or a socket that is unusable on the current network."""
        self._is_socket_broken |= fault.errno != errno.ECONNREFUSED
        self._last_failure = os.strerror(fault.errno) if fault.errno and fault.errno > 0 else str(fault)
        self._wake.set()

    def _on_connected(self) -> str:
        self._rediscovery.end()
        return ""

    def _lose(self, reason: str) -> None:
        self._last_failure, self._is_socket_broken = reason, True
        self._rediscovery.begin()
        super()._lose(reason)

    def _on_ended(self, ended: Ended) -> None:
        if ended.fault is not None:
            raise ended.fault
