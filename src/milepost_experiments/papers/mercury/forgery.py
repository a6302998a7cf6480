"""Forged datagrams at a sealed edge, and the outcome of each (M28).

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
from milepost.model.sessions import Publish, ReportSent
from milepost.trust.certificates import issue
from milepost.trust.noise import public_of
from milepost.wire.datagrams import encode
from milepost.wire.sealed import data_head, nonce_of
from milepost_experiments.papers.load.edges import Edge, Look, serving
from milepost_experiments.papers.load.endpoints import DAY_NS, Endpoint, Realm, open_all
from milepost_experiments.papers.load.programs import LoadFailed
from milepost_experiments.papers.mercury.tampering import Meddled, meddle
from milepost_experiments.papers.report import Progress, Section, Table

LET_IN: Final = ("reports_total", "messages_accepted_total", "sessions_opened_total", "alerts_total")
"""Metrics of an edge that grow when a forged datagram is accepted."""

_TOGETHER: Final = 64
_WAIT_S_MAX: Final = 10.0
_QUIET_S: Final = 0.1
_PLACE: Final = Place(40.6, -111.9)


@dataclass(frozen=True, slots=True)
class Tried:
    """One attack: the number of datagrams sent, refused by reason, and accepted."""

    name: str
    sent: int
    refused: dict[str, int]
    let_in: int

    @property
    def unheard(self) -> int:
        """Datagrams neither refused with a reason nor accepted."""
        return self.sent - sum(self.refused.values()) - self.let_in


class Scene:
    """A sealed edge with open sessions of a victim and an attacker."""

    def __init__(self, edge: Edge, count: int, seed: int = 1) -> None:
        assert edge.realm is not None
        self.edge, self.realm, self.count = edge, edge.realm, count
        self.draw = Random(seed)
        self.victim, self.attacker = Endpoint(1, edge.realm, _PLACE), Endpoint(2, edge.realm, _PLACE)
        open_all([self.victim, self.attacker], edge.port)
        self.heard: list[bytes] = []
        """Datagrams that the attacker has captured."""

    def overhear(self) -> None:
        """Send reports of the victim, and capture a copy."""
        self.heard = [self.victim.report(Instant(time.time_ns() + number)) for number in range(self.count)]
        send_all(self.edge, self.heard)

    # Attacks; each returns the datagrams to send.

    def altered(self) -> list[bytes]:
        """Return genuine reports, not sent before, with one bit of each flipped."""
        found = []
        for number in range(self.count):
            data = bytearray(self.victim.report(Instant(time.time_ns() + number)))
            bit = self.draw.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
            found.append(bytes(data))
        return found

    def cut(self) -> list[bytes]:
        """Return genuine reports, truncated."""
        whole = (self.victim.report(Instant(time.time_ns() + number)) for number in range(self.count))
        return [data[: self.draw.randrange(1, len(data))] for data in whole]

    def replayed(self) -> list[bytes]:
        """Return the captured reports again."""
        return self.heard

    def wrong_key(self) -> list[bytes]:
        """Return reports in the victim's session, sealed with another key."""
        plain = encode(ReportSent(self.victim.token, self._report(self.victim)))
        key = AESGCM(self.draw.randbytes(32))
        numbers = range(10**6, 10**6 + self.count)
        return [data_head(self.victim.token, number) + key.encrypt(nonce_of(number), plain, None) for number in numbers]

    def others_session(self) -> list[bytes]:
        """Return reports that name the victim's session inside the attacker's own."""
        return [self.attacker.seal(ReportSent(self.victim.token, self._report(self.victim))) for _ in range(self.count)]

    def others_place(self) -> list[bytes]:
        """Return publications in the victim's name, in the attacker's own session."""
        return [self.attacker.seal(Publish(self._message(self.victim), self.attacker.token)) for _ in range(self.count)]

    def other_authority(self) -> list[bytes]:
        """Return handshakes with certificates of the attacker's own certificate authority."""
        realm = Realm(self.draw.randbytes(32), self.realm.edge_key)
        return [Endpoint(100 + number, realm).begin(Instant(time.time_ns())) for number in range(self.count)]

    def stolen_certificate(self) -> list[bytes]:
        """Return handshakes with the victim's certificate and another key."""
        return [self._hello(200 + number, lambda _: self.victim.certificate) for number in range(self.count)]

    def expired_certificate(self) -> list[bytes]:
        """Return handshakes with genuine but expired certificates."""
        return [self._hello(300 + number, self._run_out) for number in range(self.count)]

    def old_handshake(self) -> list[bytes]:
        """Return the victim's original handshake again."""
        return [self.victim.init] * self.count

    def unsealed(self) -> list[bytes]:
        """Return plain reports, as an edge without sealing would accept them."""
        return [encode(ReportSent(self.victim.token, self._report(self.victim)))] * self.count

    def noise(self) -> list[bytes]:
        """Return random bytes."""
        return [self.draw.randbytes(self.draw.randrange(1, 200)) for _ in range(self.count)]

    def _hello(self, number: int, certificate: Callable[[Endpoint], bytes]) -> bytes:
        pretender = Endpoint(number, self.realm)
        pretender.certificate = certificate(pretender)
        return pretender.begin(Instant(time.time_ns()))

    def _run_out(self, endpoint: Endpoint) -> bytes:
        now = time.time_ns()
        return issue(
            self.realm.authority_key,
            id=endpoint.name,
            role="vehicle",
            key=public_of(endpoint.static),
            not_before=Instant(now - 3 * DAY_NS),
            not_after=Instant(now - DAY_NS),
            serial=self.draw.randrange(1, 2**40),
        ).data

    def _report(self, endpoint: Endpoint) -> Report:
        return Report(endpoint.name, _PLACE, Instant(time.time_ns()), 0.0, 1.0)

    def _message(self, source: Endpoint) -> Message:
        number = MessageId(self.draw.randrange(1, 2**50))
        return Message(number, source.name, "Emergency", Instant(time.time_ns()), place=_PLACE, priority=Priority.EMERGENCY)


ATTACKS: Final[tuple[tuple[str, Callable[[Scene], list[bytes]]], ...]] = (
    ("altered: one bit of a sealed report", Scene.altered),
    ("cut short", Scene.cut),
    ("replayed reports", Scene.replayed),
    ("sealed with another key", Scene.wrong_key),
    ("another's session inside one's own", Scene.others_session),
    ("an emergency in another's name", Scene.others_place),
    ("certificate of another authority", Scene.other_authority),
    ("another's certificate, own key", Scene.stolen_certificate),
    ("certificate that has run out", Scene.expired_certificate),
    ("replayed handshake", Scene.old_handshake),
    ("not sealed at all", Scene.unsealed),
    ("random bytes", Scene.noise),
)


def measure(progress: Progress, *, is_quick: bool) -> Section:
    """Run every attack at one edge, then a man in the middle."""
    count = 200 if is_quick else 2_000
    with serving(is_sealed=True) as edge:
        scene, tried = Scene(edge, count), []
        scene.overhear()
        for name, attack in ATTACKS:
            progress(f"forging: {name}")
            tried.append(_try(edge, name, attack(scene)))
        progress("forging: somebody in the middle")
        meddled = meddle(edge, messages=20 if is_quick else 200)
    return _section(tried, meddled)


def _try(edge: Edge, name: str, datagrams: list[bytes]) -> Tried:
    before = edge.look()
    send_all(edge, datagrams)
    time.sleep(_QUIET_S)
    after = edge.look()
    return Tried(name, len(datagrams), refused_between(before, after), let_in_between(before, after))


def refused_between(before: Look, after: Look) -> dict[str, int]:
    """Return the number of refused datagrams between two readings, by reason."""
    counts = {name: int(after.figures[name] - before.figures.get(name, 0)) for name in after.figures if "_refused_total{" in name}
    return {name.split('"')[1]: count for name, count in counts.items() if count}


def let_in_between(before: Look, after: Look) -> int:
    """Return the number of accepted items between two readings."""
    return int(sum(after.of(name) - before.of(name) for name in LET_IN))


def send_all(edge: Edge, datagrams: list[bytes]) -> None:
    """Send datagrams from one address, no faster than the edge receives them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        for begin in range(0, len(datagrams), _TOGETHER):
            part = datagrams[begin : begin + _TOGETHER]
            wanted = edge.look().of("udp_received_total") + len(part)
            for data in part:
                other.sendto(data, ("127.0.0.1", edge.port))
            _wait_received(edge, wanted)


def _wait_received(edge: Edge, wanted: float) -> None:
    until = time.monotonic() + _WAIT_S_MAX
    while edge.look().of("udp_received_total") < wanted:
        if time.monotonic() > until:
            raise LoadFailed("datagrams do not arrive")
        time.sleep(0.002)


def _section(tried: list[Tried], meddled: Meddled) -> Section:
    rows = tuple((one.name, f"{one.sent:,}", _reasons(one.refused), f"{one.unheard:,}", f"{one.let_in:,}") for one in tried)
    through = sum(one.let_in for one in tried)
    forged = Table(
        "Forged and altered datagrams at a sealed edge",
        ("attack", "sent", "refused, by reason", "for no reason", "got through"),
        (*rows, ("all", f"{sum(one.sent for one in tried):,}", "", "", f"{through:,}")),
        is_words=True,
    )
    middle = Table(
        "Somebody in the middle, between our client and the edge",
        ("what", "count"),
        (
            ("messages published at quality 1, each heard by its sender", f"{meddled.published:,}"),
            ("of these given up, which the sender was told", f"{meddled.given_up:,}"),
            ("datagrams that passed", f"{meddled.passed:,}"),
            ("of these altered on the way", f"{meddled.altered:,}"),
            ("heard by the application as they were sent", f"{meddled.whole:,}"),
            ("heard otherwise", f"{meddled.spoiled:,}"),
            ("heard twice", f"{meddled.doubled:,}"),
            ("clients that took a false edge for the true one, of " + f"{meddled.lured_of}", f"{meddled.lured}"),
        ),
    )
    broken = [f"{one.name}: {one.let_in} got through" for one in tried if one.let_in]
    broken += [f"{meddled.spoiled} altered messages were heard"] if meddled.spoiled else []
    broken += [f"{meddled.lured} clients trusted a false edge"] if meddled.lured else []
    found = {
        "attacks": [{"attack": one.name, "sent": one.sent, "refused": one.refused, "got_through": one.let_in} for one in tried],
        "middle": {name: getattr(meddled, name) for name in Meddled.__slots__},
    }
    on = "an edge process over UDP, sealed; the client library behind a relay that alters"
    return Section("forging", "4. Forged and altered messages", on, (forged, middle), (), found, tuple(broken))


def _reasons(refused: dict[str, int]) -> str:
    named = [(Reason[name], count) for name, count in refused.items()]
    return ", ".join(f"{reason.value} {reason.name} {count:,}" for reason, count in sorted(named)) or "-"
