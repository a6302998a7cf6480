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
from milepost.listeners.diagnostic_log import DiagnosticLog
from milepost.listeners.udp.connection import SessionColumns, UdpConnection
from milepost.listeners.udp.decryption import OtherDatagram, ReceivedBatch, columns_of
from milepost.listeners.udp.sender import Octets
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.session_datagrams import Close, Datagram, Init, Name, PublishDatagram, ReportSent, SubscribeDatagram
from milepost.vetting import Bucket, PrefixBuckets, ReportColumns
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

ReceivedDatagram = tuple[UdpConnection, Datagram, int]
"""A connection, the datagram it received, and its size in bytes."""


class InboundHandler(Protocol):
    """Handles requests and sends replies."""

    def serve(self, connection: UdpConnection, value: Datagram, size: int, now: Instant) -> None:
        """Carry out an endpoint's request."""

    def refuse(self, connection: UdpConnection, refused: Refused, about: Name | None) -> None:
        """Send a refusal."""


class InboundQueue:
    """The input of all open sessions, and the reports that wait."""

    def __init__(
        self, broker: Broker, settings: UdpSettings, columns: SessionColumns, handler: InboundHandler, log: DiagnosticLog
    ) -> None:
        self._broker = broker
        self._columns = columns
        self._handler = handler
        self._log = log
        self._prefixes = PrefixBuckets(settings.prefix_per_s, settings.prefix_burst, prefixes_max=PREFIXES_MAX)
        self._total = Bucket(settings.total_per_s, settings.total_burst)
        self._gather_ns = settings.batch_wait_ns
        self._gathered_at = 0
        self._connections: list[UdpConnection] = []
        self._tails: list[bytes] = []
        self._addresses: list[Octets] = []
        self._arrival_times: list[int] = []

    def handle(self, received: ReceivedBatch, addresses: Octets, now: Instant, monotonic_now: int) -> None:
        """Handle the input of open sessions; reports wait at least until the end of the tick."""
        self._gather(received, addresses, monotonic_now)
        if received.others:
            self._serve(received.others, addresses, now, monotonic_now)

    def _serve(self, others: list[OtherDatagram], addresses: Octets, now: Instant, monotonic_now: int) -> None:
        """Serve messages: emergencies at once, others after the waiting reports, since delivery depends on positions."""
        sources = addresses[[one.row for one in others]]
        self._record_arrival([one.connection.number for one in others], sources, monotonic_now)
        datagrams, reports = self._decoded(others, self._over_rate(sources, now))
        datagrams.sort(key=_urgency)
        for connection, value, size in datagrams:
            if self._tails and isinstance(value, PublishDatagram | SubscribeDatagram) and not _is_emergency(value):
                self.flush(now, monotonic_now)
            self._handler.serve(connection, value, size, now)
        self._process_own(reports, now, monotonic_now)

    def _record_arrival(self, sessions: list[int], sources: Octets, monotonic_now: int) -> None:
        """Record the time and the source address of datagrams, in the order of arrival."""
        numbers = np.array(sessions, np.intp)
        self._columns.received_at[numbers] = monotonic_now
        moved = (self._columns.addresses[numbers] != sources).any(axis=1)
        if moved.any():
            self._columns.addresses[numbers] = sources
            self._log.info_limited("address changed", sessions=int(moved.sum()))

    def _over_rate(self, sources: Octets, now: Instant) -> NDArray[np.bool_]:
        """Return which datagrams are over the rate of their network prefix, or of the whole edge."""
        over_rate = np.zeros(len(sources), np.bool_)
        if not self._total.take(len(sources), now):
            self._broker.refuse(Refused(Reason.EDGE_RATE_TOO_HIGH), len(sources))
            over_rate[:] = True
            return over_rate
        prefixes = _prefixes_of(sources)
        for prefix, count in _counted(prefixes):
            if not self._prefixes.take(prefix.to_bytes(8, "little"), count, now):
                over_rate |= prefixes == prefix
        if over_rate.any():
            self._broker.refuse(Refused(Reason.PREFIX_RATE_TOO_HIGH), int(over_rate.sum()))
        return over_rate

    def _decoded(
        self, others: list[OtherDatagram], over_rate: NDArray[np.bool_]
    ) -> tuple[list[ReceivedDatagram], list[tuple[UdpConnection, Report]]]:
        datagrams: list[ReceivedDatagram] = []
        reports: list[tuple[UdpConnection, Report]] = []
        for one, is_over_rate in zip(others, over_rate.tolist(), strict=True):
            if is_over_rate:
                continue
            try:
                value = decode(one.plain)
            except Malformed as fault:
                self._broker.refuse(fault.refused)
                self._handler.refuse(one.connection, fault.refused, None)
                continue
            if isinstance(value, Init) or value.session != one.token:
                self._broker.refuse(Refused(Reason.SESSION_UNKNOWN))
            elif isinstance(value, ReportSent):
                reports.append((one.connection, value.report))
            else:
                datagrams.append((one.connection, value, len(one.plain)))
        return datagrams, reports

    def _gather(self, received: ReceivedBatch, addresses: Octets, monotonic_now: int) -> None:
        """Add reports to those that wait."""
        if not received.report_rows:
            return
        if not self._tails:
            self._gathered_at = monotonic_now
        self._connections += received.report_connections
        self._tails += received.report_tails
        self._addresses.append(addresses[received.report_rows])
        self._arrival_times.append(monotonic_now)

    @property
    def is_gathering(self) -> bool:
        """Whether reports wait for others."""
        return bool(self._tails)

    def flush(self, now: Instant, monotonic_now: int, *, is_due_only: bool = False) -> None:
        """Process the waiting reports; with *is_due_only*, only if they are many or have waited long enough."""
        is_due = len(self._tails) >= GATHER_MAX or monotonic_now - self._gathered_at >= self._gather_ns
        if not self._tails or (is_due_only and not is_due):
            return
        connections, tails, addresses, arrival_times = self._connections, self._tails, self._addresses, self._arrival_times
        self._connections, self._tails, self._addresses, self._arrival_times = [], [], [], []
        numbers = [connection.number for connection in connections]
        sources = addresses[0] if len(addresses) == 1 else np.concatenate(addresses)
        arrived_at = np.repeat(arrival_times, [len(part) for part in addresses])
        is_latest = self._columns.received_at[numbers] <= arrived_at  # else a later message may have had another address
        if is_latest.all():
            self._record_arrival(numbers, sources, monotonic_now)
        else:
            latest = is_latest.nonzero()[0]
            self._record_arrival(np.array(numbers)[latest].tolist(), sources[latest], monotonic_now)
        self._process(connections, numbers, tails, self._over_rate(sources, now), now, monotonic_now)

    def _process(
        self,
        connections: list[UdpConnection],
        numbers: list[int],
        tails: list[bytes],
        over_rate: NDArray[np.bool_],
        now: Instant,
        monotonic_now: int,
    ) -> None:
        """Process reports in canonical form, except those over a rate or of sessions that have ended meanwhile."""
        if over_rate.any() or any(connection.session.connection is not connection for connection in connections):
            remaining = [at for at in (~over_rate).nonzero()[0].tolist() if connections[at].session.connection is connections[at]]
            connections, tails, numbers = (
                [connections[at] for at in remaining],
                [tails[at] for at in remaining],
                [numbers[at] for at in remaining],
            )
        if not connections:
            return
        batch, noncanonical = columns_of(numbers, tails)
        if noncanonical.any():
            reports = [
                one for at in noncanonical.nonzero()[0].tolist() for one in self._decode_noncanonical(connections[at], tails[at])
            ]
            self._process_own(reports, now, monotonic_now)
            batch = batch.only((~noncanonical).nonzero()[0])
        self.report(batch, now, monotonic_now)

    def _process_own(self, reports: list[tuple[UdpConnection, Report]], now: Instant, monotonic_now: int) -> None:
        """Process decoded reports, and refuse those that name another endpoint than their session's."""
        self.process_reports(
            [
                (connection, report)
                for connection, report in reports
                if connection.session.connection is connection and self._is_own(connection, report)
            ],
            now,
            monotonic_now,
        )

    def process_reports(self, reports: list[tuple[UdpConnection, Report]], now: Instant, monotonic_now: int) -> None:
        """Process decoded reports; skip those of sessions that have ended since."""
        current = [(connection, report) for connection, report in reports if connection.session.connection is connection]
        if current:
            self.report(_batch_of(current), now, monotonic_now)

    def _decode_noncanonical(self, connection: UdpConnection, tail: bytes) -> list[tuple[UdpConnection, Report]]:
        """Decode a report that has the length and prefix of a canonical one, but other fields."""
        try:
            value = decode(connection.head + tail)
        except Malformed as fault:
            self._broker.refuse(fault.refused)
            self._handler.refuse(connection, fault.refused, None)
            return []
        assert isinstance(value, ReportSent), "its prefix is that of a report"
        return [(connection, value.report)]

    def _is_own(self, connection: UdpConnection, report: Report) -> bool:
        if report.endpoint == connection.session.name:
            return True
        refused = self._broker.refuse(Refused(Reason.REPORT_NOT_OWN, f"the session belongs to {connection.session.name}"))
        self._handler.refuse(connection, refused, None)
        return False

    def report(self, batch: ReportColumns, now: Instant, monotonic_now: int) -> None:
        """Pass reports to the broker, and send refusals at a limited rate."""
        verdicts = self._broker.report_batch(batch, now)
        if not verdicts.any():
            return
        for at in verdicts.nonzero()[0].tolist():
            number, reason = int(batch.numbers[at]), Reason(int(verdicts[at]))
            connection = self._broker.session_of(number).connection
            is_silent = reason in (Reason.REPORT_OUT_OF_ORDER, Reason.RATE_TOO_HIGH)
            if (
                not is_silent
                and isinstance(connection, UdpConnection)
                and monotonic_now - self._columns.refused_at[number] >= REFUSALS_NS
            ):
                self._columns.refused_at[number] = monotonic_now
                self._handler.refuse(connection, Refused(reason, "a report"), None)


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
    return isinstance(value, PublishDatagram) and value.message.priority is Priority.EMERGENCY


def _urgency(received: ReceivedDatagram) -> int:
    """Return the sort key of a datagram: its class, CLOSE last, everything but messages as safety."""
    value = received[1]
    if isinstance(value, Close):
        return len(Priority)
    return value.message.priority if isinstance(value, PublishDatagram) else Priority.SAFETY


def _batch_of(reports: list[tuple[UdpConnection, Report]]) -> ReportColumns:
    return ReportColumns(
        np.array([connection.number for connection, _ in reports], np.int32),
        np.array([report.place.latitude for _, report in reports]),
        np.array([report.place.longitude for _, report in reports]),
        np.array([report.seen_at for _, report in reports], np.int64),
        np.array([_UNKNOWN if report.heading_deg is None else report.heading_deg for _, report in reports]),
        np.array([_UNKNOWN if report.speed_mps is None else report.speed_mps for _, report in reports]),
    )
