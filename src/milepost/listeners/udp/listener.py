"""The UDP listener: sessions of endpoints over datagrams, encrypted or plain (M10-M13, M28).

    batch ─▶ decrypt (`receiver`) ─▶ unknown sessions: `handshake`, or ASK: `discovery`
                 │                       └─ first DATA of a pending session opens it
                 ├▶ others, the most urgent first: `requests` ─▶ broker
                 └▶ reports, gathered as columns (`inbound`): rates ─▶ broker
    end of tick ─▶ deliver ─▶ `sender`;  pulse ─▶ retransmissions, heartbeats;  on_timer ─▶ silence, expired keys

| state    | INIT               | first DATA of it    | DATA          | CLOSE | silence     | a newer session            |
|----------|--------------------|---------------------|---------------|-------|-------------|----------------------------|
| none     | pending, ACK       | RESET               | RESET         | RESET |             |                            |
| pending  | the same ACK       | open; report used   |               |       | none, 10 s  | both pending               |
| open     | another is pending |                     | served        | none  | none, CLOSE | resumed under it, or CLOSE |
| previous |                    |                     | served        | none  | none, 10 s  |                            |

Invariants:
- no system clock is read here: `now` is the wall-clock time, `monotonic_now` the monotonic time that measures silence;
- a misbehaving endpoint affects no session but its own.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from milepost.broker.broker import Broker
from milepost.broker.effects import Deliver, FastPathBatch, Release, Revoke
from milepost.broker.publication import Delivery, Publication
from milepost.broker.session import Connection, Session
from milepost.listeners.diagnostic_log import DiagnosticLog
from milepost.listeners.udp.batch_io import sockaddr_of
from milepost.listeners.udp.connection import ENCODING_UDP, SessionColumns, UdpConnection
from milepost.listeners.udp.decryption import DatagramReader, PlainReader, ReceivedBatch, SealedReader
from milepost.listeners.udp.discovery import Discovery
from milepost.listeners.udp.handshake import (
    PendingSession,
    PendingSessions,
    PlainServerHandshake,
    RandomBytes,
    SealedServerHandshake,
)
from milepost.listeners.udp.inbound import InboundQueue
from milepost.listeners.udp.requests import RequestHandler
from milepost.listeners.udp.sender import (
    DatagramOutput,
    DatagramSealer,
    NoiseSealer,
    Octets,
    PlainSealer,
    UdpSender,
    content_of,
    ensure_id,
)
from milepost.listeners.udp.session_table import SessionTable
from milepost.listeners.udp.settings import SILENT_INTERVALS, EdgeIdentity, UdpSettings
from milepost.model.addresses import ToArea
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.session_datagrams import (
    CloseCause,
    Datagram,
    MessageName,
    Name,
    ReceivedDatagram,
    SubscriptionName,
    refusal_of,
)
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.sealed import SealedType

# Retransmission: reliable messages are repeated until they are acknowledged or given up.
#
# Invariants:
# - a message and all its receivers are one entry here, also after some have acknowledged it;
# - the time between two tries doubles, up to a limit; after the last try it is given up, and counted as unanswered;
# - only the session (`in_flight`) records whether a receiver has acknowledged.

RETRY_FIRST_NS: Final = 3 * SECOND_NS // 10
RETRY_LONGEST_NS: Final = 5 * SECOND_NS
TRIES_MAX: Final = 16


class PendingRetry(NamedTuple):
    """A message that some receivers have not acknowledged."""

    at: int
    order: int
    tries: int
    """How often the message was sent."""
    delivery: Delivery
    number: int
    sessions: list[Session]


class Retransmission:
    """Messages that may have to be sent again."""

    def __init__(self) -> None:
        self._due: list[PendingRetry] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._due)

    def expect(self, delivery: Delivery, number: int, sessions: list[Session], monotonic_now: int, tries: int = 1) -> None:
        """Record a message that was sent *tries* times and awaits acknowledgement by *sessions*."""
        self._order += 1
        wait_ns = min(RETRY_FIRST_NS << (tries - 1), RETRY_LONGEST_NS)
        heappush(self._due, PendingRetry(monotonic_now + wait_ns, self._order, tries, delivery, number, sessions))

    def overdue(self, monotonic_now: int) -> list[PendingRetry]:
        """Return the messages that are due for a retry, with the sessions that have not acknowledged them."""
        found = []
        while self._due and self._due[0].at <= monotonic_now:
            due = heappop(self._due)
            waiting = [one for one in due.sessions if is_unanswered(one, due.delivery, due.number)]
            if waiting:
                found.append(due._replace(sessions=waiting))
        return found


def is_unanswered(session: Session, delivery: Delivery, number: int) -> bool:
    """Return whether an endpoint is connected here and has not acknowledged a message."""
    return session.in_flight.get(number) is delivery and isinstance(session.connection, UdpConnection)


RESUME_BYTES: Final = 65_536
"""Maximum queued bytes drained to one endpoint per tick."""

_HEARTBEAT: Final = b"\x32\x00"


class UdpListener:
    """All UDP sessions of an edge."""

    encodings: tuple[int, ...] = (ENCODING_UDP,)

    def __init__(
        self,
        broker: Broker,
        settings: UdpSettings,
        identity: EdgeIdentity | None,
        output: DatagramOutput,
        log: DiagnosticLog,
        *,
        random_bytes: RandomBytes,
        clock: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._identity = identity
        self._log = log
        self._clock = clock
        counts, connections = broker.counts, dict[bytes, UdpConnection]()
        self._columns = columns = SessionColumns(broker.limits.sessions_max)
        self._reader: DatagramReader = (
            PlainReader(connections)
            if identity is None
            else SealedReader(connections, columns, counts, settings.cached_ciphers_max)
        )
        sealer: DatagramSealer = PlainSealer(columns) if identity is None else NoiseSealer(columns)
        self.sender = UdpSender(columns, sealer, output, counts, settings.unsent_bytes_max)
        self.session_table = SessionTable(broker, settings, connections, columns, self._reader, self.sender, log)
        self.session_table.on_ended = self._forget
        self._is_known = connections.__contains__
        self._pending_sessions = PendingSessions(broker.name, settings, random_bytes, counts, self._is_known)
        self._handshake: PlainServerHandshake | SealedServerHandshake = (
            PlainServerHandshake(self._pending_sessions, counts, self.session_table.may_resume, self.session_table.refuse_opening)
            if identity is None
            else SealedServerHandshake(
                self._pending_sessions,
                identity,
                settings,
                random_bytes,
                counts,
                self.session_table.may_resume,
                self.session_table.refuse_opening,
                log,
            )
        )
        self.discovery = Discovery(broker)
        self._requests = RequestHandler(broker, self)
        self._inbound = InboundQueue(broker, settings, columns, self, log)
        self._retransmission = Retransmission()
        self._confirmations: list[tuple[UdpConnection, Name, bool]] = []
        self._expelled: list[tuple[UdpConnection, Refused]] = []
        self._drainable: dict[UdpConnection, None] = {}
        self._new_sessions: list[tuple[UdpConnection, Report]] = []
        """The connections opened in this batch, and the reports in their INITs."""
        self.bytes_received = 0
        self.datagrams_received = 0

    @property
    def pending(self) -> int:
        """Number of pending sessions."""
        return len(self._pending_sessions.pending)

    @property
    def is_gathering(self) -> bool:
        """Whether reports wait for others; they are processed at the end of the tick in which they are due."""
        return self._inbound.is_gathering

    def on_batch(self, datagrams: list[bytes], addresses: Octets, now: Instant) -> None:
        """Handle a batch of datagrams with their source addresses."""
        monotonic_now = self._clock()
        self.datagrams_received += len(datagrams)
        self.bytes_received += sum(map(len, datagrams))
        received = self._reader.read(datagrams)
        self._handle(received, addresses, now, monotonic_now)
        if received.unknown:  # last: a new session may replace one that has input in this batch
            opened = [
                row for row in received.unknown if self._is_opened(datagrams[row], addresses[row].tobytes(), now, monotonic_now)
            ]
            self._inbound.process_reports(self._new_sessions, now, monotonic_now)
            self._new_sessions = []
            self._handle(self._reader.read([datagrams[row] for row in opened]), addresses[opened], now, monotonic_now)

    def _handle(self, received: ReceivedBatch, addresses: Octets, now: Instant, monotonic_now: int) -> None:
        if received.report_rows or received.others:
            self._inbound.handle(received, addresses, now, monotonic_now)

    def _is_opened(self, data: bytes, address: bytes, now: Instant, monotonic_now: int) -> bool:
        """Open a pending session if this is its first datagram; otherwise reply. Return whether the session is open now."""
        token = self._token_in(data)
        if self._is_known(token):  # opened by an earlier datagram of the batch
            return True
        pending = self._pending_sessions.maybe_pending(token)
        if pending is not None:
            if not self._reader.can_decrypt(pending.keys.receive, data):
                # Do not send RESET: it would reveal the reset token to an eavesdropper.
                self._broker.refuse(Refused(Reason.DECRYPTION_FAILED))
                return False
            if self._begin(pending, address, now, monotonic_now):
                return True
        if data and data[0] == SealedType.ASK:
            self._reply(self.discovery.answer(data, now), address)
        else:
            self._reply(self._handshake.on_unknown(data, address, now, monotonic_now), address)
        return False

    def _token_in(self, data: bytes) -> bytes:
        return data[3:11] if self._identity is None else data[1:9] if data[:1] == b"\x04" else b""

    def _begin(self, pending: PendingSession, address: bytes, now: Instant, monotonic_now: int) -> bool:
        self._pending_sessions.remove(pending)
        connection = self.session_table.maybe_open(pending, address, now, monotonic_now)
        if connection is not None and not pending.is_resumed:
            self._new_sessions.append((connection, pending.init.report))
        return connection is not None

    def _reply(self, data: bytes, address: bytes) -> None:
        if data:
            self.sender.reply(data, address)

    def serve(self, connection: UdpConnection, value: Datagram, size: int, now: Instant) -> None:
        """Carry out an endpoint's request, unless its session has ended in this tick."""
        if self.session_table.is_current(connection):
            self._requests.serve(connection, value, size, now)

    def leave(self, connection: UdpConnection, now: Instant) -> None:
        """End a session that its endpoint has closed."""
        self.session_table.leave(connection, now)

    def _forget(self, connection: UdpConnection) -> None:
        self._drainable.pop(connection, None)

    def confirm(self, connection: UdpConnection, name: Name, *, is_duplicate: bool = False) -> None:
        """Send RECEIVED once the changes of this tick are stored; *is_duplicate*: the datagram is a duplicate."""
        self._confirmations.append((connection, name, is_duplicate))

    def refuse(self, connection: UdpConnection, refused: Refused, about: Name | None) -> None:
        """Send a refusal, unless the session has ended in this tick."""
        self._log.info_limited("refused", client=connection.session.name, reason=refused.reason.name, detail=refused.detail)
        if self.session_table.is_current(connection):
            self.sender.send_to(connection, refusal_of(refused, about), self._clock())

    def mark_drainable(self, connection: UdpConnection) -> None:
        """Mark an endpoint that has acknowledged a message as ready for more, if messages wait for it."""
        if connection.session.queue is not None:
            self._drainable[connection] = None

    def deliver(self, action: Deliver, now: Instant) -> None:
        """Send a message to sessions, encrypted for each; messages with a delivery number are repeated until acknowledged."""
        sessions = [one for one in action.sessions if isinstance(one.connection, UdpConnection)]
        if not sessions:
            return
        publication = action.delivery.publication
        ensure_id(publication, self._broker.next_id(now))
        try:
            content = content_of(action.delivery, action.packet_id)
        except Malformed as fault:
            self._give_up(sessions, action, fault.reason)
            return
        monotonic_now = self._clock()
        unicast = self._multicast(sessions, publication, content)
        if unicast:
            self.sender.send_to_all([one.number for one in unicast], content, publication.priority, monotonic_now)
        if action.packet_id:
            self._retransmission.expect(action.delivery, action.packet_id, sessions, monotonic_now)

    def _multicast(self, sessions: list[Session], publication: Publication, content: bytes) -> list[Session]:
        """Multicast a message to an area, once per cell; return the sessions that need it by unicast.

        Multicast is not encrypted: if sessions are, only signed messages use it. Retransmissions are unicast.
        """
        cells = self._settings.cells
        is_open = publication.signed is not None or self._identity is None
        if cells is None or not is_open or not isinstance(publication.address, ToArea):
            return sessions
        if not self._broker.is_open(publication.topic):  # everyone in a cell receives what is multicast
            return sessions
        unicast = [
            one for one in sessions if not (isinstance(one.connection, UdpConnection) and one.connection.receives_multicast)
        ]
        groups = cells.find_groups_over(publication.address.area, len(sessions) - len(unicast))
        if groups is None:  # more cells than receivers
            return sessions
        self.sender.multicast(content, [sockaddr_of(group, cells.port) for group in sorted(groups)], publication.priority)
        return unicast

    def _give_up(self, sessions: list[Session], action: Deliver, reason: Reason) -> None:
        for session in sessions:
            self._broker.fail(session, action.packet_id, action.delivery, reason)
            if action.packet_id and isinstance(session.connection, UdpConnection):  # the window has room for queued messages now
                self.mark_drainable(session.connection)

    def run(self, action: FastPathBatch, now: Instant) -> None:
        """Fail: no message received over UDP can be forwarded as received."""
        raise AssertionError(f"a run of {action.encoding} at {now}")

    def release(self, action: Release) -> None:
        """Do nothing: there is no QoS 2 over UDP; receivers detect duplicates by the message name."""

    def expel(self, connection: Connection, refused: Refused) -> None:
        """Close a session at the end of this tick, if it belongs to this listener."""
        if isinstance(connection, UdpConnection):
            self._expelled.append((connection, refused))

    def redirect(self, connection: Connection, address: str) -> None:
        """Do nothing: UDP endpoints find their edge by discovery."""

    def welcome(self, name: EndpointId, refused: Refused | None, now: Instant) -> None:
        """Do nothing: UDP endpoints connect at once, and their state at other edges is added later."""

    def discard_replies(self, refused: Refused) -> None:
        """Discard the acknowledgements of this tick; the endpoints will repeat their requests."""
        del refused
        for connection, name, is_duplicate in self._confirmations:
            if not is_duplicate and connection.names is not None and isinstance(name, MessageName):
                connection.names.pop(name, None)
        self._confirmations = []

    def disconnect(self, session: Session, refused: Refused) -> None:
        """Do nothing: UDP sessions are not durable, so no guarantee is broken."""

    def resume(self, now: Instant) -> None:
        """Drain the queues of the endpoints that accept more."""
        for connection in list(self._drainable):
            session = connection.session
            if session.connection is not connection or not self._broker.drain(session, now, RESUME_BYTES):
                self._drainable.pop(connection, None)

    def send(self, now: Instant) -> bool:
        """Send all output; return whether more can be sent at once."""
        monotonic_now = self._clock()
        self.sender.send()  # alerts do not wait for acknowledgements and reports
        if self._confirmations:
            confirmations, self._confirmations = self._confirmations, []
            for connection, name, _ in confirmations:
                if self.session_table.is_current(connection):
                    self.sender.send_to(connection, ReceivedDatagram(name), monotonic_now)
        expelled, self._expelled = self._expelled, []
        for connection, refused in expelled:
            self.session_table.expel(connection, refused, now, monotonic_now)
        self._inbound.flush(now, monotonic_now, is_due_only=True)
        self.sender.send()
        return bool(self._drainable)

    def on_timer(self, now: Instant) -> None:
        """End sessions that are silent or whose keys have expired, and run `pulse`."""
        monotonic_now, columns, interval_ns = self._clock(), self._columns, self._settings.reporting_interval_ns
        self._inbound.flush(now, monotonic_now)  # a waiting report counts as a keepalive
        silent = columns.numbers_where(lambda part: columns.received_at[part] < monotonic_now - SILENT_INTERVALS * interval_ns)
        expired = (
            columns.numbers_where(lambda part: columns.keys_expire_at[part] < monotonic_now) if self._identity is not None else []
        )
        for number in {*silent, *expired}:
            self.session_table.end_number(number, CloseCause.SILENT, now, monotonic_now)
        self.pulse(now)
        self.session_table.drop_expired(monotonic_now)
        self._pending_sessions.drop_expired(monotonic_now)

    def pulse(self, now: Instant) -> None:
        """Repeat unacknowledged messages and send heartbeats; called often, so that each call does little."""
        monotonic_now, columns, settings = self._clock(), self._columns, self._settings
        for due in self._retransmission.overdue(monotonic_now):
            self._repeat(due, now, monotonic_now)
        heartbeat_ns = settings.heartbeat_intervals * settings.reporting_interval_ns
        quiet = columns.numbers_where(lambda part: columns.sent_at[part] <= monotonic_now - heartbeat_ns)
        if quiet:
            self.sender.send_to_all(quiet, _HEARTBEAT, Priority.CONVENIENCE, monotonic_now)

    def _repeat(self, due: PendingRetry, now: Instant, monotonic_now: int) -> None:
        """Send a message again to the sessions that have not acknowledged it, or give it up."""
        _, _, tries, delivery, number, sessions = due
        publication = delivery.publication
        denied = [session for session in sessions if not self._broker.may_receive(session, publication)]  # by newer rules
        if denied:
            self._give_up(denied, Deliver(delivery, number, denied), Reason.NOT_ALLOWED)
            sessions = [session for session in sessions if session not in denied]
        if not sessions:
            return
        reason = Reason.EXPIRED if publication.valid_until < now else Reason.UNACKNOWLEDGED if tries >= TRIES_MAX else None
        if reason is None:
            self.sender.send_to_all(
                [one.number for one in sessions], content_of(delivery, number), publication.priority, monotonic_now
            )
            self._retransmission.expect(delivery, number, sessions, monotonic_now, tries + 1)
            return
        self._give_up(sessions, Deliver(delivery, number, sessions), reason)

    def revoke(self, action: Revoke) -> None:
        """Notify an endpoint that new rules have ended one of its subscriptions."""
        connection = action.session.connection
        if isinstance(connection, UdpConnection):
            self.refuse(connection, action.refused, SubscriptionName(action.session.name, SubscriptionId(action.subscription_id)))

    def expel_revoked(self, now: Instant) -> int:
        """End the sessions whose certificates are revoked, and drop the pending ones; return how many were open."""
        assert self._identity is not None, "an unencrypted listener has no certificates"
        revoked = self._identity.certificate_authority.revoked
        self._pending_sessions.drop_revoked(revoked)
        found = [connection for connection in self.session_table if int(self._columns.serials[connection.number]) in revoked]
        for connection in found:
            self._broker.refuse(Refused(Reason.CERTIFICATE_REVOKED))
            self.session_table.end(connection, CloseCause.EXPELLED, now, self._clock())
        return len(found)

    def shut_down(self, now: Instant) -> None:
        """Close all sessions because the edge stops."""
        for connection in self.session_table:
            self.session_table.end(connection, CloseCause.STOPPING, now, self._clock())
