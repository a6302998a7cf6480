"""The session table: the open UDP sessions by token, from their first datagram to their end.

Invariants:
- every token of an open session is in `connections`; a session has one connection, and previous ones briefly after a key change;
- a row of the columns is in use exactly while its session is open; a new session of an endpoint replaces the one it has.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from milepost.broker.broker import Broker, ConnectResult
from milepost.broker.session import Connection
from milepost.listeners.diagnostic_log import DiagnosticLog
from milepost.listeners.udp.connection import ENCODING_UDP, SessionColumns, UdpConnection
from milepost.listeners.udp.decryption import DatagramReader
from milepost.listeners.udp.handshake import PendingSession
from milepost.listeners.udp.sender import UdpSender
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason, Refused
from milepost.model.session_datagrams import Close, CloseCause, Init, SessionToken
from milepost.vetting import ClientIdentity
from milepost.vetting.rates import RateLimits

PREVIOUS_TOKEN_NS: Final = 10 * SECOND_NS
"""Time for which datagrams under a previous token are accepted."""

REFUSED_LONG_AGO_NS: Final = 3_600 * SECOND_NS


class SessionTable:
    """The open sessions of a UDP listener."""

    def __init__(
        self,
        broker: Broker,
        settings: UdpSettings,
        connections: dict[bytes, UdpConnection],
        columns: SessionColumns,
        reader: DatagramReader,
        sender: UdpSender,
        log: DiagnosticLog,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._rates = RateLimits(settings.messages_per_s, settings.messages_burst)
        self._connections = connections
        self._columns = columns
        self._reader = reader
        self._sender = sender
        self._log = log
        self._previous: dict[UdpConnection, int] = {}
        self.on_ended: Callable[[UdpConnection], None] = _do_nothing
        """Called for each connection that has ended."""

    def __len__(self) -> int:
        return len(self._connections) - len(self._previous)

    def __iter__(self) -> Iterator[UdpConnection]:
        return iter([connection for connection in self._connections.values() if self.is_current(connection)])

    def is_current(self, connection: UdpConnection) -> bool:
        """Return whether the session still has this connection; another listener may have taken it over in this tick."""
        return connection.session.connection is connection

    def may_resume(self, init: Init, role: str | None) -> bool:
        """Return whether the session that an endpoint wants to resume is open here and belongs to it."""
        return self._maybe_previous(init, role) is not None

    def refuse_opening(self, name: EndpointId, role: str | None, now: Instant) -> Refused | None:
        """Check that the endpoint has no session of another owner that it may not replace."""
        return self._broker.refuse_takeover(name, ClientIdentity(name, None, role), now)

    def _maybe_previous(self, init: Init, role: str | None) -> UdpConnection | None:
        connection = self._connections.get(init.former.to_bytes(8, "little")) if init.former is not None else None
        is_own = (
            connection is not None
            and self.is_current(connection)
            and connection.identity == ClientIdentity(init.report.endpoint, None, role)
        )
        return connection if is_own else None

    def maybe_open(self, pending: PendingSession, address: bytes, now: Instant, monotonic_now: int) -> UdpConnection | None:
        """Open a pending session on its first datagram; None if it cannot be opened or resumed as acknowledged."""
        if pending.is_resumed:
            previous = self._maybe_previous(pending.init, pending.role)
            return self._resume(previous, pending, address, monotonic_now) if previous is not None else None
        connection = self._begin(pending, now, monotonic_now)
        if connection is not None:
            self._close_stale(connection.number, monotonic_now)
            self._fill_row(connection, pending, address, monotonic_now)
            self._log.info_limited("session opened", client=pending.name, role=pending.role)
        return connection

    def _begin(self, pending: PendingSession, now: Instant, monotonic_now: int) -> UdpConnection | None:
        refused = self.refuse_opening(pending.name, pending.role, now)  # another owner may have connected since INIT
        if refused is not None:
            self._broker.refuse(refused)
            return None
        other = self._broker.find_session(pending.name)
        is_udp = other is None or isinstance(other.connection, UdpConnection)
        # An MQTT session ends here; state that the endpoint has at other edges is added later.
        if other is not None and isinstance(other.connection, UdpConnection):  # the new session may reuse its number and row
            self._sender.send_to(
                other.connection, Close(SessionToken(other.connection.token), CloseCause.REPLACED), monotonic_now
            )
            self._forget(other.connection)
        identity = ClientIdentity(pending.name, None, pending.role)
        opened = self._broker.connect(
            pending.name,
            connection=Connection(),
            identity=identity,
            rates=self._rates,
            clean_start=not is_udp,
            expiry_ns=0,
            window=self._settings.in_flight_max,
            encoding=ENCODING_UDP,
            will=None,
            now=now,
        )
        if not isinstance(opened, ConnectResult):
            self._broker.refuse(opened)
            return None
        connection = opened.session.connection = UdpConnection(
            opened.session, pending.token, identity, receives_multicast=pending.init.joins_multicast
        )
        return connection

    def _fill_row(self, connection: UdpConnection, pending: PendingSession, address: bytes, monotonic_now: int) -> None:
        columns, number = self._columns, connection.number
        columns.allocate(number)
        columns.addresses[number] = np.frombuffer(address, np.uint8)
        columns.tokens[number], columns.serials[number], columns.counters[number] = pending.token, pending.serial, 0
        columns.received_at[number] = columns.sent_at[number] = monotonic_now
        columns.refused_at[number] = monotonic_now - REFUSED_LONG_AGO_NS
        columns.keys_expire_at[number] = monotonic_now + self._settings.key_lifetime_ns * 3 // 2
        if pending.keys.send:
            columns.send_keys[number] = np.frombuffer(pending.keys.send, np.uint8)
            columns.receive_keys[number] = np.frombuffer(pending.keys.receive, np.uint8)
        self._connections[connection.key] = connection

    def _close_stale(self, number: int, monotonic_now: int) -> None:
        """Close the stale connection in a row whose session another listener took over in this tick: the number was reused."""
        stale = self._maybe_in_row(number)
        if stale is not None:
            self._sender.send_to(stale, Close(SessionToken(stale.token), CloseCause.REPLACED), monotonic_now)
            self._forget(stale)

    def _maybe_in_row(self, number: int) -> UdpConnection | None:
        columns = self._columns
        return self._connections[int(columns.tokens[number]).to_bytes(8, "little")] if columns.is_used[number] else None

    def _resume(self, previous: UdpConnection, pending: PendingSession, address: bytes, monotonic_now: int) -> UdpConnection:
        """Resume a session under a new token and new keys; datagrams under the previous ones are still accepted."""
        connection = UdpConnection(
            previous.session, pending.token, previous.identity, receives_multicast=pending.init.joins_multicast
        )
        self._reader.pin(previous)
        connection.take_over(previous)
        previous.session.connection = connection
        self._fill_row(connection, pending, address, monotonic_now)
        self._previous[previous] = monotonic_now + PREVIOUS_TOKEN_NS
        self.on_ended(previous)
        for older in self._previous:
            if older.successor is previous:
                older.successor = connection
        return connection

    def leave(self, connection: UdpConnection, now: Instant) -> None:
        """Remove a session that its endpoint has closed."""
        if connection.session.connection is connection:
            self._broker.disconnect(connection.session, now, publishes_will=False)
            self._forget(connection)
            self._log.info_limited("session closed", client=connection.session.name)

    def end(self, connection: UdpConnection, cause: CloseCause, now: Instant, monotonic_now: int) -> None:
        """Close a session and send CLOSE."""
        self._sender.send_to(connection, Close(SessionToken(connection.token), cause), monotonic_now)
        self._broker.disconnect(connection.session, now, publishes_will=True)
        self._forget(connection)
        self._log.info_limited("session ended", client=connection.session.name, cause=cause.name.lower())

    def end_number(self, number: int, cause: CloseCause, now: Instant, monotonic_now: int) -> None:
        """Close the session with a number, if it is still open here."""
        connection = self._maybe_in_row(number)
        if connection is not None and self.is_current(connection):
            self.end(connection, cause, now, monotonic_now)

    def expel(self, connection: UdpConnection, refused: Refused, now: Instant, monotonic_now: int) -> None:
        """Send CLOSE and remove a session that the broker expels or another listener has taken over."""
        connection = connection.successor or connection
        if connection.key in self._connections:
            cause = CloseCause.REPLACED if refused.reason is Reason.SESSION_TAKEN_OVER else CloseCause.EXPELLED
            self._sender.send_to(connection, Close(SessionToken(connection.token), cause), monotonic_now)
            if self.is_current(connection):
                self._broker.disconnect(connection.session, now, publishes_will=True)
            self._forget(connection)

    def drop_expired(self, monotonic_now: int) -> None:
        """Drop expired previous tokens."""
        for connection, expires_at in list(self._previous.items()):
            if expires_at > monotonic_now:
                break  # entries are in order of time
            self._drop(connection)

    def _forget(self, connection: UdpConnection) -> None:
        for previous in [old for old in self._previous if old.successor is connection]:
            self._drop(previous)
        self._columns.free(connection.number)
        self._drop(connection)

    def _drop(self, connection: UdpConnection) -> None:
        self._connections.pop(connection.key, None)
        self._previous.pop(connection, None)
        self._reader.forget(connection)
        self.on_ended(connection)


def _do_nothing(_connection: UdpConnection) -> None:
    """Do nothing: no callback is set."""
