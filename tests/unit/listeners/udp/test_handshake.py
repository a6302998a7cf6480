"""From INIT to a session: who is answered how, what opens nothing, and what strangers cost (M10, M20, M28)."""

from collections.abc import Callable

import pytest

from edge_in_memory import START
from milepost.listeners.udp.settings import UdpLimits, UdpSettings
from milepost.model.areas import Circle
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.model.sessions import Acknowledge, Heartbeat, Init, Refusal
from milepost.trust.certificates import Authority, read_certificate, revoke
from milepost.trust.cookies import Macs, open_cookie, reset_key, reset_of
from milepost.trust.noise import public_of
from milepost.trust.signing import Signer, Verifier, signing_public_of
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import ASK_BYTES, MACS_BYTES, Ask, Kind, ask_to_bytes, data_head, here_from_bytes
from simulation.invariants import check_door
from udp_edge_in_memory import AUTHORITY_KEY, EDGE_CERTIFICATE, EDGE_SIGNING, EDGE_STATIC, HOME, UdpEdge, Vehicle, certificate_of

STRANGE_KEY = bytes(range(100, 132))


def sessions_and_reports(edge: UdpEdge) -> tuple[int, int, int]:
    return len(edge.udp.session_table), edge.broker.counts.sessions_opened, edge.broker.counts.reports


def test_a_session_is_pending_after_one_round_trip_and_open_with_the_first_word_in_it(edge: UdpEdge) -> None:
    # M10
    vehicle = Vehicle(edge, "a")
    answer = vehicle.ask_to_open()
    assert isinstance(answer, Acknowledge)
    assert (answer.edge, answer.reporting_interval_ns, answer.is_resumed) == ("edge-1", SECOND_NS, False)
    assert (answer.keys_ns is None, answer.reset == b"") == ((edge.identity is None,) * 2)
    assert (edge.udp.pending, sessions_and_reports(edge)) == (1, (0, 0, 0))
    vehicle.accept(answer)
    vehicle.report()
    assert (edge.udp.pending, sessions_and_reports(edge)) == (0, (1, 1, 2)), "the report in INIT counts, and the one after it"
    assert edge.broker.place_of(edge.session("a")) == HOME


def test_any_word_opens_the_session_and_the_report_in_init_counts(edge: UdpEdge) -> None:
    # M10
    vehicle = Vehicle(edge, "a")
    vehicle.accept(vehicle.ask_to_open())
    vehicle.say(Heartbeat(vehicle.token))
    assert sessions_and_reports(edge) == (1, 1, 1)


def test_an_init_repeated_byte_by_byte_gets_the_same_answer_and_no_second_session(edge: UdpEdge) -> None:
    vehicle = Vehicle(edge, "a")
    data, initiator = vehicle.init_bytes()
    for _ in range(3):
        edge.hear((data, vehicle.address))
    first, *others = vehicle.taken_raw()
    assert others == [first, first]
    assert edge.udp.pending == 1
    vehicle.accept(vehicle.read_answer(first, initiator))
    vehicle.report()
    edge.hear((data, vehicle.address))
    vehicle.report()
    assert sessions_and_reports(edge) == (1, 1, 3)


def test_who_was_answered_has_ten_seconds_to_speak(edge: UdpEdge) -> None:
    vehicle = Vehicle(edge, "a")
    vehicle.accept(vehicle.ask_to_open())
    edge.pass_time(9.9)
    assert edge.udp.pending == 1
    edge.pass_time(0.1)
    assert edge.udp.pending == 0
    vehicle.report()
    assert sessions_and_reports(edge) == (0, 0, 0)


@pytest.mark.parametrize("after_s", [0, 5, 30, 3_600])
@pytest.mark.parametrize("is_reborn", [False, True])
def test_a_recorded_init_and_all_that_followed_it_open_nothing(after_s: int, is_reborn: bool) -> None:
    edge = UdpEdge()
    vehicle = Vehicle(edge, "a")
    data, initiator = vehicle.init_bytes()
    edge.hear((data, vehicle.address))
    vehicle.accept(vehicle.read_answer(vehicle.taken_raw()[0], initiator))
    followed = [vehicle.report_letter() for _ in range(3)]
    edge.hear(*followed)
    vehicle.leave()
    edge.pass_time(after_s)
    if is_reborn:
        edge = edge.reborn()
    before = sessions_and_reports(edge)
    thief = Vehicle(edge, "thief").address
    edge.hear((data, thief), *((one, thief) for one, _ in followed))
    edge.hear(*((one, thief) for one, _ in followed))
    assert sessions_and_reports(edge) == before
    edge.pass_time(10)
    assert edge.udp.pending == 0


def test_no_more_are_pending_than_may_be_and_the_oldest_goes_first(edge: UdpEdge) -> None:
    few = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(pending_max=2))
    vehicles = [Vehicle(few, name) for name in "abc"]
    for vehicle in vehicles:
        vehicle.accept(vehicle.ask_to_open())
    assert few.udp.pending == 2
    assert few.broker.counts.refused[Reason.HANDSHAKES_FULL] == 1
    for vehicle in vehicles:
        vehicle.report()
    assert [link.session.name for link in few.udp.session_table] == ["b", "c"]


def test_when_the_edge_is_full_the_endpoint_is_told_that_it_has_no_session(edge: UdpEdge) -> None:
    for number in range(edge.limits.sessions_max):
        edge.connect(f"mqtt-{number}")
    vehicle = Vehicle(edge, "a")
    vehicle.accept(vehicle.ask_to_open())
    vehicle.report()
    assert len(vehicle.taken_raw()) == 1
    assert edge.broker.counts.refused[Reason.ENDPOINTS_FULL] == 1
    check_door(edge)


def other_key(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("a", STRANGE_KEY)


def not_yet(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("a", vehicle.static, from_s=10)


def no_longer(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("a", vehicle.static, until_s=-10)


def revoked(vehicle: Vehicle) -> None:
    assert vehicle.edge.identity is not None
    vehicle.edge.identity.authority.use(revoke(AUTHORITY_KEY, None, [vehicle.certificate.serial], START))


def other_authority(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("a", vehicle.static, authority=STRANGE_KEY)


def other_name(vehicle: Vehicle) -> None:
    vehicle.certificate = certificate_of("b", vehicle.static)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (other_key, Reason.CERTIFICATE_INVALID),
        (not_yet, Reason.CERTIFICATE_EXPIRED),
        (no_longer, Reason.CERTIFICATE_EXPIRED),
        (revoked, Reason.CERTIFICATE_REVOKED),
        (other_authority, Reason.CERTIFICATE_INVALID),
        (other_name, Reason.REPORT_NOT_OWN),
    ],
)
def test_a_certificate_that_does_not_hold_is_answered_by_a_sealed_refusal(
    fault: Callable[[Vehicle], None], reason: Reason
) -> None:
    # M28
    edge = UdpEdge()
    vehicle = Vehicle(edge, "a")
    fault(vehicle)
    answer = vehicle.ask_to_open()
    assert isinstance(answer, Refusal)
    assert answer.reason == reason
    assert (edge.udp.pending, edge.broker.counts.refused) == (0, {reason: 1})


@pytest.mark.parametrize(("off_s", "is_refused"), [(-61, True), (-59, False), (59, False), (61, True)])
def test_a_clock_that_is_too_far_off_is_refused_and_told_by_how_much(off_s: int, is_refused: bool) -> None:
    edge = UdpEdge()
    answer = Vehicle(edge, "a").ask_to_open(sent_at=START + off_s * SECOND_NS)
    assert isinstance(answer, Refusal) == is_refused
    if isinstance(answer, Refusal):
        assert answer.reason == Reason.HANDSHAKE_STALE
        assert f"61 s {'ahead' if off_s > 0 else 'behind'}" in answer.detail


@pytest.mark.parametrize("back_ns", [0, 1, SECOND_NS])
def test_an_init_not_later_than_the_last_one_of_its_key_is_refused(back_ns: int) -> None:
    edge = UdpEdge()
    vehicle = Vehicle(edge, "a")
    vehicle.ask_to_open(sent_at=START)
    answer = vehicle.ask_to_open(sent_at=START - back_ns)
    assert isinstance(answer, Refusal)
    assert answer.reason == Reason.HANDSHAKE_STALE
    assert isinstance(vehicle.ask_to_open(sent_at=START + 1), Acknowledge)
    assert isinstance(Vehicle(edge, "b").ask_to_open(sent_at=START), Acknowledge), "it is one key's alone"


def test_after_all_clocks_were_set_back_sessions_are_opened_again() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    edge.now = Instant(edge.now - 3_600 * SECOND_NS)
    assert isinstance(vehicle.ask_to_open(), Acknowledge)
    assert isinstance(vehicle.ask_to_open(), Refusal), "and what came after that counts"


@pytest.mark.parametrize("at", [0, 40, 100, -40, -33, -17])
def test_an_init_changed_on_its_way_is_not_answered(at: int) -> None:
    edge = UdpEdge()
    vehicle = Vehicle(edge, "a")
    data = bytearray(vehicle.init_bytes()[0])
    data[at] ^= 1
    edge.hear((bytes(data), vehicle.address))
    assert vehicle.taken_raw() == []
    assert edge.udp.pending == 0
    assert sum(edge.broker.counts.refused.values()) == 1


def test_something_else_than_init_in_a_handshake_is_not_answered(edge: UdpEdge) -> None:
    vehicle = Vehicle(edge, "a")
    edge.hear((encode(Init(vehicle.report_of()))[:-1], vehicle.address), (b"", vehicle.address), (b"\xff" * 700, vehicle.address))
    assert vehicle.taken_raw() == []
    assert sum(edge.broker.counts.refused.values()) == 3


class Loaded:
    """An edge that has taken as many handshakes in this second as it takes from everybody, and an endpoint that comes now."""

    def __init__(self) -> None:
        self.edge = UdpEdge(udp=UdpSettings(handshakes_per_s=2))
        for name in "xy":
            Vehicle(self.edge, name).ask_to_open()
        self.vehicle = Vehicle(self.edge, "a")
        self.data, self.initiator = self.vehicle.init_bytes()
        self.macs = Macs(public_of(EDGE_STATIC))

    def cookie(self) -> bytes:
        """Ask, and read the cookie that is given instead of an answer."""
        self.edge.hear((self.data, self.vehicle.address))
        (answer,) = self.vehicle.taken_raw()
        assert answer[0] == Kind.COOKIE
        assert len(answer) < len(self.data)
        return open_cookie(public_of(EDGE_STATIC), answer[1:17], answer[17:], self.data[-MACS_BYTES:-16])

    def is_answered(self, cookie: bytes, address: bytes | None = None) -> bool:
        plain = self.data[:-MACS_BYTES]
        before, pending = len(self.edge.post.order), self.edge.udp.pending
        self.edge.hear((plain + self.macs.stamp(plain, cookie), address or self.vehicle.address))
        ((_, answer),) = self.edge.post.order[before:]
        assert (answer[0] == Kind.ACK) == (self.edge.udp.pending > pending), "for who has shown no cookie nothing is remembered"
        return answer[0] == Kind.ACK


def test_under_load_an_endpoint_shows_by_a_cookie_that_it_receives_at_its_address() -> None:
    loaded = Loaded()
    cookie = loaded.cookie()
    assert loaded.edge.udp.pending == 2
    assert loaded.is_answered(cookie)


def test_a_cookie_is_good_for_its_address_and_for_no_other() -> None:
    loaded = Loaded()
    cookie = loaded.cookie()
    loaded.vehicle.taken_raw()
    assert not loaded.is_answered(cookie, Vehicle(loaded.edge, "thief").address)
    assert not loaded.is_answered(bytes(16))
    assert loaded.is_answered(cookie)


@pytest.mark.parametrize(("after_s", "is_good"), [(119, True), (121, True), (239, True), (241, False), (7_200, False)])
def test_a_cookie_is_good_while_its_secret_is_one_of_the_last_two_and_young(after_s: int, is_good: bool) -> None:
    loaded = Loaded()
    cookie = loaded.cookie()
    loaded.edge.beat += after_s * SECOND_NS  # only the beat: the handshakes of this second stay spent
    assert loaded.is_answered(cookie) == is_good


def test_a_cookie_is_not_good_any_more_when_the_secret_has_changed_twice() -> None:
    loaded = Loaded()
    cookie = loaded.cookie()
    for _ in range(2):
        loaded.edge.beat += 121 * SECOND_NS
        loaded.is_answered(bytes(16))
    assert not loaded.is_answered(cookie)


def test_one_part_of_the_network_cannot_have_more_handshakes_though_it_shows_cookies() -> None:
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


def test_data_under_an_unknown_token_is_answered_by_the_reset_that_belongs_to_it() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    assert vehicle.ack is not None
    later = edge.reborn()
    vehicle.edge = later
    vehicle.move_network()
    vehicle.report()
    (answer,) = vehicle.taken_raw()
    assert answer == bytes((Kind.RESET,)) + vehicle.token.to_bytes(8, "little") + vehicle.ack.reset
    assert vehicle.ack.reset == reset_of(reset_key(EDGE_STATIC), vehicle.token)


def test_without_seals_it_is_answered_by_a_refusal() -> None:
    edge = UdpEdge(is_sealed=False)
    vehicle = edge.vehicle("a")
    edge.udp.session_table.leave(next(iter(edge.udp.session_table)), edge.now)
    vehicle.report()
    (answer,) = [decode(data) for data in vehicle.taken_raw()]
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.session) == (Reason.SESSION_UNKNOWN, vehicle.token)


@pytest.mark.parametrize("size", [1, 9, 17, 24, 25, 33, 700])
def test_a_reset_is_never_longer_than_what_it_answers(size: int) -> None:
    edge = UdpEdge()
    stranger = Vehicle(edge, "a")
    edge.hear((data_head(5, 0).ljust(size, b"\0")[:size], stranger.address))
    assert [len(answer) for answer in stranger.taken_raw()] == ([25] if size >= 25 else [])


def test_resets_are_limited() -> None:
    edge = UdpEdge(udp=UdpSettings(handshakes_per_s=2))
    stranger = Vehicle(edge, "a")
    edge.hear(*((data_head(5, 0) + bytes(30), stranger.address) for _ in range(100)))
    assert len(stranger.taken_raw()) == 20
    assert edge.broker.counts.refused[Reason.SESSION_UNKNOWN] == 100


def test_who_forges_the_first_word_of_a_pending_session_neither_opens_it_nor_learns_what_reset_shows() -> None:
    edge = UdpEdge()
    vehicle, thief = Vehicle(edge, "a"), Vehicle(edge, "thief")
    vehicle.accept(vehicle.ask_to_open())
    edge.hear((data_head(vehicle.token, 0) + bytes(60), thief.address))
    assert thief.taken_raw() == []
    assert edge.broker.counts.refused[Reason.SEAL_BROKEN] == 1
    vehicle.report()
    assert len(edge.udp.session_table) == 1


def test_who_asks_for_an_edge_hears_of_it_only_where_it_covers() -> None:
    edge = UdpEdge()
    edge.broker.watch.ground = edge.broker.watch.ground.__class__(Circle(HOME, 1_000.0))
    edge.udp.finding.port, edge.udp.finding.certificate = 4433, EDGE_CERTIFICATE.data
    edge.udp.finding.signer = Signer(EDGE_SIGNING, EDGE_CERTIFICATE)
    asker = Vehicle(edge, "a")
    nan = float("nan")
    for nonce, latitude, longitude in ((1, 50.0, 50.0), (2, HOME.latitude, HOME.longitude), (3, nan, nan), (4, 400.0, 0.0)):
        edge.hear((ask_to_bytes(Ask(bytes([nonce] * 16), latitude, longitude)), asker.address))
    answers = asker.taken_raw()
    assert all(len(answer) <= ASK_BYTES for answer in answers)
    found = [here_from_bytes(answer) for answer in answers]
    assert [(here.nonce[0], here.port) for here in found] == [(2, 4433), (3, 4433)]
    verifier = Verifier(Authority(signing_public_of(AUTHORITY_KEY)))
    here = found[0]
    assert verifier.check_here(here.signed, read_certificate(here.certificate), here.signature, edge.now) is None
    assert edge.broker.counts.refused[Reason.OUTSIDE_COVERAGE] == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"handshakes_per_s": 0},
        {"openers_max": 0},
        {"pending_max": 0},
        {"window": 0},
        {"window": 15_001},
        {"prefix_burst": 0},
        {"unsent_bytes_max": 9_999},
    ],
)
def test_limits_that_would_let_nobody_in_are_refused_by_name(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        UdpLimits(**wrong)
    assert UdpLimits(total_per_s=0, total_burst=0).total_per_s == 0
