"""Open sessions: what is taken in them and what not, how they go on, and how they end (M11, M12, M13)."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL
from milepost.broker.limits import SlowPolicy
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToEndpoint
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reasons import Reason
from milepost.model.sessions import Close, CloseCause, Heartbeat, Publish, Received, ReportSent
from milepost.trust.certificates import revoke
from milepost.wire.datagrams import encode
from simulation.invariants import check_door
from udp_edge_in_memory import AUTHORITY_KEY, HOME, UdpEdge, Vehicle

NORTH = Place(HOME.latitude + 0.0005, HOME.longitude)
HOUR_NS = 3_600 * SECOND_NS


def causes(vehicle: Vehicle) -> list[CloseCause]:
    return [one.cause for one in vehicle.take(Close)]


def test_a_datagram_that_comes_again_changes_nothing() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    letter = vehicle.letter(Publish(vehicle.message("t")))
    thief = Vehicle(edge, "thief")
    edge.hear(letter)
    for address in (vehicle.address, thief.address):
        edge.hear((letter[0], address))
    assert edge.broker.counts.accepted == 1
    assert edge.broker.counts.refused == {Reason.REPLAYED: 2}
    vehicle.publish(vehicle.message("t", to=ToEndpoint(vehicle.name)))
    assert (len(vehicle.messages()), thief.taken_raw()) == (1, []), "who has only heard a datagram does not become its sender"


@pytest.mark.parametrize("at", [9, 16, 17, 40, -1])
def test_a_datagram_changed_on_its_way_changes_nothing(at: int) -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    data, address = vehicle.letter(Publish(vehicle.message("t")))
    changed = bytearray(data)
    changed[at] ^= 0x10
    edge.hear((bytes(changed), Vehicle(edge, "thief").address))
    assert edge.broker.counts.accepted == 0
    assert edge.broker.counts.refused == {Reason.SEAL_BROKEN: 1}
    edge.hear((data, address))
    assert edge.broker.counts.accepted == 1, "the right one still counts"


def test_a_datagram_cut_anywhere_changes_nothing(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    data, address = vehicle.letter(Publish(vehicle.message("t", b"body")))
    for size in range(len(data)):
        edge.hear((data[:size], address))
    assert edge.broker.counts.accepted == 0
    assert len(edge.udp.session_table) == 1


def test_counters_may_come_out_of_order_within_the_window_and_each_once() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    letters = [vehicle.letter(Heartbeat(vehicle.token)) for _ in range(300)]
    edge.hear(letters[299])
    edge.hear(*letters[44:299])
    assert not edge.broker.counts.refused
    edge.hear(*letters)
    assert edge.broker.counts.refused == {Reason.REPLAYED: 300}


def test_a_datagram_with_another_token_inside_counts_for_nobody(edge: UdpEdge) -> None:
    a, b = edge.vehicle("a"), edge.vehicle("b")
    edge.hear((a.sealed(encode(Publish(a.message("t"), b.token))), a.address))
    if edge.identity is not None:
        assert edge.broker.counts.refused == {Reason.SESSION_UNKNOWN: 1}
    else:
        assert edge.broker.counts.refused == {Reason.SOURCE_FORGED: 1}
    assert edge.broker.counts.accepted == 0


def test_an_endpoint_is_answered_where_it_last_spoke_from(edge: UdpEdge) -> None:
    # M13
    vehicle = edge.vehicle("a")
    sender = edge.vehicle("b")
    old = vehicle.address
    sender.publish(sender.message("t", b"1", to=ToEndpoint(vehicle.name), reliable=True))
    vehicle.taken_raw()
    vehicle.move_network()
    vehicle.report()
    sent_to_old = len(edge.post.sent[old])
    edge.pass_time(0.3)
    assert vehicle.bodies() == [b"1"], "what was on its way is repeated to the new address"
    assert len(edge.post.sent[old]) == sent_to_old
    assert "address changed" in edge.log.events


def test_of_several_addresses_in_one_batch_the_last_one_counts(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    addresses = []
    letters = []
    for value in (Publish(vehicle.message("t")), ReportSent(vehicle.token, vehicle.report_of(seen_at=edge.now + 1))):
        vehicle.move_network()
        addresses.append(vehicle.address)
        letters.append(vehicle.letter(value))
    edge.hear(*letters)
    vehicle.edge.now = Instant(edge.now + 2)
    edge.udp.sender.tell(next(iter(edge.udp.session_table)), Heartbeat(vehicle.token), edge.beat)
    edge.settle()
    assert [len(edge.post.sent[address]) for address in addresses] == [0, 1]


def test_three_intervals_of_silence_end_a_session(edge: UdpEdge) -> None:
    # M12
    silent, alive = edge.vehicle("a"), edge.vehicle("b")
    silent.taken_raw()
    edge.step(3, alive=[alive])
    assert len(edge.udp.session_table) == 2
    edge.step(0.5, alive=[alive])
    assert causes(silent) == [CloseCause.SILENT]
    assert [link.session.name for link in edge.udp.session_table] == ["b"]
    silent.report()
    assert len(edge.udp.session_table) == 1


def test_a_report_that_waits_for_others_is_a_sign_of_life(edge: UdpEdge) -> None:
    # M11
    gathering = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(gather_ns=SECOND_NS // 10))
    vehicle = gathering.vehicle("a")
    gathering.pass_time(0.2)
    gathering.pass_time(2.9)
    vehicle.report()
    gathering.beat += SECOND_NS // 5
    gathering.settling.tick(gathering.now)
    gathering.settle()
    assert len(gathering.udp.session_table) == 1


def test_anything_that_is_authentic_is_a_sign_of_life_and_nothing_else_is() -> None:
    edge = UdpEdge()
    alive, forged = edge.vehicle("a"), edge.vehicle("b")
    data, address = forged.letter(Heartbeat(forged.token))
    for _ in range(8):
        edge.pass_time(0.5)
        alive.say(Heartbeat(alive.token))
        edge.hear((data[:-1] + bytes((data[-1] ^ 1,)), address))
    assert [link.session.name for link in edge.udp.session_table] == ["a"]


@pytest.mark.parametrize("hours", [-30, -1, 1, 30])
def test_setting_the_clock_ends_no_session(edge: UdpEdge, hours: int) -> None:
    vehicle = edge.vehicle("a")
    edge.now = Instant(edge.now + hours * HOUR_NS)
    for _ in range(20):
        edge.pass_time(0.5)
        vehicle.say(Heartbeat(vehicle.token))
    assert len(edge.udp.session_table) == 1
    assert causes(vehicle) == []


def test_after_all_clocks_were_set_back_reports_are_believed_at_once(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    edge.now = Instant(edge.now - HOUR_NS)
    vehicle.report(NORTH)
    assert edge.broker.place_of(edge.session("a")) == NORTH
    vehicle.say(ReportSent(vehicle.token, vehicle.report_of(seen_at=edge.now - 1)))
    assert edge.broker.counts.refused == {Reason.REPORT_OUT_OF_ORDER: 1}


def test_while_only_the_edge_s_clock_is_wrong_reports_are_refused_and_afterwards_taken(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    right = edge.now
    for offset_ns, reason in ((HOUR_NS, Reason.CLOCK_BEHIND), (-HOUR_NS, Reason.CLOCK_AHEAD)):
        edge.now = Instant(right + offset_ns)
        vehicle.say(ReportSent(vehicle.token, vehicle.report_of(seen_at=right + 5)))
        assert edge.broker.counts.refused[reason] == 1
        edge.pass_time(1)
    edge.now = Instant(right + 10)
    vehicle.report(NORTH)
    assert edge.broker.place_of(edge.session("a")) == NORTH


def test_the_edge_says_that_it_is_alive_to_who_heard_nothing_for_three_intervals(edge: UdpEdge) -> None:
    # M11
    quiet, told = edge.vehicle("a"), edge.vehicle("b")
    for vehicle in (quiet, told):
        vehicle.taken_raw()
    for number in range(12):
        edge.step(0.5, alive=[quiet, told])
        if number % 4 == 0:
            told.publish(told.message("t", reliable=True))
    assert [type(one) for one in quiet.taken()] == [Heartbeat, Heartbeat]
    assert {type(one) for one in told.taken()} == {Received}


def test_who_leaves_is_heard_out_and_gone_whatever_else_comes_with_it(edge: UdpEdge) -> None:
    vehicle, other = edge.vehicle("a"), edge.vehicle("b")
    message = Publish(vehicle.message("t", b"last", to=ToEndpoint(other.name)))
    vehicle.taken_raw()
    of_another = ReportSent(vehicle.token, replace(vehicle.report_of(), endpoint=other.name))
    words = [vehicle.letter(value) for value in (message, Close(vehicle.token), of_another)]
    edge.hear(vehicle.report_letter(), *words, vehicle.report_letter())
    assert other.bodies() == [b"last"]
    assert not vehicle.take(Close)
    assert edge.broker.sessions.maybe("a") is None
    check_door(edge)


def test_revocation_ends_the_sessions_of_the_certificate_and_no_others() -> None:
    edge = UdpEdge()
    assert edge.identity is not None
    revoked, other = edge.vehicle("a", serial=8), edge.vehicle("b", serial=9)
    edge.identity.authority.use(revoke(AUTHORITY_KEY, None, [8], edge.now))
    assert edge.udp.expel_revoked(edge.now) == 1
    edge.settle()
    assert causes(revoked) == [CloseCause.EXPELLED]
    assert causes(other) == []
    assert [link.session.name for link in edge.udp.session_table] == ["b"]
    assert edge.broker.counts.refused[Reason.CERTIFICATE_REVOKED] == 1


def test_who_is_expelled_for_being_slow_is_told_and_gone() -> None:
    edge = UdpEdge(limits=replace(SMALL, queue_messages_max=1, in_flight_max=1, when_slow=SlowPolicy.DISCONNECT))
    slow, sender = edge.vehicle("a"), edge.vehicle("b")
    for _ in range(4):
        sender.publish(sender.message("t", to=ToEndpoint(slow.name), reliable=True))
    assert causes(slow) == [CloseCause.EXPELLED]
    assert edge.broker.sessions.maybe("a") is None
    check_door(edge)


def test_an_edge_that_stops_says_so_to_all(edge: UdpEdge) -> None:
    vehicles = [edge.vehicle(name) for name in "abc"]
    edge.udp.shut(edge.now)
    edge.settle()
    assert [causes(vehicle) for vehicle in vehicles] == [[CloseCause.STOPPING]] * 3
    check_door(edge)
