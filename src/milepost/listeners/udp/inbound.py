"""Input of the open sessions in one batch, within the rate limits: reports as columns, messages one by one.

Invariants:
- the messages of a batch are served most urgent first, since one may be an emergency (M22); messages of one class keep their
  order, and CLOSE comes last;
- the address of an endpoint is the source of its last authentic datagram (M13);
- reports may wait briefly for others, since a few cost nearly as much as hundreds; only emergencies overtake waiting reports.
"""

from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from milepost.broker.broker import Broker
from milepost.listeners.log import Log
from milepost.listeners.udp.connection import SessionColumns, UdpConnection
from milepost.listeners.udp.receiver import Arrived, Other, columns_of
from milepost.listeners.udp.sender import Octets
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.sessions import Close, Datagram, Init, Name, Publish, ReportSent, Subscribe
from milepost.vetting import Batch, Bucket, PrefixBuckets
from milepost.wire.datagrams import decode

REFUSALS_NS: Final = SECOND_NS
"""Minimum time between two refusals of reports sent to one endpoint."""

PREFIXES_MAX: Final = 10_000
"""Maximum network prefixes whose rate is tracked at a time."""

GATHER_MAX: Final = 256
"""Number of reports that are processed without waiting for more."""

_UNKNOWN: Final = float("nan")
_IPV4: Final = 2
_FIRST_3_BYTES, _FIRST_7_BYTES = np.uint64(0xFF_FFFF), np.uint64(0xFF_FFFF_FFFF_FFFF)

Said = tuple[UdpConnection, Datagram, int]
"""A connection, the datagram it received, and its size in bytes."""


class Responder(Protocol):
    """Handles requests and sends replies."""

    def serve(self, link: UdpConnection, value: Datagram, size: int, now: Instant) -> None:
        """Carry out an endpoint's request."""

    def refuse(self, link: UdpConnection, refused: Refused, about: Name | None) -> None:
        """Send a refusal."""


class InboundQueue:
    """The input of all open sessions, and the reports that wait."""

    def __init__(self, broker: Broker, settings: UdpSettings, columns: SessionColumns, context: Responder, log: Log) -> None:
        self._broker = broker
        self._columns = columns
        self._context = context
        self._log = log
        self._prefixes = PrefixBuckets(settings.prefix_per_s, settings.prefix_burst, prefixes_max=PREFIXES_MAX)
        self._total = Bucket(settings.total_per_s, settings.total_burst)
        self._gather_ns = settings.gather_ns
        self._gathered_at = 0
        self._links: list[UdpConnection] = []
        self._tails: list[bytes] = []
        self._addresses: list[Octets] = []
        self._beats: list[int] = []

    def hear(self, arrived: Arrived, addresses: Octets, now: Instant, beat: int) -> None:
        """Handle the input of open sessions; reports wait at least until the end of the tick."""
        self._gather(arrived, addresses, beat)
        if arrived.others:
            self._serve(arrived.others, addresses, now, beat)

    def _serve(self, others: list[Other], addresses: Octets, now: Instant, beat: int) -> None:
        """Serve messages: emergencies at once, others after the waiting reports, since positions decide who receives them."""
        came_from = addresses[[one.row for one in others]]
        self._note([one.link.number for one in others], came_from, beat)
        said, reports = self._decoded(others, self._over_rate(came_from, now))
        said.sort(key=_urgency)
        for link, value, size in said:
            if self._tails and isinstance(value, Publish | Subscribe) and not _is_emergency(value):
                self.flush(now, beat)
            self._context.serve(link, value, size, now)
        self._report_own(reports, now, beat)

    def _note(self, sessions: list[int], came_from: Octets, beat: int) -> None:
        """Record the time and the source address of datagrams, in the order of arrival."""
        numbers = np.array(sessions, np.intp)
        self._columns.heard_at[numbers] = beat
        moved = (self._columns.addresses[numbers] != came_from).any(axis=1)
        if moved.any():
            self._columns.addresses[numbers] = came_from
            self._log.seldom("address changed", sessions=int(moved.sum()))

    def _over_rate(self, came_from: Octets, now: Instant) -> NDArray[np.bool_]:
        """Return which datagrams are over the rate of their network prefix, or of the whole edge."""
        late = np.zeros(len(came_from), np.bool_)
        if not self._total.take(len(came_from), now):
            self._broker.refuse(Refused(Reason.EDGE_RATE_TOO_HIGH), len(came_from))
            late[:] = True
            return late
        prefixes = _prefixes_of(came_from)
        for prefix, count in _counted(prefixes):
            if not self._prefixes.take(prefix.to_bytes(8, "little"), count, now):
                late |= prefixes == prefix
        if late.any():
            self._broker.refuse(Refused(Reason.PREFIX_RATE_TOO_HIGH), int(late.sum()))
        return late

    def _decoded(self, others: list[Other], late: NDArray[np.bool_]) -> tuple[list[Said], list[tuple[UdpConnection, Report]]]:
        said: list[Said] = []
        reports: list[tuple[UdpConnection, Report]] = []
        for one, is_late in zip(others, late.tolist(), strict=True):
            if is_late:
                continue
            try:
                value = decode(one.plain)
            except Malformed as fault:
                self._broker.refuse(fault.refused)
                self._context.refuse(one.link, fault.refused, None)
                continue
            if isinstance(value, Init) or value.session != one.token:
                self._broker.refuse(Refused(Reason.SESSION_UNKNOWN))
            elif isinstance(value, ReportSent):
                reports.append((one.link, value.report))
            else:
                said.append((one.link, value, len(one.plain)))
        return said, reports

    def _gather(self, arrived: Arrived, addresses: Octets, beat: int) -> None:
        """Add reports to those that wait."""
        if not arrived.report_rows:
            return
        if not self._tails:
            self._gathered_at = beat
        self._links += arrived.report_links
        self._tails += arrived.report_tails
        self._addresses.append(addresses[arrived.report_rows])
        self._beats.append(beat)

    @property
    def is_gathering(self) -> bool:
        """Whether reports wait for others."""
        return bool(self._tails)

    def flush(self, now: Instant, beat: int, *, is_due_only: bool = False) -> None:
        """Process the waiting reports; with *is_due_only*, only if they are many or have waited long enough."""
        is_due = len(self._tails) >= GATHER_MAX or beat - self._gathered_at >= self._gather_ns
        if not self._tails or (is_due_only and not is_due):
            return
        links, tails, addresses, beats = self._links, self._tails, self._addresses, self._beats
        self._links, self._tails, self._addresses, self._beats = [], [], [], []
        numbers = [link.number for link in links]
        came_from = addresses[0] if len(addresses) == 1 else np.concatenate(addresses)
        arrived_at = np.repeat(beats, [len(part) for part in addresses])
        is_latest = self._columns.heard_at[numbers] <= arrived_at  # else a later message may have had another address
        if is_latest.all():
            self._note(numbers, came_from, beat)
        else:
            latest = is_latest.nonzero()[0]
            self._note(np.array(numbers)[latest].tolist(), came_from[latest], beat)
        self._take(links, numbers, tails, self._over_rate(came_from, now), now, beat)

    def _take(
        self, links: list[UdpConnection], numbers: list[int], tails: list[bytes], late: NDArray[np.bool_], now: Instant, beat: int
    ) -> None:
        """Process reports in canonical form, except those over a rate or of sessions that have ended meanwhile."""
        if late.any() or any(link.session.link is not link for link in links):
            kept = [at for at in (~late).nonzero()[0].tolist() if links[at].session.link is links[at]]
            links, tails, numbers = [links[at] for at in kept], [tails[at] for at in kept], [numbers[at] for at in kept]
        if not links:
            return
        batch, are_odd = columns_of(numbers, tails)
        if are_odd.any():
            odd = [one for at in are_odd.nonzero()[0].tolist() for one in self._odd(links[at], tails[at])]
            self._report_own(odd, now, beat)
            batch = batch.only((~are_odd).nonzero()[0])
        self.report(batch, now, beat)

    def _report_own(self, reports: list[tuple[UdpConnection, Report]], now: Instant, beat: int) -> None:
        """Process decoded reports, and refuse those that name another endpoint than their session's."""
        self.report_all(
            [(link, report) for link, report in reports if link.session.link is link and self._is_own(link, report)], now, beat
        )

    def report_all(self, reports: list[tuple[UdpConnection, Report]], now: Instant, beat: int) -> None:
        """Process decoded reports; skip those of sessions that have ended since."""
        here = [(link, report) for link, report in reports if link.session.link is link]
        if here:
            self.report(_batch_of(here), now, beat)

    def _odd(self, link: UdpConnection, tail: bytes) -> list[tuple[UdpConnection, Report]]:
        """Decode a report that has the length and prefix of a canonical one, but other fields."""
        try:
            value = decode(link.head + tail)
        except Malformed as fault:
            self._broker.refuse(fault.refused)
            self._context.refuse(link, fault.refused, None)
            return []
        assert isinstance(value, ReportSent), "its beginning says so"
        return [(link, value.report)]

    def _is_own(self, link: UdpConnection, report: Report) -> bool:
        if report.endpoint == link.session.name:
            return True
        refused = self._broker.refuse(Refused(Reason.REPORT_NOT_OWN, f"the session is {link.session.name}'s"))
        self._context.refuse(link, refused, None)
        return False

    def report(self, batch: Batch, now: Instant, beat: int) -> None:
        """Pass reports to the broker, and send refusals at a limited rate."""
        verdicts = self._broker.report_batch(batch, now)
        if not verdicts.any():
            return
        for at in verdicts.nonzero()[0].tolist():
            number, reason = int(batch.numbers[at]), Reason(int(verdicts[at]))
            link = self._broker.session_of(number).link
            is_quiet = reason in (Reason.REPORT_OUT_OF_ORDER, Reason.RATE_TOO_HIGH)
            if not is_quiet and isinstance(link, UdpConnection) and beat - self._columns.refused_at[number] >= REFUSALS_NS:
                self._columns.refused_at[number] = beat
                self._context.refuse(link, Refused(reason, "a report"), None)


def _prefixes_of(addresses: Octets) -> NDArray[np.uint64]:
    """Return the network prefix of each address: /24 of IPv4, /56 of IPv6; a socket has addresses of one family."""
    start, mask = (4, _FIRST_3_BYTES) if addresses[0, 0] == _IPV4 else (8, _FIRST_7_BYTES)
    found: NDArray[np.uint64] = np.ascontiguousarray(addresses[:, start : start + 8]).view("<u8").ravel() & mask
    return found


def _counted(prefixes: NDArray[np.uint64]) -> list[tuple[int, int]]:
    """Return each prefix with its count; most batches have one prefix."""
    if (prefixes == prefixes[0]).all():
        return [(int(prefixes[0]), prefixes.size)]
    found, counts = np.unique(prefixes, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))


def _is_emergency(value: Datagram) -> bool:
    return isinstance(value, Publish) and value.message.priority is Priority.EMERGENCY


def _urgency(said: Said) -> int:
    """Return the sort key of a datagram: its class, CLOSE last, everything but messages as safety."""
    value = said[1]
    if isinstance(value, Close):
        return len(Priority)
    return value.message.priority if isinstance(value, Publish) else Priority.SAFETY


def _batch_of(reports: list[tuple[UdpConnection, Report]]) -> Batch:
    return Batch(
        np.array([link.number for link, _ in reports], np.int32),
        np.array([report.place.latitude for _, report in reports]),
        np.array([report.place.longitude for _, report in reports]),
        np.array([report.seen_at for _, report in reports], np.int64),
        np.array([_UNKNOWN if report.heading_deg is None else report.heading_deg for _, report in reports]),
        np.array([_UNKNOWN if report.speed_mps is None else report.speed_mps for _, report in reports]),
    )
