"""The UDP door: sessions of endpoints over datagrams, sealed or plain (M10-M13, M28).

    batch ─▶ opened (`reading`) ─▶ strangers: `opening`, or who asks for an edge
                 │                       └─ first DATA of a pending session opens it
                 ├▶ others, the most urgent first: `serving` ─▶ corridor
                 └▶ reports, gathered as columns: rates ─▶ corridor
    settling ─▶ deliver ─▶ `sending`;  pulse ─▶ repeats, heartbeats;  tick ─▶ silence, worn keys

| state   | INIT               | first DATA of it    | DATA          | CLOSE | silence     | a newer session            |
|---------|--------------------|---------------------|---------------|-------|-------------|----------------------------|
| none    | pending, ACK       | RESET               | RESET         | RESET |             |                            |
| pending | the same ACK       | open; report counts |               |       | none, 10 s  | both pending               |
| open    | another is pending |                     | served        | none  | none, CLOSE | goes on under it, or CLOSE |
| former  |                    |                     | as its heir's | none  | none, 10 s  |                            |

What must hold:
- nothing here asks the clock: `now` is the time, `beat` is one that is never set back, and silence is measured by it;
- what an endpoint does costs nobody but itself.
"""

from collections.abc import Callable
from typing import Final

from milepost.doors.log import Log
from milepost.doors.rules import Rules
from milepost.doors.udp.addresses import sockaddr_of
from milepost.doors.udp.finding import Finding
from milepost.doors.udp.hearing import Hearing
from milepost.doors.udp.link import DIALECT_UDP, Seats, UdpLink
from milepost.doors.udp.opening import Draw, Opening, Pending, PlainOpening, SealedOpening
from milepost.doors.udp.outgoing import content_of, name_parcel
from milepost.doors.udp.reading import Arrived, PlainReader, Reader, SealedReader
from milepost.doors.udp.repeats import TRIES_MAX, Due, Repeats
from milepost.doors.udp.sending import NoiseSeals, NoSeals, Octets, Post, Seals, Sender
from milepost.doors.udp.serving import Serving
from milepost.doors.udp.settings import SILENT_INTERVALS, Identity, UdpSettings
from milepost.doors.udp.tenants import Tenants
from milepost.edge.actions import Deliver, Release, Run
from milepost.edge.corridor import Corridor
from milepost.edge.parcels import Parcel
from milepost.edge.sessions import Link, Session
from milepost.model.addresses import ToArea
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.sessions import CloseCause, Datagram, MessageName, Name, Received, refusal_of
from milepost.wire.sealed import Kind

RESUME_BYTES: Final = 65_536
"""So much of what waits is sent to one endpoint in one turn."""

_HEARTBEAT: Final = b"\x32\x00"


class UdpDoor:
    """All UDP sessions of an edge."""

    dialects: tuple[int, ...] = (DIALECT_UDP,)

    def __init__(
        self,
        corridor: Corridor,
        settings: UdpSettings,
        identity: Identity | None,
        rules: Rules,
        post: Post,
        log: Log,
        *,
        draw: Draw,
        clock: Callable[[], int],
    ) -> None:
        self._corridor = corridor
        self._settings = settings
        self._identity = identity
        self._log = log
        self._clock = clock
        counts, links = corridor.counts, dict[bytes, UdpLink]()
        self._seats = seats = Seats(corridor.limits.sessions_max)
        self._reader: Reader = (
            PlainReader(links) if identity is None else SealedReader(links, seats, counts, settings.openers_max)
        )
        seals: Seals = NoSeals(seats) if identity is None else NoiseSeals(seats)
        self.sender = Sender(seats, seals, post, counts, settings.unsent_bytes_max)
        self.tenants = Tenants(corridor, settings, links, seats, self._reader, self.sender, log)
        self.tenants.gone = self._forget
        self._is_known = links.__contains__
        self._opening = Opening(corridor.name, settings, draw, counts, self._is_known)
        self._strangers: PlainOpening | SealedOpening = (
            PlainOpening(self._opening, counts, self.tenants.may_resume)
            if identity is None
            else SealedOpening(self._opening, identity, settings, draw, counts, self.tenants.may_resume, log)
        )
        self.finding = Finding(corridor)
        self._serving = Serving(corridor, settings, rules, self)
        self._hearing = Hearing(corridor, settings, seats, self, log)
        self._repeats = Repeats()
        self._confirmations: list[tuple[UdpLink, Name, bool]] = []
        self._expelled: list[tuple[UdpLink, Refused]] = []
        self._wanting: dict[UdpLink, None] = {}
        self._newcomers: list[tuple[UdpLink, Report]] = []
        """Who has opened a session in this batch, and where it is."""
        self.bytes_received = 0
        self.datagrams_received = 0

    @property
    def pending(self) -> int:
        """How many sessions were answered and have not spoken yet."""
        return len(self._opening.pending)

    @property
    def is_gathering(self) -> bool:
        """Whether reports wait for others; they are taken at the end of a turn in which they have waited long enough."""
        return self._hearing.is_gathering

    def on_batch(self, datagrams: list[bytes], addresses: Octets, now: Instant) -> None:
        """What has arrived, each datagram with where it came from."""
        beat = self._clock()
        self.datagrams_received += len(datagrams)
        self.bytes_received += sum(map(len, datagrams))
        arrived = self._reader.read(datagrams)
        self._hear(arrived, addresses, now, beat)
        if arrived.strangers:  # after the others: a session that begins may be the end of one that has spoken in this batch
            opened = [row for row in arrived.strangers if self._is_opened(datagrams[row], addresses[row].tobytes(), now, beat)]
            self._hearing.report_all(self._newcomers, now, beat)
            self._newcomers = []
            self._hear(self._reader.read([datagrams[row] for row in opened]), addresses[opened], now, beat)

    def _hear(self, arrived: Arrived, addresses: Octets, now: Instant, beat: int) -> None:
        if arrived.report_rows or arrived.others:
            self._hearing.hear(arrived, addresses, now, beat)

    def _is_opened(self, data: bytes, address: bytes, now: Instant, beat: int) -> bool:
        """Whether a datagram of no session is the first word in a pending one, which then is open; others are answered."""
        token = self._token_in(data)
        if self._is_known(token):  # it was opened by a datagram before this one in the batch
            return True
        pending = self._opening.maybe_pending(token)
        if pending is not None:
            if not self._reader.opens(pending.keys.receive, data):  # no RESET: who only listens is not to learn what it shows
                self._corridor.counts.refused[Reason.SEAL_BROKEN] += 1
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
        link = self.tenants.maybe_open(pending, address, now, beat)
        if link is not None and not pending.is_resumed:
            self._newcomers.append((link, pending.init.report))
        return link is not None

    def _reply(self, data: bytes, address: bytes) -> None:
        if data:
            self.sender.reply(data, address)

    def serve(self, link: UdpLink, value: Datagram, size: int, now: Instant) -> None:
        """Do what an endpoint asks for, if it has not gone in this turn."""
        if self.tenants.is_here(link):
            self._serving.serve(link, value, size, now)

    def leave(self, link: UdpLink, now: Instant) -> None:
        """An endpoint has closed its session."""
        self.tenants.leave(link, now)

    def _forget(self, link: UdpLink) -> None:
        self._wanting.pop(link, None)

    def confirm(self, link: UdpLink, name: Name, *, is_again: bool = False) -> None:
        """Say that something has arrived, once what it rests on is kept; `is_again`: it had arrived before."""
        self._confirmations.append((link, name, is_again))

    def refuse(self, link: UdpLink, refused: Refused, about: Name | None) -> None:
        """Say that something was not let in, if the endpoint has not gone in this turn."""
        self._log.seldom("refused", client=link.session.name, reason=refused.reason.name, detail=refused.detail)
        if self.tenants.is_here(link):
            self.sender.tell(link, refusal_of(refused, about), self._clock())

    def want(self, link: UdpLink) -> None:
        """An endpoint has answered: it takes more."""
        if link.session.waiting is not None:
            self._wanting[link] = None

    def deliver(self, action: Deliver, now: Instant) -> None:
        """Send a message to sessions, sealed for each; what is to be answered is repeated until it is."""
        sessions = [one for one in action.sessions if isinstance(one.link, UdpLink)]
        if not sessions:
            return
        parcel = action.delivery.parcel
        name_parcel(parcel, self._corridor.next_id(now))
        try:
            content = content_of(action.delivery, action.number)
        except Malformed as fault:
            self._give_up(sessions, action, fault.reason)
            return
        beat = self._clock()
        alone = self._multicast(sessions, parcel, content)
        if alone:
            self.sender.tell_all([one.number for one in alone], content, parcel.priority, beat)
        if action.number:
            self._repeats.expect(action.delivery, action.number, sessions, beat)

    def _multicast(self, sessions: list[Session], parcel: Parcel, content: bytes) -> list[Session]:
        """Send a message to an area once for each cell, to who listens there; gives those who must be sent it one by one.

        Nothing is sealed on that way: where sessions are, only what is signed goes it. Who does not answer gets it alone later.
        """
        cells = self._settings.cells
        is_open = parcel.signed is not None or self._identity is None
        if cells is None or not is_open or not isinstance(parcel.address, ToArea):
            return sessions
        alone = [one for one in sessions if not (isinstance(one.link, UdpLink) and one.link.hears_cells)]
        groups = cells.maybe_groups_over(parcel.address.area, len(sessions) - len(alone))
        if groups is None:  # more squares than listeners
            return sessions
        self.sender.shout(content, [sockaddr_of(group, cells.port) for group in sorted(groups)], parcel.priority)
        return alone

    def _give_up(self, sessions: list[Session], action: Deliver, reason: Reason) -> None:
        for session in sessions:
            self._corridor.deliveries.lose(session, action.number, action.delivery, reason)
            if action.number and isinstance(session.link, UdpLink):  # what waits has room now
                self.want(session.link)

    def run(self, action: Run, now: Instant) -> None:
        """Nothing comes in here that could be sent on as it came."""
        raise AssertionError(f"a run of {action.dialect} at {now}")

    def release(self, action: Release) -> None:
        """There is no quality 2 here: every message is shown once by its name."""

    def expel(self, link: Link, why: Refused) -> None:
        """Close a session at the end of this turn, if it is one of ours."""
        if isinstance(link, UdpLink):
            self._expelled.append((link, why))

    def redirect(self, link: Link, address: str) -> None:
        """Nobody is sent on from here: endpoints find their edges themselves."""

    def welcome(self, name: EndpointId, why: Refused | None, now: Instant) -> None:
        """Nobody waits here: endpoints are let in at once, and what they had elsewhere is added."""

    def take_back(self, why: Refused) -> None:
        """Give none of this turn's answers; whoever waits for one will ask again."""
        del why
        for link, name, is_again in self._confirmations:
            if not is_again and link.names is not None and isinstance(name, MessageName):
                link.names.pop(name, None)
        self._confirmations = []

    def let_go(self, session: Session, why: Refused) -> None:
        """Sessions here are not kept over a restart: nothing was promised that cannot be."""

    def resume(self, now: Instant) -> None:
        """Have what waits handed out to those who take more."""
        for link in list(self._wanting):
            session = link.session
            if session.link is not link or not self._corridor.deliveries.resume(session, now, RESUME_BYTES):
                self._wanting.pop(link, None)

    def send(self, now: Instant) -> bool:
        """Hand everything to the network; tells whether more can go at once."""
        beat = self._clock()
        self.sender.send()  # an alert waits for nothing
        if self._confirmations:
            confirmations, self._confirmations = self._confirmations, []
            for link, name, _ in confirmations:
                if self.tenants.is_here(link):
                    self.sender.tell(link, Received(name), beat)
        expelled, self._expelled = self._expelled, []
        for gone, why in expelled:
            self.tenants.expel(gone, why, now, beat)
        self._hearing.flush(now, beat, is_due_only=True)
        self.sender.send()
        return bool(self._wanting)

    def tick(self, now: Instant) -> None:
        """Once in a while: end what is silent or worn, and what `pulse` does."""
        beat, seats, interval_ns = self._clock(), self._seats, self._settings.reporting_interval_ns
        self._hearing.flush(now, beat)  # a report that waits is a sign of life
        silent = seats.where(lambda part: seats.heard_at[part] < beat - SILENT_INTERVALS * interval_ns)
        worn = seats.where(lambda part: seats.worn_at[part] < beat) if self._identity is not None else []
        for number in {*silent, *worn}:
            self.tenants.end_number(number, CloseCause.SILENT, now, beat)
        self.pulse(now)
        self.tenants.tick(beat)
        self._opening.tick(beat)

    def pulse(self, now: Instant) -> None:
        """Often, so that it is little each time: repeat what is unanswered, and say that the edge is alive."""
        beat, seats, settings = self._clock(), self._seats, self._settings
        for due in self._repeats.overdue(beat):
            self._repeat(due, now, beat)
        heartbeat_ns = settings.heartbeat_intervals * settings.reporting_interval_ns
        quiet = seats.where(lambda part: seats.told_at[part] <= beat - heartbeat_ns)
        if quiet:
            self.sender.tell_all(quiet, _HEARTBEAT, Priority.CONVENIENCE, beat)

    def _repeat(self, due: Due, now: Instant, beat: int) -> None:
        """Send a message again to who has not answered, or give it up."""
        _, _, tries, delivery, number, sessions = due
        parcel = delivery.parcel
        reason = Reason.EXPIRED if parcel.valid_until < now else Reason.UNANSWERED if tries >= TRIES_MAX else None
        if reason is None:
            self.sender.tell_all([one.number for one in sessions], content_of(delivery, number), parcel.priority, beat)
            self._repeats.expect(delivery, number, sessions, beat, tries + 1)
            return
        self._give_up(sessions, Deliver(delivery, number, sessions), reason)

    def use(self, rules: Rules) -> None:
        """Go by other rules from now on; whoever has a session keeps it, and is held to them."""
        self._serving.use(rules)
        for link in self.tenants:
            self._serving.ask_again(link)

    def expel_revoked(self, now: Instant) -> int:
        """End the sessions whose certificates were revoked; gives how many."""
        assert self._identity is not None, "a plain door knows no certificates"
        revoked = self._identity.authority.revoked
        found = [link for link in self.tenants if int(self._seats.serials[link.number]) in revoked]
        for link in found:
            self._corridor.counts.refused[Reason.CERTIFICATE_REVOKED] += 1
            self.tenants.end(link, CloseCause.EXPELLED, now, self._clock())
        return len(found)

    def shut(self, now: Instant) -> None:
        """Tell everybody that the edge stops."""
        for link in self.tenants:
            self.tenants.end(link, CloseCause.STOPPING, now, self._clock())
