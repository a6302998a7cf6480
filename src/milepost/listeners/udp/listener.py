"""The UDP listener: sessions of endpoints over datagrams, encrypted or plain (M10-M13, M28).

    batch ─▶ decrypt (`receiver`) ─▶ unknown sessions: `handshake`, or ASK: `discovery`
                 │                       └─ first DATA of a pending session opens it
                 ├▶ others, the most urgent first: `requests` ─▶ broker
                 └▶ reports, gathered as columns (`inbound`): rates ─▶ broker
    end of tick ─▶ deliver ─▶ `sender`;  pulse ─▶ retransmissions, heartbeats;  tick ─▶ silence, expired keys

| state   | INIT               | first DATA of it    | DATA          | CLOSE | silence     | a newer session            |
|---------|--------------------|---------------------|---------------|-------|-------------|----------------------------|
| none    | pending, ACK       | RESET               | RESET         | RESET |             |                            |
| pending | the same ACK       | open; report used   |               |       | none, 10 s  | both pending               |
| open    | another is pending |                     | served        | none  | none, CLOSE | resumed under it, or CLOSE |
| former  |                    |                     | served        | none  | none, 10 s  |                            |

Invariants:
- no system clock is read here: `now` is the wall-clock time, `beat` a monotonic time, by which silence is measured;
- a misbehaving endpoint affects no session but its own.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from milepost.broker.broker import Broker
from milepost.broker.effects import Deliver, Release, Revoke, Run
from milepost.broker.publication import Delivery, Publication
from milepost.broker.session import Link, Session
from milepost.listeners.log import Log
from milepost.listeners.udp.batch_io import sockaddr_of
from milepost.listeners.udp.connection import ENCODING_UDP, SessionColumns, UdpConnection
from milepost.listeners.udp.discovery import Discovery
from milepost.listeners.udp.handshake import Draw, Opening, Pending, PlainOpening, SealedOpening
from milepost.listeners.udp.inbound import InboundQueue
from milepost.listeners.udp.receiver import Arrived, PlainReader, Reader, SealedReader
from milepost.listeners.udp.requests import RequestHandler
from milepost.listeners.udp.sender import NoiseSeals, NoSeals, Octets, Post, Seals, Sender, content_of, ensure_id
from milepost.listeners.udp.session_table import SessionTable
from milepost.listeners.udp.settings import SILENT_INTERVALS, Identity, UdpSettings
from milepost.model.addresses import ToArea
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.sessions import CloseCause, Datagram, MessageName, Name, Received, SubscriptionName, refusal_of
from milepost.model.subscriptions import SubscriptionId
from milepost.wire.sealed import Kind

# Retransmission: reliable messages are repeated until they are acknowledged or given up.
#
# Invariants:
# - a message and all its receivers are one entry here, also after some have acknowledged it;
# - the time between two tries doubles, up to a limit; after the last try it is given up, and counted as unanswered;
# - only the session (`in_flight`) records whether a receiver has acknowledged.

FIRST_NS: Final = 3 * SECOND_NS // 10
LONGEST_NS: Final = 5 * SECOND_NS
TRIES_MAX: Final = 16


class Due(NamedTuple):
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
        self._due: list[Due] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._due)

    def expect(self, delivery: Delivery, number: int, sessions: list[Session], beat: int, tries: int = 1) -> None:
        """Record a message that was sent *tries* times and awaits acknowledgement by *sessions*."""
        self._order += 1
        wait_ns = min(FIRST_NS << (tries - 1), LONGEST_NS)
        heappush(self._due, Due(beat + wait_ns, self._order, tries, delivery, number, sessions))

    def overdue(self, beat: int) -> list[Due]:
        """Return the messages that are due for a retry, with the sessions that have not acknowledged them."""
        found = []
        while self._due and self._due[0].at <= beat:
            due = heappop(self._due)
            waiting = [one for one in due.sessions if is_unanswered(one, due.delivery, due.number)]
            if waiting:
                found.append(due._replace(sessions=waiting))
        return found


def is_unanswered(session: Session, delivery: Delivery, number: int) -> bool:
    """Return whether an endpoint is connected here and has not acknowledged a message."""
    return session.in_flight.get(number) is delivery and isinstance(session.link, UdpConnection)


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
        identity: Identity | None,
        post: Post,
        log: Log,
        *,
        draw: Draw,
        clock: Callable[[], int],
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._identity = identity
        self._log = log
        self._clock = clock
        counts, links = broker.counts, dict[bytes, UdpConnection]()
        self._columns = columns = SessionColumns(broker.limits.sessions_max)
        self._reader: Reader = (
            PlainReader(links) if identity is None else SealedReader(links, columns, counts, settings.openers_max)
        )
        seals: Seals = NoSeals(columns) if identity is None else NoiseSeals(columns)
        self.sender = Sender(columns, seals, post, counts, settings.unsent_bytes_max)
        self.session_table = SessionTable(broker, settings, links, columns, self._reader, self.sender, log)
        self.session_table.gone = self._forget
        self._is_known = links.__contains__
        self._opening = Opening(broker.name, settings, draw, counts, self._is_known)
        self._strangers: PlainOpening | SealedOpening = (
            PlainOpening(self._opening, counts, self.session_table.may_resume)
            if identity is None
            else SealedOpening(self._opening, identity, settings, draw, counts, self.session_table.may_resume, log)
        )
        self.finding = Discovery(broker)
        self._requests = RequestHandler(broker, self)
        self._inbound = InboundQueue(broker, settings, columns, self, log)
        self._retransmission = Retransmission()
        self._confirmations: list[tuple[UdpConnection, Name, bool]] = []
        self._expelled: list[tuple[UdpConnection, Refused]] = []
        self._wanting: dict[UdpConnection, None] = {}
        self._newcomers: list[tuple[UdpConnection, Report]] = []
        """The connections opened in this batch, and the reports in their INITs."""
        self.bytes_received = 0
        self.datagrams_received = 0

    @property
    def pending(self) -> int:
        """Number of pending sessions."""
        return len(self._opening.pending)

    @property
    def is_gathering(self) -> bool:
        """Whether reports wait for others; they are processed at the end of the tick in which they are due."""
        return self._inbound.is_gathering

    def on_batch(self, datagrams: list[bytes], addresses: Octets, now: Instant) -> None:
        """Handle a batch of datagrams with their source addresses."""
        beat = self._clock()
        self.datagrams_received += len(datagrams)
        self.bytes_received += sum(map(len, datagrams))
        arrived = self._reader.read(datagrams)
        self._hear(arrived, addresses, now, beat)
        if arrived.strangers:  # last: a new session may replace one that has input in this batch
            opened = [row for row in arrived.strangers if self._is_opened(datagrams[row], addresses[row].tobytes(), now, beat)]
            self._inbound.report_all(self._newcomers, now, beat)
            self._newcomers = []
            self._hear(self._reader.read([datagrams[row] for row in opened]), addresses[opened], now, beat)

    def _hear(self, arrived: Arrived, addresses: Octets, now: Instant, beat: int) -> None:
        if arrived.report_rows or arrived.others:
            self._inbound.hear(arrived, addresses, now, beat)

    def _is_opened(self, data: bytes, address: bytes, now: Instant, beat: int) -> bool:
        """Open a pending session if this is its first datagram; otherwise reply. Return whether the session is open now."""
        token = self._token_in(data)
        if self._is_known(token):  # opened by an earlier datagram of the batch
            return True
        pending = self._opening.maybe_pending(token)
        if pending is not None:
            if not self._reader.opens(pending.keys.receive, data):  # no RESET: it would reveal the reset token to an eavesdropper
                self._broker.refuse(Refused(Reason.SEAL_BROKEN))
                return False
            if self._begin(pending, address, now, beat):
                return True
        if data and data[0] == Kind.ASK:
            self._reply(self.finding.answer(data, now), address)
        else:
            self._reply(self._strangers.on_stranger(data, address, now, beat), address)
        return False

    def _token_in(self, data: bytes) -> bytes:
        return data[3:11] if self._identity is None else data[1:9] if data[:1] == b"\x04" else b""

    def _begin(self, pending: Pending, address: bytes, now: Instant, beat: int) -> bool:
        self._opening.close(pending)
        link = self.session_table.maybe_open(pending, address, now, beat)
        if link is not None and not pending.is_resumed:
            self._newcomers.append((link, pending.init.report))
        return link is not None

    def _reply(self, data: bytes, address: bytes) -> None:
        if data:
            self.sender.reply(data, address)

    def serve(self, link: UdpConnection, value: Datagram, size: int, now: Instant) -> None:
        """Carry out an endpoint's request, unless its session has ended in this tick."""
        if self.session_table.is_here(link):
            self._requests.serve(link, value, size, now)

    def leave(self, link: UdpConnection, now: Instant) -> None:
        """End a session that its endpoint has closed."""
        self.session_table.leave(link, now)

    def _forget(self, link: UdpConnection) -> None:
        self._wanting.pop(link, None)

    def confirm(self, link: UdpConnection, name: Name, *, is_again: bool = False) -> None:
        """Send RECEIVED once the changes of this tick are stored; *is_again*: the datagram is a duplicate."""
        self._confirmations.append((link, name, is_again))

    def refuse(self, link: UdpConnection, refused: Refused, about: Name | None) -> None:
        """Send a refusal, unless the session has ended in this tick."""
        self._log.seldom("refused", client=link.session.name, reason=refused.reason.name, detail=refused.detail)
        if self.session_table.is_here(link):
            self.sender.tell(link, refusal_of(refused, about), self._clock())

    def want(self, link: UdpConnection) -> None:
        """Mark an endpoint that has acknowledged a message as ready for more, if messages wait for it."""
        if link.session.waiting is not None:
            self._wanting[link] = None

    def deliver(self, action: Deliver, now: Instant) -> None:
        """Send a message to sessions, encrypted for each; messages with a delivery number are repeated until acknowledged."""
        sessions = [one for one in action.sessions if isinstance(one.link, UdpConnection)]
        if not sessions:
            return
        publication = action.delivery.publication
        ensure_id(publication, self._broker.next_id(now))
        try:
            content = content_of(action.delivery, action.number)
        except Malformed as fault:
            self._give_up(sessions, action, fault.reason)
            return
        beat = self._clock()
        alone = self._multicast(sessions, publication, content)
        if alone:
            self.sender.tell_all([one.number for one in alone], content, publication.priority, beat)
        if action.number:
            self._retransmission.expect(action.delivery, action.number, sessions, beat)

    def _multicast(self, sessions: list[Session], publication: Publication, content: bytes) -> list[Session]:
        """Multicast a message to an area, once per cell; return the sessions that need it by unicast.

        Multicast is not encrypted: if sessions are, only signed messages use it. Retransmissions are unicast.
        """
        cells = self._settings.cells
        is_open = publication.signed is not None or self._identity is None
        if cells is None or not is_open or not isinstance(publication.address, ToArea):
            return sessions
        alone = [one for one in sessions if not (isinstance(one.link, UdpConnection) and one.link.hears_cells)]
        groups = cells.maybe_groups_over(publication.address.area, len(sessions) - len(alone))
        if groups is None:  # more cells than receivers
            return sessions
        self.sender.shout(content, [sockaddr_of(group, cells.port) for group in sorted(groups)], publication.priority)
        return alone

    def _give_up(self, sessions: list[Session], action: Deliver, reason: Reason) -> None:
        for session in sessions:
            self._broker.fail(session, action.number, action.delivery, reason)
            if action.number and isinstance(session.link, UdpConnection):  # the window has room for queued messages now
                self.want(session.link)

    def run(self, action: Run, now: Instant) -> None:
        """Fail: no message received over UDP can be forwarded as received."""
        raise AssertionError(f"a run of {action.encoding} at {now}")

    def release(self, action: Release) -> None:
        """Do nothing: there is no QoS 2 over UDP; receivers detect duplicates by the message name."""

    def expel(self, link: Link, why: Refused) -> None:
        """Close a session at the end of this tick, if it belongs to this listener."""
        if isinstance(link, UdpConnection):
            self._expelled.append((link, why))

    def redirect(self, link: Link, address: str) -> None:
        """Do nothing: UDP endpoints find their edge by discovery."""

    def welcome(self, name: EndpointId, why: Refused | None, now: Instant) -> None:
        """Do nothing: UDP endpoints connect at once, and their state at other edges is added later."""

    def take_back(self, why: Refused) -> None:
        """Discard the acknowledgements of this tick; the endpoints will repeat their requests."""
        del why
        for link, name, is_again in self._confirmations:
            if not is_again and link.names is not None and isinstance(name, MessageName):
                link.names.pop(name, None)
        self._confirmations = []

    def let_go(self, session: Session, why: Refused) -> None:
        """Do nothing: UDP sessions are not durable, so no guarantee is broken."""

    def resume(self, now: Instant) -> None:
        """Drain the queues of the endpoints that accept more."""
        for link in list(self._wanting):
            session = link.session
            if session.link is not link or not self._broker.drain(session, now, RESUME_BYTES):
                self._wanting.pop(link, None)

    def send(self, now: Instant) -> bool:
        """Send all output; return whether more can be sent at once."""
        beat = self._clock()
        self.sender.send()  # alerts do not wait for acknowledgements and reports
        if self._confirmations:
            confirmations, self._confirmations = self._confirmations, []
            for link, name, _ in confirmations:
                if self.session_table.is_here(link):
                    self.sender.tell(link, Received(name), beat)
        expelled, self._expelled = self._expelled, []
        for gone, why in expelled:
            self.session_table.expel(gone, why, now, beat)
        self._inbound.flush(now, beat, is_due_only=True)
        self.sender.send()
        return bool(self._wanting)

    def tick(self, now: Instant) -> None:
        """End sessions that are silent or whose keys have expired, and run `pulse`."""
        beat, columns, interval_ns = self._clock(), self._columns, self._settings.reporting_interval_ns
        self._inbound.flush(now, beat)  # a waiting report counts as a keepalive
        silent = columns.where(lambda part: columns.heard_at[part] < beat - SILENT_INTERVALS * interval_ns)
        worn = columns.where(lambda part: columns.worn_at[part] < beat) if self._identity is not None else []
        for number in {*silent, *worn}:
            self.session_table.end_number(number, CloseCause.SILENT, now, beat)
        self.pulse(now)
        self.session_table.tick(beat)
        self._opening.tick(beat)

    def pulse(self, now: Instant) -> None:
        """Repeat unacknowledged messages and send heartbeats; called often, so that each call does little."""
        beat, columns, settings = self._clock(), self._columns, self._settings
        for due in self._retransmission.overdue(beat):
            self._repeat(due, now, beat)
        heartbeat_ns = settings.heartbeat_intervals * settings.reporting_interval_ns
        quiet = columns.where(lambda part: columns.told_at[part] <= beat - heartbeat_ns)
        if quiet:
            self.sender.tell_all(quiet, _HEARTBEAT, Priority.CONVENIENCE, beat)

    def _repeat(self, due: Due, now: Instant, beat: int) -> None:
        """Send a message again to the sessions that have not acknowledged it, or give it up."""
        _, _, tries, delivery, number, sessions = due
        publication = delivery.publication
        reason = Reason.EXPIRED if publication.valid_until < now else Reason.UNANSWERED if tries >= TRIES_MAX else None
        if reason is None:
            self.sender.tell_all([one.number for one in sessions], content_of(delivery, number), publication.priority, beat)
            self._retransmission.expect(delivery, number, sessions, beat, tries + 1)
            return
        self._give_up(sessions, Deliver(delivery, number, sessions), reason)

    def revoke(self, action: Revoke) -> None:
        """Notify an endpoint that new rules have ended one of its subscriptions."""
        link = action.session.link
        if isinstance(link, UdpConnection):
            self.refuse(link, action.why, SubscriptionName(action.session.name, SubscriptionId(action.subscription_id)))

    def expel_revoked(self, now: Instant) -> int:
        """End the sessions whose certificates are revoked; return how many."""
        assert self._identity is not None, "a plain door knows no certificates"
        revoked = self._identity.authority.revoked
        found = [link for link in self.session_table if int(self._columns.serials[link.number]) in revoked]
        for link in found:
            self._broker.refuse(Refused(Reason.CERTIFICATE_REVOKED))
            self.session_table.end(link, CloseCause.EXPELLED, now, self._clock())
        return len(found)

    def shut(self, now: Instant) -> None:
        """Close all sessions because the edge stops."""
        for link in self.session_table:
            self.session_table.end(link, CloseCause.STOPPING, now, self._clock())
