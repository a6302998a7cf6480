"""Forged datagrams at an edge with encryption, and the outcome of each (M28).

attack ─▶ N datagrams ─▶ edge: refused, by reason │ accepted: a report, a message, a session, an alert
"""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.model import Instant, Place
from milepost.model.messages import Message, MessageId
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.reports import Report
from milepost.model.session_datagrams import PublishDatagram, ReportSent
from milepost.trust.certificates import issue
from milepost.trust.noise import public_of
from milepost.wire.datagrams import encode
from milepost.wire.sealed import data_head, nonce_of
from milepost_experiments.papers.load.edges import EdgeProcess, MetricsSnapshot, running_edge
from milepost_experiments.papers.load.endpoints import DAY_NS, Endpoint, Realm, open_all
from milepost_experiments.papers.load.programs import LoadFailed
from milepost_experiments.papers.mercury.tampering import TamperingResult, measure_tampering
from milepost_experiments.papers.report import Progress, Section, Table

ACCEPTED_METRICS: Final = ("reports_total", "messages_accepted_total", "sessions_opened_total", "alerts_total")
"""Metrics of an edge that grow when a forged datagram is accepted."""

_TOGETHER: Final = 64
_WAIT_S_MAX: Final = 10.0
_QUIET_S: Final = 0.1
_PLACE: Final = Place(40.6, -111.9)


@dataclass(frozen=True, slots=True)
class AttackResult:
    """One attack: the number of datagrams sent, refused by reason, and accepted."""

    name: str
    sent: int
    refused: dict[str, int]
    accepted: int

    @property
    def unaccounted(self) -> int:
        """Datagrams neither refused with a reason nor accepted."""
        return self.sent - sum(self.refused.values()) - self.accepted


class AttackSetup:
    """An edge with encryption, and open sessions of a victim and an attacker."""

    def __init__(self, edge: EdgeProcess, count: int, seed: int = 1) -> None:
        assert edge.realm is not None
        self.edge, self.realm, self.count = edge, edge.realm, count
        self.rng = Random(seed)
        self.victim, self.attacker = Endpoint(1, edge.realm, _PLACE), Endpoint(2, edge.realm, _PLACE)
        open_all([self.victim, self.attacker], edge.port)
        self.captured: list[bytes] = []
        """Datagrams that the attacker has captured."""

    def capture_reports(self) -> None:
        """Send reports of the victim, and capture a copy."""
        self.captured = [self.victim.report(Instant(time.time_ns() + number)) for number in range(self.count)]
        send_all(self.edge, self.captured)

    # Attacks: each returns the datagrams to send.

    def altered(self) -> list[bytes]:
        """Return genuine reports, not sent before, with one bit of each flipped."""
        datagrams = []
        for number in range(self.count):
            data = bytearray(self.victim.report(Instant(time.time_ns() + number)))
            bit = self.rng.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
            datagrams.append(bytes(data))
        return datagrams

    def cut(self) -> list[bytes]:
        """Return genuine reports, truncated."""
        unaltered = (self.victim.report(Instant(time.time_ns() + number)) for number in range(self.count))
        return [data[: self.rng.randrange(1, len(data))] for data in unaltered]

    def replayed(self) -> list[bytes]:
        """Return the captured reports again."""
        return self.captured

    def wrong_key(self) -> list[bytes]:
        """Return reports in the victim's session, encrypted with another key."""
        plain = encode(ReportSent(self.victim.token, self._report(self.victim)))
        key = AESGCM(self.rng.randbytes(32))
        numbers = range(10**6, 10**6 + self.count)
        return [data_head(self.victim.token, number) + key.encrypt(nonce_of(number), plain, None) for number in numbers]

    def others_session(self) -> list[bytes]:
        """Return reports that name the victim's session inside the attacker's own."""
        return [self.attacker.seal(ReportSent(self.victim.token, self._report(self.victim))) for _ in range(self.count)]

    def others_place(self) -> list[bytes]:
        """Return publications in the victim's name, in the attacker's own session."""
        return [self.attacker.seal(PublishDatagram(self._message(self.victim), self.attacker.token)) for _ in range(self.count)]

    def other_authority(self) -> list[bytes]:
        """Return handshakes with certificates of the attacker's own certificate authority."""
        realm = Realm(self.rng.randbytes(32), self.realm.edge_key)
        return [Endpoint(100 + number, realm).begin(Instant(time.time_ns())) for number in range(self.count)]

    def stolen_certificate(self) -> list[bytes]:
        """Return handshakes with the victim's certificate and another key."""
        return [self._hello(200 + number, lambda _: self.victim.certificate) for number in range(self.count)]

    def expired_certificate(self) -> list[bytes]:
        """Return handshakes with genuine but expired certificates."""
        return [self._hello(300 + number, self._issue_expired) for number in range(self.count)]

    def old_handshake(self) -> list[bytes]:
        """Return the victim's original handshake again."""
        return [self.victim.init] * self.count

    def unencrypted(self) -> list[bytes]:
        """Return plain reports, as an edge without sealing would accept them."""
        return [encode(ReportSent(self.victim.token, self._report(self.victim)))] * self.count

    def noise(self) -> list[bytes]:
        """Return random bytes."""
        return [self.rng.randbytes(self.rng.randrange(1, 200)) for _ in range(self.count)]

    def _hello(self, number: int, certificate: Callable[[Endpoint], bytes]) -> bytes:
        impostor = Endpoint(number, self.realm)
        impostor.certificate = certificate(impostor)
        return impostor.begin(Instant(time.time_ns()))

    def _issue_expired(self, endpoint: Endpoint) -> bytes:
        now = time.time_ns()
        return issue(
            self.realm.authority_key,
            id=endpoint.name,
            role="vehicle",
            key=public_of(endpoint.static),
            not_before=Instant(now - 3 * DAY_NS),
            not_after=Instant(now - DAY_NS),
            serial=self.rng.randrange(1, 2**40),
        ).data

    def _report(self, endpoint: Endpoint) -> Report:
        return Report(endpoint.name, _PLACE, Instant(time.time_ns()), 0.0, 1.0)

    def _message(self, source: Endpoint) -> Message:
        number = MessageId(self.rng.randrange(1, 2**50))
        return Message(number, source.name, "Emergency", Instant(time.time_ns()), place=_PLACE, priority=Priority.EMERGENCY)


ATTACKS: Final[tuple[tuple[str, Callable[[AttackSetup], list[bytes]]], ...]] = (
    ("one bit of an encrypted report altered", AttackSetup.altered),
    ("truncated reports", AttackSetup.cut),
    ("replayed reports", AttackSetup.replayed),
    ("encrypted with another key", AttackSetup.wrong_key),
    ("another client's session inside the own one", AttackSetup.others_session),
    ("an emergency in another client's name", AttackSetup.others_place),
    ("certificate of another certificate authority", AttackSetup.other_authority),
    ("another client's certificate, own key", AttackSetup.stolen_certificate),
    ("expired certificate", AttackSetup.expired_certificate),
    ("replayed handshake", AttackSetup.old_handshake),
    ("not encrypted", AttackSetup.unencrypted),
    ("random bytes", AttackSetup.noise),
)


def measure(progress: Progress, *, is_quick: bool) -> Section:
    """Run every attack at one edge, then a man in the middle."""
    count = 200 if is_quick else 2_000
    with running_edge(is_encrypted=True) as edge:
        attack_setup, results = AttackSetup(edge, count), []
        attack_setup.capture_reports()
        for name, attack in ATTACKS:
            progress(f"forgery: {name}")
            results.append(_run_attack(edge, name, attack(attack_setup)))
        progress("forgery: man in the middle")
        tampering = measure_tampering(edge, messages=20 if is_quick else 200)
    return _section(results, tampering)


def _run_attack(edge: EdgeProcess, name: str, datagrams: list[bytes]) -> AttackResult:
    before = edge.snapshot()
    send_all(edge, datagrams)
    time.sleep(_QUIET_S)
    after = edge.snapshot()
    return AttackResult(name, len(datagrams), refused_between(before, after), accepted_between(before, after))


def refused_between(before: MetricsSnapshot, after: MetricsSnapshot) -> dict[str, int]:
    """Return the number of refused datagrams between two readings, by reason."""
    counts = {name: int(after.metrics[name] - before.metrics.get(name, 0)) for name in after.metrics if "_refused_total{" in name}
    return {name.split('"')[1]: count for name, count in counts.items() if count}


def accepted_between(before: MetricsSnapshot, after: MetricsSnapshot) -> int:
    """Return the number of accepted items between two readings."""
    return int(sum(after.of(name) - before.of(name) for name in ACCEPTED_METRICS))


def send_all(edge: EdgeProcess, datagrams: list[bytes]) -> None:
    """Send datagrams from one address, no faster than the edge receives them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for begin in range(0, len(datagrams), _TOGETHER):
            part = datagrams[begin : begin + _TOGETHER]
            expected = edge.snapshot().of("udp_received_total") + len(part)
            for data in part:
                sock.sendto(data, ("127.0.0.1", edge.port))
            _wait_received(edge, expected)


def _wait_received(edge: EdgeProcess, expected: float) -> None:
    until = time.monotonic() + _WAIT_S_MAX
    while edge.snapshot().of("udp_received_total") < expected:
        if time.monotonic() > until:
            raise LoadFailed("the edge does not receive the datagrams")
        time.sleep(0.002)


def _section(results: list[AttackResult], tampering: TamperingResult) -> Section:
    rows = tuple(
        (one.name, f"{one.sent:,}", _reasons_text(one.refused), f"{one.unaccounted:,}", f"{one.accepted:,}") for one in results
    )
    through = sum(one.accepted for one in results)
    forged = Table(
        "Forged and altered datagrams at an edge with encryption",
        ("attack", "sent", "refused, by reason", "unaccounted", "accepted"),
        (*rows, ("all", f"{sum(one.sent for one in results):,}", "", "", f"{through:,}")),
        is_text=True,
    )
    middle = Table(
        "Man in the middle, between client library and edge",
        ("messages and datagrams", "count"),
        (
            ("messages published at QoS 1, each to its own sender", f"{tampering.published:,}"),
            ("of these failed, and the sender was notified", f"{tampering.failed:,}"),
            ("datagrams forwarded", f"{tampering.forwarded:,}"),
            ("of these altered", f"{tampering.altered:,}"),
            ("messages received unaltered by the application", f"{tampering.unaltered:,}"),
            ("messages received altered", f"{tampering.received_altered:,}"),
            ("messages received twice", f"{tampering.duplicated:,}"),
            ("clients that connected to a false edge, of " + f"{tampering.lured_of}", f"{tampering.lured}"),
        ),
    )
    violations = [f"{one.name}: {one.accepted} accepted" for one in results if one.accepted]
    violations += [f"{tampering.received_altered} altered messages were received"] if tampering.received_altered else []
    violations += [f"{tampering.lured} clients trusted a false edge"] if tampering.lured else []
    section_results = {
        "attacks": [{"attack": one.name, "sent": one.sent, "refused": one.refused, "accepted": one.accepted} for one in results],
        "middle": {name: getattr(tampering, name) for name in TamperingResult.__slots__},
    }
    setup = "an edge process with encrypted UDP; the client library behind a relay that alters datagrams"
    return Section("forgery", "4. Forged and altered messages", setup, (forged, middle), (), section_results, tuple(violations))


def _reasons_text(refused: dict[str, int]) -> str:
    named = [(Reason[name], count) for name, count in refused.items()]
    return ", ".join(f"{reason.value} {reason.name} {count:,}" for reason, count in sorted(named)) or "-"
