"""The session table: the open UDP sessions by token, from their first datagram to their end.

Invariants:
- every token of an open session is in `links`; a session has one connection, and former ones only for a while after a key change;
- a row of the columns is in use exactly while its session is open; a new session of an endpoint replaces the one it has.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from milepost.broker.broker import Broker, Opened
from milepost.broker.session import Link
from milepost.listeners.log import Log
from milepost.listeners.udp.connection import ENCODING_UDP, SessionColumns, UdpConnection
from milepost.listeners.udp.handshake import Pending
from milepost.listeners.udp.receiver import Reader
from milepost.listeners.udp.sender import Sender
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason, Refused
from milepost.model.sessions import Close, CloseCause, Init, SessionToken
from milepost.vetting import ClientIdentity
from milepost.vetting.rates import RateLimits

FORMER_NS: Final = 10 * SECOND_NS
"""Time for which datagrams under a former token are accepted."""

REFUSED_LONG_AGO_NS: Final = 3_600 * SECOND_NS


class SessionTable:
    """The open sessions of a UDP listener."""

    def __init__(
        self,
        broker: Broker,
        settings: UdpSettings,
        links: dict[bytes, UdpConnection],
        columns: SessionColumns,
        reader: Reader,
        sender: Sender,
        log: Log,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._rates = RateLimits(settings.messages_per_s, settings.messages_burst)
        self._links = links
        self._columns = columns
        self._reader = reader
        self._sender = sender
        self._log = log
        self._former: dict[UdpConnection, int] = {}
        self.gone: Callable[[UdpConnection], None] = _nothing
        """Called for each connection that has ended."""

    def __len__(self) -> int:
        return len(self._links) - len(self._former)

    def __iter__(self) -> Iterator[UdpConnection]:
        return iter([link for link in self._links.values() if self.is_here(link)])

    def is_here(self, link: UdpConnection) -> bool:
        """Return whether the session still has this connection; another listener may have taken it over in this tick."""
        return link.session.link is link

    def may_resume(self, init: Init, role: str | None) -> bool:
        """Return whether the session that an endpoint wants to resume is open here and belongs to it."""
        return self._maybe_former(init, role) is not None

    def _maybe_former(self, init: Init, role: str | None) -> UdpConnection | None:
        link = self._links.get(init.former.to_bytes(8, "little")) if init.former is not None else None
        is_own = link is not None and self.is_here(link) and link.who == ClientIdentity(init.report.endpoint, None, role)
        return link if is_own else None

    def maybe_open(self, pending: Pending, address: bytes, now: Instant, beat: int) -> UdpConnection | None:
        """Open a pending session on its first datagram; None if it cannot be opened or resumed as acknowledged."""
        if pending.is_resumed:
            former = self._maybe_former(pending.init, pending.role)
            return self._renewed(former, pending, address, beat) if former is not None else None
        link = self._begin(pending, now, beat)
        if link is not None:
            self._vacate(link.number, beat)
            self._seat(link, pending, address, beat)
            self._log.seldom("session opened", client=pending.name, role=pending.role)
        return link

    def _begin(self, pending: Pending, now: Instant, beat: int) -> UdpConnection | None:
        other = self._broker.find_session(pending.name)
        is_ours = other is None or isinstance(
            other.link, UdpConnection
        )  # else an MQTT session, which ends; state at other edges is added
        if other is not None and isinstance(other.link, UdpConnection):  # the new session may reuse its number and row
            self._sender.tell(other.link, Close(SessionToken(other.link.token), CloseCause.REPLACED), beat)
            self._forget(other.link)
        who = ClientIdentity(pending.name, None, pending.role)
        opened = self._broker.connect(
            pending.name,
            link=Link(),
            who=who,
            rates=self._rates,
            is_fresh=not is_ours,
            expiry_ns=0,
            window=self._settings.window,
            encoding=ENCODING_UDP,
            will=None,
            now=now,
        )
        if not isinstance(opened, Opened):
            self._broker.refuse(opened)
            return None
        link = opened.session.link = UdpConnection(opened.session, pending.token, who, hears_cells=pending.init.hears_cells)
        return link

    def _seat(self, link: UdpConnection, pending: Pending, address: bytes, beat: int) -> None:
        columns, number = self._columns, link.number
        columns.take(number)
        columns.addresses[number] = np.frombuffer(address, np.uint8)
        columns.tokens[number], columns.serials[number], columns.counters[number] = pending.token, pending.serial, 0
        columns.heard_at[number] = columns.told_at[number] = beat
        columns.refused_at[number] = beat - REFUSED_LONG_AGO_NS
        columns.worn_at[number] = beat + self._settings.keys_ns * 3 // 2
        if pending.keys.send:
            columns.send_keys[number] = np.frombuffer(pending.keys.send, np.uint8)
            columns.receive_keys[number] = np.frombuffer(pending.keys.receive, np.uint8)
        self._links[link.key] = link

    def _vacate(self, number: int, beat: int) -> None:
        """Close the stale connection in a row whose session another listener took over in this tick: the number was reused."""
        stale = self._maybe_in(number)
        if stale is not None:
            self._sender.tell(stale, Close(SessionToken(stale.token), CloseCause.REPLACED), beat)
            self._forget(stale)

    def _maybe_in(self, number: int) -> UdpConnection | None:
        columns = self._columns
        return self._links[int(columns.tokens[number]).to_bytes(8, "little")] if columns.is_taken[number] else None

    def _renewed(self, former: UdpConnection, pending: Pending, address: bytes, beat: int) -> UdpConnection:
        """Resume a session under a new token and new keys; datagrams under the former ones are still accepted."""
        link = UdpConnection(former.session, pending.token, former.who, hears_cells=pending.init.hears_cells)
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

    def leave(self, link: UdpConnection, now: Instant) -> None:
        """Remove a session that its endpoint has closed."""
        if link.session.link is link:
            self._broker.disconnect(link.session, now, is_willed=False)
            self._forget(link)
            self._log.seldom("session closed", client=link.session.name)

    def end(self, link: UdpConnection, cause: CloseCause, now: Instant, beat: int) -> None:
        """Close a session and send CLOSE."""
        self._sender.tell(link, Close(SessionToken(link.token), cause), beat)
        self._broker.disconnect(link.session, now, is_willed=True)
        self._forget(link)
        self._log.seldom("session ended", client=link.session.name, cause=cause.name.lower())

    def end_number(self, number: int, cause: CloseCause, now: Instant, beat: int) -> None:
        """Close the session with a number, if it is still open here."""
        link = self._maybe_in(number)
        if link is not None and self.is_here(link):
            self.end(link, cause, now, beat)

    def expel(self, link: UdpConnection, why: Refused, now: Instant, beat: int) -> None:
        """Send CLOSE and remove a session that the broker expels or another listener has taken over."""
        link = link.heir or link
        if link.key in self._links:
            cause = CloseCause.REPLACED if why.reason is Reason.SESSION_TAKEN_OVER else CloseCause.EXPELLED
            self._sender.tell(link, Close(SessionToken(link.token), cause), beat)
            if self.is_here(link):
                self._broker.disconnect(link.session, now, is_willed=True)
            self._forget(link)

    def tick(self, beat: int) -> None:
        """Drop expired former tokens."""
        for link, due_at in list(self._former.items()):
            if due_at > beat:
                break  # entries are in order of time
            self._drop(link)

    def _forget(self, link: UdpConnection) -> None:
        for one in [old for old in self._former if old.heir is link]:
            self._drop(one)
        self._columns.leave(link.number)
        self._drop(link)

    def _drop(self, link: UdpConnection) -> None:
        self._links.pop(link.key, None)
        self._former.pop(link, None)
        self._reader.forget(link)
        self.gone(link)


def _nothing(_link: UdpConnection) -> None:
    """Do nothing: no callback is set."""
