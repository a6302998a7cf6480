"""From INIT to a session: replies, replays, refusals, and the cost of unknown senders (M10, M20, M28)."""

from collections.abc import Callable

import pytest

from edge_in_memory import START
from milepost.listeners.udp.settings import UdpLimits, UdpSettings
from milepost.model.areas import Circle
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.model.session_datagrams import AcknowledgeDatagram, Heartbeat, Init, Refusal
from milepost.trust.certificates import CertificateAuthority, read_certificate, revoke
from milepost.trust.cookies import Macs, open_cookie, reset_key, reset_of
from milepost.trust.noise import public_of
from milepost.trust.signing import Signer, Verifier, signing_public_of
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import (
    ASK_BYTES,
    MACS_BYTES,
    DiscoveryRequest,
    SealedType,
    data_head,
    discovery_reply_from_bytes,
    discovery_request_to_bytes,
)
from simulation.invariants import check_udp_listener
from udp_edge_in_memory import AUTHORITY_KEY, EDGE_CERTIFICATE, EDGE_SIGNING, EDGE_STATIC, HOME, UdpEdge, Vehicle, certificate_of

STRANGE_KEY = bytes(range(100, 132))


def sessions_and_reports(edge: UdpEdge) -> tuple[int, int, int]:
    return len(edge.udp.session_table), edge.broker.counts.sessions_opened, edge.broker.counts.reports


def test_a_session_is_pending_after_one_round_trip_and_open_with_its_first_datagram(edge: UdpEdge) -> None:
    # M10
    vehicle = Vehicle(edge, "a")
    answer = vehicle.send_init()
    assert isinstance(answer, AcknowledgeDatagram)
    assert (answer.edge, answer.reporting_interval_ns, answer.is_resumed) == ("edge-1", SECOND_NS, False)
    assert (answer.keys_ns is None, answer.reset == b"") == ((edge.identity is None,) * 2)
    assert (edge.udp.pending, sessions_and_reports(edge)) == (1, (0, 0, 0))
    vehicle.accept(answer)
    vehicle.report()
    assert (edge.udp.pending, sessions_and_reports(edge)) == (0, (1, 1, 2)), "the report in INIT counts, and the one after it"
    assert edge.broker.place_of(edge.session("a")) == HOME


def test_any_datagram_opens_the_session_and_the_report_in_init_is_used(edge: UdpEdge) -> None:
    # M10
    vehicle = Vehicle(edge, "a")
    vehicle.accept(vehicle.send_init())
    vehicle.send(Heartbeat(vehicle.token))
    assert sessions_and_reports(edge) == (1, 1, 1)


def test_a_repeated_init_gets_the_same_reply_and_no_second_session(edge: UdpEdge) -> None:
    vehicle = Vehicle(edge, "a")
    data, initiator = vehicle.init_bytes()
    for _ in range(3):
        edge.receive((data, vehicle.address))
    first, *others = vehicle.received_raw()
    assert others == [first, first]
    assert edge.udp.pending == 1
    vehicle.accept(vehicle.read_answer(first, initiator))
    vehicle.report()
    edge.receive((data, vehicle.address))
    vehicle.report()
    assert sessions_and_reports(edge) == (1, 1, 3)


def test_a_pending_session_expires_after_ten_seconds(edge: UdpEdge) -> None:
    vehicle = Vehicle(edge, "a")
    vehicle.accept(vehicle.send_init())
    edge.pass_time(9.9)
    assert edge.udp.pending == 1
    edge.pass_time(0.1)
    assert edge.udp.pending == 0
    vehicle.report()
    assert sessions_and_reports(edge) == (0, 0, 0)


@pytest.mark.parametrize("after_s", [0, 5, 30, 3_600])
@pytest.mark.parametrize("is_reborn", [False, True])
def test_a_replayed_init_with_its_datagrams_opens_no_session(after_s: int, is_reborn: bool) -> None:
    edge = UdpEdge()
    vehicle = Vehicle(edge, "a")
    data, initiator = vehicle.init_bytes()
    edge.receive((data, vehicle.address))
    vehicle.accept(vehicle.read_answer(vehicle.received_raw()[0], initiator))
    followed = [vehicle.report_datagram() for _ in range(3)]
    edge.receive(*followed)
    vehicle.close()
    edge.pass_time(after_s)
    if is_reborn:
        edge = edge.respawned()
    before = sessions_and_reports(edge)
    thief = Vehicle(edge, "thief").address
    edge.receive((data, thief), *((one, thief) for one, _ in followed))
    edge.receive(*((one, thief) for one, _ in followed))
    assert sessions_and_reports(edge) == before
    edge.pass_time(10)
    assert edge.udp.pending == 0


def test_pending_sessions_are_limited_and_the_oldest_is_dropped_first(edge: UdpEdge) -> None:
    limited = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(pending_max=2))
    vehicles = [Vehicle(limited, name) for name in "abc"]
    for vehicle in vehicles:
        vehicle.accept(vehicle.send_init())
    assert limited.udp.pending == 2
    assert limited.broker.counts.refused[Reason.HANDSHAKES_FULL] == 1
    for vehicle in vehicles:
        vehicle.report()
    assert [connection.session.name for connection in limited.udp.session_table] == ["b", "c"]


def test_a_full_edge_resets_the_new_session(edge: UdpEdge) -> None:
    for number in range(edge.limits.sessions_max):
        edge.connect(f"mqtt-{number}")
    vehicle = Vehicle(edge, "a")
    vehicle.accept(vehicle.send_init())
    vehicle.report()
    assert len(vehicle.received_raw()) == 1
    assert edge.broker.counts.refused[Reason.ENDPOINTS_FULL] == 1
    check_udp_listener(edge)


def other_key(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("a", STRANGE_KEY)


def not_yet_valid(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("a", vehicle.static, from_s=10)


def expired(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("a", vehicle.static, until_s=-10)


def revoked(vehicle: Vehicle) -> None:
    assert vehicle.edge.identity is not None
    vehicle.edge.identity.certificate_authority.use(revoke(AUTHORITY_KEY, None, [vehicle.certificate.serial], START))


def other_authority(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("a", vehicle.static, authority=STRANGE_KEY)


def other_name(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("b", vehicle.static)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (other_key, Reason.CERTIFICATE_INVALID),
        (not_yet_valid, Reason.CERTIFICATE_EXPIRED),
        (expired, Reason.CERTIFICATE_EXPIRED),
        (revoked, Reason.CERTIFICATE_REVOKED),
        (other_authority, Reason.CERTIFICATE_INVALID),
        (other_name, Reason.REPORT_NOT_OWN),
    ],
)
def test_an_invalid_certificate_receives_an_encrypted_refusal(fault: Callable[[Vehicle], None], reason: Reason) -> None:
    # M28
    edge = UdpEdge()
    vehicle = Vehicle(edge, "a")
    fault(vehicle)
    answer = vehicle.send_init()
    assert isinstance(answer, Refusal)
    assert answer.reason == reason
    assert (edge.udp.pending, edge.broker.counts.refused) == (0, {reason: 1})


@pytest.mark.parametrize(("off_s", "is_refused"), [(-61, True), (-59, False), (59, False), (61, True)])
def test_a_handshake_with_a_wrong_clock_is_refused_with_the_difference(off_s: int, is_refused: bool) -> None:
    edge = UdpEdge()
    answer = Vehicle(edge, "a").send_init(sent_at=START + off_s * SECOND_NS)
    assert isinstance(answer, Refusal) == is_refused
    if isinstance(answer, Refusal):
        assert answer.reason == Reason.HANDSHAKE_STALE
        assert f"61 s {'ahead' if off_s > 0 else 'behind'}" in answer.detail


@pytest.mark.parametrize("back_ns", [0, 1, SECOND_NS])
def test_an_init_not_later_than_the_latest_of_its_key_is_refused(back_ns: int) -> None:
    edge = UdpEdge()
    vehicle = Vehicle(edge, "a")
    vehicle.send_init(sent_at=START)
    answer = vehicle.send_init(sent_at=START - back_ns)
    assert isinstance(answer, Refusal)
    assert answer.reason == Reason.HANDSHAKE_STALE
    assert isinstance(vehicle.send_init(sent_at=START + 1), AcknowledgeDatagram)
    assert isinstance(Vehicle(edge, "b").send_init(sent_at=START), AcknowledgeDatagram), (
        "the order applies to each key separately"
    )


def test_after_all_clocks_are_set_back_handshakes_are_accepted() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    edge.now = Instant(edge.now - 3_600 * SECOND_NS)
    assert isinstance(vehicle.send_init(), AcknowledgeDatagram)
    assert isinstance(vehicle.send_init(), Refusal), "the time of the new handshake counts"


@pytest.mark.parametrize("at", [0, 40, 100, -40, -33, -17])
def test_a_modified_init_gets_no_reply(at: int) -> None:
    edge = UdpEdge()
    vehicle = Vehicle(edge, "a")
    data = bytearray(vehicle.init_bytes()[0])
    data[at] ^= 1
    edge.receive((bytes(data), vehicle.address))
    assert vehicle.received_raw() == []
    assert edge.udp.pending == 0
    assert sum(edge.broker.counts.refused.values()) == 1


def test_a_handshake_without_init_gets_no_reply(edge: UdpEdge) -> None:
    vehicle = Vehicle(edge, "a")
    edge.receive(
        (encode(Init(vehicle.report_of()))[:-1], vehicle.address), (b"", vehicle.address), (b"\xff" * 700, vehicle.address)
    )
    assert vehicle.received_raw() == []
    assert sum(edge.broker.counts.refused.values()) == 3


class Loaded:
    """An edge that has reached its handshake rate, and a new endpoint."""

    def __init__(self) -> None:
        self.edge = UdpEdge(udp=UdpSettings(handshakes_per_s=2))
        for name in "xy":
            Vehicle(self.edge, name).send_init()
        self.vehicle = Vehicle(self.edge, "a")
        self.data, self.initiator = self.vehicle.init_bytes()
        self.macs = Macs(public_of(EDGE_STATIC))

    def cookie(self) -> bytes:
        """Send INIT and return the cookie of the reply."""
        self.edge.receive((self.data, self.vehicle.address))
        (answer,) = self.vehicle.received_raw()
        assert answer[0] == SealedType.COOKIE
        assert len(answer) < len(self.data)
        return open_cookie(public_of(EDGE_STATIC), answer[1:17], answer[17:], self.data[-MACS_BYTES:-16])

    def is_answered(self, cookie: bytes, address: bytes | None = None) -> bool:
        plain = self.data[:-MACS_BYTES]
        before, pending = len(self.edge.output.order), self.edge.udp.pending
        self.edge.receive((plain + self.macs.stamp(plain, cookie), address or self.vehicle.address))
        ((_, answer),) = self.edge.output.order[before:]
        assert (answer[0] == SealedType.ACK) == (self.edge.udp.pending > pending), "without a valid cookie no state is held"
        return answer[0] == SealedType.ACK


def test_under_load_an_endpoint_proves_its_address_with_a_cookie() -> None:
    loaded = Loaded()
    cookie = loaded.cookie()
    assert loaded.edge.udp.pending == 2
    assert loaded.is_answered(cookie)


def test_a_cookie_is_valid_for_its_address_only() -> None:
    loaded = Loaded()
    cookie = loaded.cookie()
    loaded.vehicle.received_raw()
    assert not loaded.is_answered(cookie, Vehicle(loaded.edge, "thief").address)
    assert not loaded.is_answered(bytes(16))
    assert loaded.is_answered(cookie)


@pytest.mark.parametrize(("after_s", "is_good"), [(119, True), (121, True), (239, True), (241, False), (7_200, False)])
def test_a_cookie_is_valid_while_its_secret_is_current_or_previous_and_recent(after_s: int, is_good: bool) -> None:
    loaded = Loaded()
    cookie = loaded.cookie()
    loaded.edge.monotonic_now += after_s * SECOND_NS  # only the monotonic clock: the handshakes of this second remain charged
    assert loaded.is_answered(cookie) == is_good


def test_a_cookie_is_invalid_after_two_secret_changes() -> None:
    loaded = Loaded()
    cookie = loaded.cookie()
    for _ in range(2):
        loaded.edge.monotonic_now += 121 * SECOND_NS
        loaded.is_answered(bytes(16))
    assert not loaded.is_answered(cookie)


def test_one_network_prefix_cannot_exceed_its_handshake_rate_even_with_cookies() -> None:
    loaded = Loaded()
    cookie = loaded.cookie()
    answered = 0
    for _ in range(5):
        loaded.data, _ = loaded.vehicle.init_bytes(sent_at=loaded.edge.now + answered + 1)
        answered += loaded.is_answered(cookie)
    assert answered == 2
    other = Vehicle(loaded.edge, "b", host="10.0.9.1")
    loaded.vehicle = other
    loaded.data, _ = other.init_bytes()
    assert loaded.is_answered(loaded.cookie())


def test_data_under_an_unknown_token_is_answered_with_its_reset() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    assert vehicle.ack is not None
    later = edge.respawned()
    vehicle.edge = later
    vehicle.move_network()
    vehicle.report()
    (answer,) = vehicle.received_raw()
    assert answer == bytes((SealedType.RESET,)) + vehicle.token.to_bytes(8, "little") + vehicle.ack.reset
    assert vehicle.ack.reset == reset_of(reset_key(EDGE_STATIC), vehicle.token)


def test_without_encryption_data_under_an_unknown_token_gets_a_refusal() -> None:
    edge = UdpEdge(is_sealed=False)
    vehicle = edge.vehicle("a")
    edge.udp.session_table.leave(next(iter(edge.udp.session_table)), edge.now)
    vehicle.report()
    (answer,) = [decode(data) for data in vehicle.received_raw()]
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.session) == (Reason.SESSION_UNKNOWN, vehicle.token)


@pytest.mark.parametrize("size", [1, 9, 17, 24, 25, 33, 700])
def test_a_reset_is_never_longer_than_its_request(size: int) -> None:
    edge = UdpEdge()
    unknown = Vehicle(edge, "a")
    edge.receive((data_head(5, 0).ljust(size, b"\0")[:size], unknown.address))
    assert [len(answer) for answer in unknown.received_raw()] == ([25] if size >= 25 else [])


def test_resets_are_limited() -> None:
    edge = UdpEdge(udp=UdpSettings(handshakes_per_s=2))
    unknown = Vehicle(edge, "a")
    edge.receive(*((data_head(5, 0) + bytes(30), unknown.address) for _ in range(100)))
    assert len(unknown.received_raw()) == 20
    assert edge.broker.counts.refused[Reason.SESSION_UNKNOWN] == 100


def test_a_forged_first_datagram_neither_opens_a_pending_session_nor_gets_a_reset() -> None:
    edge = UdpEdge()
    vehicle, thief = Vehicle(edge, "a"), Vehicle(edge, "thief")
    vehicle.accept(vehicle.send_init())
    edge.receive((data_head(vehicle.token, 0) + bytes(60), thief.address))
    assert thief.received_raw() == []
    assert edge.broker.counts.refused[Reason.DECRYPTION_FAILED] == 1
    vehicle.report()
    assert len(edge.udp.session_table) == 1


def test_discovery_is_answered_only_inside_the_coverage() -> None:
    edge = UdpEdge()
    edge.broker.presence.plausibility_rules = edge.broker.presence.plausibility_rules.__class__(Circle(HOME, 1_000.0))
    edge.udp.discovery.port, edge.udp.discovery.certificate = 4433, EDGE_CERTIFICATE.data
    edge.udp.discovery.signer = Signer(EDGE_SIGNING, EDGE_CERTIFICATE)
    asker = Vehicle(edge, "a")
    nan = float("nan")
    for nonce, latitude, longitude in ((1, 50.0, 50.0), (2, HOME.latitude, HOME.longitude), (3, nan, nan), (4, 400.0, 0.0)):
        edge.receive((discovery_request_to_bytes(DiscoveryRequest(bytes([nonce] * 16), latitude, longitude)), asker.address))
    answers = asker.received_raw()
    assert all(len(answer) <= ASK_BYTES for answer in answers)
    found = [discovery_reply_from_bytes(answer) for answer in answers]
    assert [(here.nonce[0], here.port) for here in found] == [(2, 4433), (3, 4433)]
    verifier = Verifier(CertificateAuthority(signing_public_of(AUTHORITY_KEY)))
    here = found[0]
    assert verifier.check_discovery_reply(here.signed, read_certificate(here.certificate), here.signature, edge.now) is None
    assert edge.broker.counts.refused[Reason.OUTSIDE_COVERAGE] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"handshakes_per_s": 0},
        {"cached_ciphers_max": 0},
        {"pending_max": 0},
        {"in_flight_max": 0},
        {"in_flight_max": 15_001},
        {"prefix_burst": 0},
        {"unsent_bytes_max": 9_999},
    ],
)
def test_limits_that_would_refuse_everything_are_rejected_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        UdpLimits(**wrong)
    assert UdpLimits(total_per_s=0, total_burst=0).total_per_s == 0
