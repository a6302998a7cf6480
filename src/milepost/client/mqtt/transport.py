"""MQTT as a transport: sockets, clocks and tasks around `MqttSession`.

    _keep_connected   attempts in sequence until the client is closed or one fails for good
      └ _attempt        one connection, from the first byte to the last
          └ _exchange     three tasks; the first to end ends the others
              ├ _read       bytes ─▶ session ─▶ events
              ├ _write      session ─▶ bytes, whenever `_wake` is set
              └ _ping       keepalive

Invariant: this module makes no protocol decision.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import Callable, Hashable
from random import random
from time import monotonic, time_ns
from typing import Final

from milepost.client.base_transport import BaseTransport
from milepost.client.errors import ClientClosed, EdgeUnreachable, RefusedByEdge
from milepost.client.events import ClientState, ClientStateChange, Ended
from milepost.client.messages import OutgoingMessage, SubscriptionRequest
from milepost.client.mqtt.mapping import packet_of, signed_packet_of
from milepost.client.mqtt.redirects import KeepAlive, KeepAliveStep, Redirects
from milepost.client.mqtt.session import MqttPhase, MqttSession
from milepost.client.mqtt.streams import CLOSE_TIMEOUT_S, ClientStream, MqttTarget, open_stream
from milepost.client.transport import ClientLimits, PositionFix
from milepost.client.udp.credentials import Credentials, signer_of
from milepost.model.instants import Instant
from milepost.model.messages import MessageId
from milepost.model.reasons import Malformed
from milepost.model.retry import Retry, RetryPolicy
from milepost.wire.mqtt import Publish

ATTEMPT_S: Final = 10.0
"""Maximum duration of one attempt to connect, from the name lookup to CONNACK."""

STABLE_S: Final = 5.0
"""Duration after which a connection counts as stable: back-off and redirects then restart."""

RECONNECT: Final = RetryPolicy(first_s=0.2, limit_s=20.0, spread=0.5)


class MqttTransport(BaseTransport):
    """One client of one server, or of the servers it is redirected to."""

    def __init__(
        self,
        target: MqttTarget,
        session: MqttSession,
        *,
        tls: ssl.SSLContext | None,
        limits: ClientLimits,
        discards_session: bool,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(session.setup.client_id, limits)
        self._redirects = Redirects(target)
        self._session = session
        self._tls = tls
        self._discards_session = discards_session
        self._credentials = credentials
        self._last_id = 0
        self._accepted = asyncio.Event()
        """Set by the CONNACK of the current connection."""
        self._keep_alive = KeepAlive(0, 0)
        self._ended: Ended | None = None
        self._began_s = 0.0

    @property
    def url(self) -> str:
        """The URL of the server in use or being tried."""
        return str(self._redirects.target)

    async def report(self, fix: PositionFix) -> None:
        """Report the endpoint's position."""
        async with self._slots:
            await self._answer_to(lambda: self._session.report(fix, Instant(time_ns())))

    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        """Return the id for a new subscription."""
        return self._session.subscription_id_for(request)

    def acknowledge(self, receipt: object) -> None:
        """Acknowledge a message that the application has taken."""
        self._session.acknowledge(receipt)
        self._wake.set()

    def _publication_sender(self, publication: OutgoingMessage) -> Callable[[], Hashable]:
        packet, valid_until = self._packet_of(publication, Instant(time_ns()))
        return lambda: self._session.publish(packet, valid_until)

    def _packet_of(self, publication: OutgoingMessage, now: Instant) -> tuple[Publish, Instant | None]:
        if not publication.is_signed:
            return packet_of(publication, now)
        from milepost.client.trust import signed_message_of  # noqa: PLC0415  # imports OpenSSL and protobuf

        self._last_id = max(now, self._last_id + 1)
        source = self._session.setup.client_id
        message = signed_message_of(publication, signer_of(self._credentials), source, MessageId(self._last_id), now)
        return signed_packet_of(publication, message)

    def _send_subscribe(self, subscription_id: int, request: SubscriptionRequest) -> Hashable:
        return self._session.subscribe(subscription_id, request)

    def _send_unsubscribe(self, subscription_id: int) -> Hashable | None:
        ticket, done = self._session.unsubscribe(subscription_id)
        return ticket if done is None and self._session.phase is MqttPhase.CONNECTED else None

    def _withdraw(self, key: Hashable) -> None:
        assert isinstance(key, int), "keys are tickets of the session"
        self._session.withdraw(key)

    async def _keep_connected(self) -> None:
        if self._session.trust is not None:
            self._follow_revocations()
        retry = Retry(RECONNECT)
        self._begin_deadline(self._limits.connect_within_s)
        while not self._closing.is_set():
            self._began_s, url, self._ended = monotonic(), self.url, None
            failure = await self._attempt()
            if self._closing.is_set():
                return
            if self._is_stable:
                retry.reset()
            self._report_loss(failure, url)
            left_s = self._left_s or 0.0
            if not left_s:
                raise failure if isinstance(failure, RefusedByEdge) else EdgeUnreachable(f"{url}: {failure}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(retry.next_wait_s(random()) or 0.0, left_s)):
                    await self._closing.wait()

    def _report_loss(self, failure: Exception, url: str) -> None:
        """Report the lost connection, and the next server if it is a different one."""
        text = str(failure) if url == self.url else f"{str(failure).rstrip('.')}; connecting to {self.url} instead"
        if self._is_connected:
            self._lose(text)
        elif url != self.url:
            self._open_observer.on_change(
                ClientStateChange(ClientState.RECONNECTING if self._was_connected else ClientState.CONNECTING, text)
            )

    @property
    def _is_stable(self) -> bool:
        return self._is_connected and monotonic() - self._began_s > STABLE_S

    async def _attempt(self) -> Exception:
        """Run one connection from the first byte to the last; return why it ended."""
        stream: ClientStream | None = None
        try:
            async with asyncio.timeout(ATTEMPT_S):
                stream = await self._unless_closing(
                    open_stream(self._redirects.target, self._tls, self._session.setup.packet_bytes_max)
                )
            if stream is None:
                return ClientClosed()
            await self._exchange(stream)
        except (OSError, Malformed) as fault:  # timeouts and TLS errors are OSErrors too
            if self._ended is None:  # otherwise the reason in DISCONNECT is more precise
                return self._count_failure(ConnectionError(_describe(fault)))
        finally:
            self._dispatch(self._session.on_lost())
            if self._is_stable:
                self._redirects.on_stable()
            if stream is not None:
                with contextlib.suppress(OSError):
                    await stream.close()
        if self._ended is None:
            return self._count_failure(ConnectionError("the server closed the connection"))
        return self._end_reason(self._ended)

    def _end_reason(self, ended: Ended) -> Exception:
        """Return why the server ended the connection; raise it if reconnecting, here or elsewhere, is pointless."""
        assert ended.fault is not None, "a server always sends a reason code"
        if ended.reference and self._redirects.follow(ended.reference):
            return ended.fault
        if ended.is_final and (self._is_connected or not self._redirects.return_home()):
            raise ended.fault
        return self._count_failure(ended.fault)

    def _count_failure(self, failure: Exception) -> Exception:
        if not self._is_connected:
            self._redirects.on_failure()
        return failure

    async def _exchange(self, stream: ClientStream) -> None:
        """Send and receive over one connection until it ends or the client is closed."""
        self._session.begin()
        self._accepted.clear()
        self._wake.set()
        self._keep_alive = KeepAlive(self._session.keep_alive_s, monotonic())
        tasks = [
            asyncio.create_task(one) for one in (self._read(stream), self._write(stream), self._ping(), self._closing.wait())
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [end for end in ends if isinstance(end, Exception)]
        if self._closing.is_set():
            self._session.disconnect(discard_session=self._discards_session)
            await self._send_last(stream)
        elif malformed := [fault for fault in faults if isinstance(fault, Malformed)]:
            self._session.reject(malformed[0])
            await self._send_last(stream)
        if faults:
            raise faults[0]

    async def _send_last(self, stream: ClientStream) -> None:
        data, _ = self._session.take(Instant(time_ns()))
        if data:
            with contextlib.suppress(OSError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await stream.send(data)

    async def _read(self, stream: ClientStream) -> None:
        while self._session.phase is not MqttPhase.DISCONNECTED:
            data, received_at = await stream.read()
            if not data:
                return
            self._keep_alive.on_received(monotonic())
            self._dispatch(self._session.on_bytes(data, received_at))
            self._wake.set()

    async def _write(self, stream: ClientStream) -> None:
        while True:
            data, events = self._session.take(Instant(time_ns()))
            if not data and not events:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await stream.send(data)
            finally:  # QoS 0 is done once the bytes are handed over
                self._dispatch(events)
            self._keep_alive.on_sent(monotonic())

    async def _ping(self) -> None:
        async with asyncio.timeout(ATTEMPT_S):
            await self._accepted.wait()
        while True:
            await asyncio.sleep(self._keep_alive.due_s(monotonic()))
            step = self._keep_alive.step(monotonic())
            if step is KeepAliveStep.GIVE_UP:
                raise TimeoutError("the server did not answer PINGREQ")
            if step is KeepAliveStep.PING:
                self._session.ping()
                self._wake.set()

    def _on_connected(self) -> str:
        self._accepted.set()
        self._keep_alive = KeepAlive(self._session.keep_alive_s, monotonic())
        self._redirects.on_connected()
        return "" if self._redirects.is_home else f"at {self.url}"

    def _on_ended(self, ended: Ended) -> None:
        self._ended = ended


def _describe(fault: Exception) -> str:
    if isinstance(fault, OSError) and not isinstance(fault, ssl.SSLError) and fault.errno and fault.errno > 0:
        return os.strerror(fault.errno)  # asyncio replaces the system's message by its own
    return str(fault) or ("no answer in time" if isinstance(fault, TimeoutError) else type(fault).__name__)
