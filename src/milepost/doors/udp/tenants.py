"""Tenants: who has a session, under which token, from the first word in it to its end.

What must hold:
- every token of an open session is in `links`; a session has one link, and former ones only for a while after its keys changed;
- a seat is taken exactly while a session is open; whoever comes for a name that has a session takes its place.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from milepost.doors.log import Log
from milepost.doors.udp.link import DIALECT_UDP, Seats, UdpLink
from milepost.doors.udp.opening import Pending
from milepost.doors.udp.reading import Reader
from milepost.doors.udp.sending import Sender
from milepost.doors.udp.settings import UdpSettings
from milepost.edge.corridor import Corridor, Opened
from milepost.edge.sessions import Link
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason, Refused
from milepost.model.sessions import Close, CloseCause, Init, SessionToken
from milepost.vetting import Who

FORMER_NS: Final = 10 * SECOND_NS
"""So long datagrams under a former token are taken."""

REFUSED_LONG_AGO_NS: Final = 3_600 * SECOND_NS


class Tenants:
    """The open sessions of a door."""

    def __init__(
        self,
        corridor: Corridor,
        settings: UdpSettings,
        links: dict[bytes, UdpLink],
        seats: Seats,
        reader: Reader,
        sender: Sender,
        log: Log,
    ) -> None:
        self._corridor = corridor
        self._settings = settings
        self._links = links
        self._seats = seats
        self._reader = reader
        self._sender = sender
        self._log = log
        self._former: dict[UdpLink, int] = {}
        self.gone: Callable[[UdpLink], None] = _nothing
        """Told which links are over."""

    def __len__(self) -> int:
        return len(self._links) - len(self._former)

    def __iter__(self) -> Iterator[UdpLink]:
        return iter([link for link in self._links.values() if self.is_here(link)])

    def is_here(self, link: UdpLink) -> bool:
        """Whether a session is open under this link; another door may have taken it over in this turn."""
        return link.session.link is link

    def may_resume(self, init: Init, role: str | None) -> bool:
        """Whether the session that an endpoint wants to go on with is here, and its own."""
        return self._maybe_former(init, role) is not None

    def _maybe_former(self, init: Init, role: str | None) -> UdpLink | None:
        link = self._links.get(init.former.to_bytes(8, "little")) if init.former is not None else None
        is_own = link is not None and self.is_here(link) and link.who == Who(init.report.endpoint, None, role)
        return link if is_own else None

    def maybe_open(self, pending: Pending, address: bytes, now: Instant, beat: int) -> UdpLink | None:
        """An endpoint has spoken in a session that was pending; gives its link, nothing if it cannot be as it was promised."""
        if pending.is_resumed:
            former = self._maybe_former(pending.init, pending.role)
            return self._renewed(former, pending, address, beat) if former is not None else None
        link = self._begin(pending, now, beat)
        if link is not None:
            self._vacate(link.number, beat)
            self._seat(link, pending, address, beat)
            self._log.seldom("session opened", client=pending.name, role=pending.role)
        return link

    def _begin(self, pending: Pending, now: Instant, beat: int) -> UdpLink | None:
        other = self._corridor.sessions.maybe(pending.name)
        is_ours = other is None or isinstance(other.link, UdpLink)  # else MQTT's, which is ended; what is elsewhere is added
        if other is not None and isinstance(other.link, UdpLink):  # its number, and with it its seat, may be the new one's
            self._sender.tell(other.link, Close(SessionToken(other.link.token), CloseCause.REPLACED), beat)
            self._forget(other.link)
        opened = self._corridor.open(
            pending.name,
            link=Link(),
            is_fresh=not is_ours,
            expiry_ns=0,
            window=self._settings.window,
            dialect=DIALECT_UDP,
            will=None,
            now=now,
            is_proven=pending.role is not None,
        )
        if not isinstance(opened, Opened):
            self._corridor.counts.refused[opened.reason] += 1
            return None
        who = Who(pending.name, None, pending.role)
        link = opened.session.link = UdpLink(opened.session, pending.token, who, hears_cells=pending.init.hears_cells)
        return link

    def _seat(self, link: UdpLink, pending: Pending, address: bytes, beat: int) -> None:
        seats, number = self._seats, link.number
        seats.take(number)
        seats.addresses[number] = np.frombuffer(address, np.uint8)
        seats.tokens[number], seats.serials[number], seats.counters[number] = pending.token, pending.serial, 0
        seats.heard_at[number] = seats.told_at[number] = beat
        seats.refused_at[number] = beat - REFUSED_LONG_AGO_NS
        seats.worn_at[number] = beat + self._settings.keys_ns * 3 // 2
        if pending.keys.send:
            seats.send_keys[number] = np.frombuffer(pending.keys.send, np.uint8)
            seats.receive_keys[number] = np.frombuffer(pending.keys.receive, np.uint8)
        self._links[link.key] = link

    def _vacate(self, number: int, beat: int) -> None:
        """Another door has taken over a session in this turn, and its number is now a third one's."""
        stale = self._maybe_in(number)
        if stale is not None:
            self._sender.tell(stale, Close(SessionToken(stale.token), CloseCause.REPLACED), beat)
            self._forget(stale)

    def _maybe_in(self, number: int) -> UdpLink | None:
        seats = self._seats
        return self._links[int(seats.tokens[number]).to_bytes(8, "little")] if seats.is_taken[number] else None

    def _renewed(self, former: UdpLink, pending: Pending, address: bytes, beat: int) -> UdpLink:
        """A session goes on under a new token and with new keys; what comes under the former ones is still its own."""
        link = UdpLink(former.session, pending.token, former.who, hears_cells=pending.init.hears_cells)
        self._reader.pin(former)
        link.inherit(former)
        former.session.link = link
        self._seat(link, pending, address, beat)
        self._former[former] = beat + FORMER_NS
        self.gone(former)
        for older in self._former:
            if older.heir is former:
                older.heir = link
        return link

    def leave(self, link: UdpLink, now: Instant) -> None:
        """An endpoint has closed its session."""
        if link.session.link is link:
            self._corridor.close(link.session, now, is_willed=False)
            self._forget(link)
            self._log.seldom("session closed", client=link.session.name)

    def end(self, link: UdpLink, cause: CloseCause, now: Instant, beat: int) -> None:
        """Close a session, and say so."""
        self._sender.tell(link, Close(SessionToken(link.token), cause), beat)
        self._corridor.close(link.session, now, is_willed=True)
        self._forget(link)
        self._log.seldom("session ended", client=link.session.name, cause=cause.name.lower())

    def end_number(self, number: int, cause: CloseCause, now: Instant, beat: int) -> None:
        """Close the session in a seat."""
        link = self._maybe_in(number)
        if link is not None and self.is_here(link):
            self.end(link, cause, now, beat)

    def expel(self, link: UdpLink, why: Refused, now: Instant, beat: int) -> None:
        """The corridor wants a session closed, or another door has taken it over: say so, and forget it."""
        link = link.heir or link
        if link.key in self._links:
            cause = CloseCause.REPLACED if why.reason is Reason.SESSION_TAKEN_OVER else CloseCause.EXPELLED
            self._sender.tell(link, Close(SessionToken(link.token), cause), beat)
            if self.is_here(link):
                self._corridor.close(link.session, now, is_willed=True)
            self._forget(link)

    def tick(self, beat: int) -> None:
        """Forget former tokens."""
        for link, due_at in list(self._former.items()):
            if due_at > beat:
                break  # they stand in the order of time
            self._drop(link)

    def _forget(self, link: UdpLink) -> None:
        for one in [old for old in self._former if old.heir is link]:
            self._drop(one)
        self._seats.leave(link.number)
        self._drop(link)

    def _drop(self, link: UdpLink) -> None:
        self._links.pop(link.key, None)
        self._former.pop(link, None)
        self._reader.forget(link)
        self.gone(link)


def _nothing(_link: UdpLink) -> None:
    """Nobody asks."""
