"""Open sessions: which datagrams are accepted, keepalive, address changes, and the end of a session (M11, M12, M13)."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL
from milepost.broker.limits import SlowPolicy
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToEndpoint
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reasons import Reason
from milepost.model.session_datagrams import Close, CloseCause, Heartbeat, PublishDatagram, ReceivedDatagram, ReportSent
from milepost.trust.certificates import revoke
from milepost.wire.datagrams import encode
from simulation.invariants import check_udp_listener
from udp_edge_in_memory import AUTHORITY_KEY, HOME, UdpEdge, Vehicle

NORTH = Place(HOME.latitude + 0.0005, HOME.longitude)
HOUR_NS = 3_600 * SECOND_NS


def causes(vehicle: Vehicle) -> list[CloseCause]:
    return [one.cause for one in vehicle.received_of(Close)]


def test_a_replayed_datagram_is_rejected() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    letter = vehicle.datagram_of(PublishDatagram(vehicle.message("t")))
    thief = Vehicle(edge, "thief")
    edge.receive(letter)
    for address in (vehicle.address, thief.address):
        edge.receive((letter[0], address))
    assert edge.broker.counts.accepted == 1
    assert edge.broker.counts.refused == {Reason.REPLAYED: 2}
    vehicle.publish(vehicle.message("t", to=ToEndpoint(vehicle.name)))
    assert (len(vehicle.messages()), thief.received_raw()) == (1, []), "a replayed datagram does not change the address"


@pytest.mark.parametrize("at", [9, 16, 17, 40, -1])
def test_a_modified_datagram_is_rejected(at: int) -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    data, address = vehicle.datagram_of(PublishDatagram(vehicle.message("t")))
    changed = bytearray(data)
    changed[at] ^= 0x10
    edge.receive((bytes(changed), Vehicle(edge, "thief").address))
    assert edge.broker.counts.accepted == 0
    assert edge.broker.counts.refused == {Reason.DECRYPTION_FAILED: 1}
    edge.receive((data, address))
    assert edge.broker.counts.accepted == 1, "the unmodified datagram is still accepted"


def test_a_truncated_datagram_is_rejected(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    data, address = vehicle.datagram_of(PublishDatagram(vehicle.message("t", b"body")))
    for size in range(len(data)):
        edge.receive((data[:size], address))
    assert edge.broker.counts.accepted == 0
    assert len(edge.udp.session_table) == 1


def test_counters_may_arrive_out_of_order_within_the_window_but_only_once() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    datagrams = [vehicle.datagram_of(Heartbeat(vehicle.token)) for _ in range(300)]
    edge.receive(datagrams[299])
    edge.receive(*datagrams[44:299])
    assert not edge.broker.counts.refused
    edge.receive(*datagrams)
    assert edge.broker.counts.refused == {Reason.REPLAYED: 300}


def test_a_datagram_with_the_token_of_another_session_inside_is_rejected(edge: UdpEdge) -> None:
    a, b = edge.vehicle("a"), edge.vehicle("b")
    edge.receive((a.sealed(encode(PublishDatagram(a.message("t"), b.token))), a.address))
    if edge.identity is not None:
        assert edge.broker.counts.refused == {Reason.SESSION_UNKNOWN: 1}
    else:
        assert edge.broker.counts.refused == {Reason.SOURCE_FORGED: 1}
    assert edge.broker.counts.accepted == 0


def test_replies_go_to_the_source_address_of_the_last_datagram(edge: UdpEdge) -> None:
    # M13
    vehicle = edge.vehicle("a")
    sender = edge.vehicle("b")
    old = vehicle.address
    sender.publish(sender.message("t", b"1", to=ToEndpoint(vehicle.name), reliable=True))
    vehicle.received_raw()
    vehicle.move_network()
    vehicle.report()
    sent_to_old = len(edge.output.sent[old])
    edge.pass_time(0.3)
    assert vehicle.bodies() == [b"1"], "the message in flight is repeated to the new address"
    assert len(edge.output.sent[old]) == sent_to_old
    assert "address changed" in edge.log.events


def test_the_last_of_several_source_addresses_in_one_batch_is_used(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    addresses = []
    datagrams = []
    for value in (PublishDatagram(vehicle.message("t")), ReportSent(vehicle.token, vehicle.report_of(seen_at=edge.now + 1))):
        vehicle.move_network()
        addresses.append(vehicle.address)
        datagrams.append(vehicle.datagram_of(value))
    edge.receive(*datagrams)
    vehicle.edge.now = Instant(edge.now + 2)
    edge.udp.sender.send_to(next(iter(edge.udp.session_table)), Heartbeat(vehicle.token), edge.monotonic_now)
    edge.run_ticks()
    assert [len(edge.output.sent[address]) for address in addresses] == [0, 1]


def test_three_intervals_of_silence_close_a_session(edge: UdpEdge) -> None:
    # M12
    silent, alive = edge.vehicle("a"), edge.vehicle("b")
    silent.received_raw()
    edge.step(3, alive=[alive])
    assert len(edge.udp.session_table) == 2
    edge.step(0.5, alive=[alive])
    assert causes(silent) == [CloseCause.SILENT]
    assert [connection.session.name for connection in edge.udp.session_table] == ["b"]
    silent.report()
    assert len(edge.udp.session_table) == 1


def test_a_report_that_waits_for_its_batch_counts_as_keepalive(edge: UdpEdge) -> None:
    # M11
    gathering = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(batch_wait_ns=SECOND_NS // 10))
    vehicle = gathering.vehicle("a")
    gathering.pass_time(0.2)
    gathering.pass_time(2.9)
    vehicle.report()
    gathering.monotonic_now += SECOND_NS // 5
    gathering.committer.on_timer(gathering.now)
    gathering.run_ticks()
    assert len(gathering.udp.session_table) == 1


def test_only_authentic_datagrams_count_as_keepalive() -> None:
    edge = UdpEdge()
    alive, forged = edge.vehicle("a"), edge.vehicle("b")
    data, address = forged.datagram_of(Heartbeat(forged.token))
    for _ in range(8):
        edge.pass_time(0.5)
        alive.send(Heartbeat(alive.token))
        edge.receive((data[:-1] + bytes((data[-1] ^ 1,)), address))
    assert [connection.session.name for connection in edge.udp.session_table] == ["a"]


@pytest.mark.parametrize("hours", [-30, -1, 1, 30])
def test_setting_the_clock_ends_no_session(edge: UdpEdge, hours: int) -> None:
    vehicle = edge.vehicle("a")
    edge.now = Instant(edge.now + hours * HOUR_NS)
    for _ in range(20):
        edge.pass_time(0.5)
        vehicle.send(Heartbeat(vehicle.token))
    assert len(edge.udp.session_table) == 1
    assert causes(vehicle) == []


def test_after_all_clocks_are_set_back_reports_are_accepted_at_once(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    edge.now = Instant(edge.now - HOUR_NS)
    vehicle.report(NORTH)
    assert edge.broker.place_of(edge.session("a")) == NORTH
    vehicle.send(ReportSent(vehicle.token, vehicle.report_of(seen_at=edge.now - 1)))
    assert edge.broker.counts.refused == {Reason.REPORT_OUT_OF_ORDER: 1}


def test_reports_are_refused_only_while_the_edge_s_clock_is_wrong(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    right = edge.now
    for offset_ns, reason in ((HOUR_NS, Reason.CLOCK_BEHIND), (-HOUR_NS, Reason.CLOCK_AHEAD)):
        edge.now = Instant(right + offset_ns)
        vehicle.send(ReportSent(vehicle.token, vehicle.report_of(seen_at=right + 5)))
        assert edge.broker.counts.refused[reason] == 1
        edge.pass_time(1)
    edge.now = Instant(right + 10)
    vehicle.report(NORTH)
    assert edge.broker.place_of(edge.session("a")) == NORTH


def test_the_edge_sends_a_heartbeat_after_three_intervals_without_output(edge: UdpEdge) -> None:
    # M11
    quiet, told = edge.vehicle("a"), edge.vehicle("b")
    for vehicle in (quiet, told):
        vehicle.received_raw()
    for number in range(12):
        edge.step(0.5, alive=[quiet, told])
        if number % 4 == 0:
            told.publish(told.message("t", reliable=True))
    assert [type(one) for one in quiet.received()] == [Heartbeat, Heartbeat]
    assert {type(one) for one in told.received()} == {ReceivedDatagram}


def test_close_is_handled_after_all_other_datagrams_of_its_batch(edge: UdpEdge) -> None:
    vehicle, other = edge.vehicle("a"), edge.vehicle("b")
    message = PublishDatagram(vehicle.message("t", b"last", to=ToEndpoint(other.name)))
    vehicle.received_raw()
    of_another = ReportSent(vehicle.token, replace(vehicle.report_of(), endpoint=other.name))
    words = [vehicle.datagram_of(value) for value in (message, Close(vehicle.token), of_another)]
    edge.receive(vehicle.report_datagram(), *words, vehicle.report_datagram())
    assert other.bodies() == [b"last"]
    assert not vehicle.received_of(Close)
    assert edge.broker.sessions.find("a") is None
    check_udp_listener(edge)


def test_revocation_drops_pending_sessions_of_the_certificate() -> None:
    edge = UdpEdge()
    assert edge.identity is not None
    pending = Vehicle(edge, "a", HOME, host="10.0.0.1", role="vehicle", serial=8)
    pending.accept(pending.send_init())
    edge.identity.certificate_authority.use(revoke(AUTHORITY_KEY, None, [8], edge.now))
    edge.udp.expel_revoked(edge.now)
    pending.report()
    assert edge.udp.pending == 0
    assert edge.broker.sessions.find("a") is None
    assert edge.broker.counts.refused[Reason.CERTIFICATE_REVOKED] == 1


def test_revocation_ends_the_sessions_of_the_certificate_and_no_others() -> None:
    edge = UdpEdge()
    assert edge.identity is not None
    revoked, other = edge.vehicle("a", serial=8), edge.vehicle("b", serial=9)
    edge.identity.certificate_authority.use(revoke(AUTHORITY_KEY, None, [8], edge.now))
    assert edge.udp.expel_revoked(edge.now) == 1
    edge.run_ticks()
    assert causes(revoked) == [CloseCause.EXPELLED]
    assert causes(other) == []
    assert [connection.session.name for connection in edge.udp.session_table] == ["b"]
    assert edge.broker.counts.refused[Reason.CERTIFICATE_REVOKED] == 1


def test_an_endpoint_expelled_for_being_slow_receives_close() -> None:
    edge = UdpEdge(limits=replace(SMALL, queue_messages_max=1, in_flight_max=1, slow_consumer=SlowPolicy.DISCONNECT))
    slow, sender = edge.vehicle("a"), edge.vehicle("b")
    for _ in range(4):
        sender.publish(sender.message("t", to=ToEndpoint(slow.name), reliable=True))
    assert causes(slow) == [CloseCause.EXPELLED]
    assert edge.broker.sessions.find("a") is None
    check_udp_listener(edge)


def test_a_stopping_edge_closes_every_session(edge: UdpEdge) -> None:
    vehicles = [edge.vehicle(name) for name in "abc"]
    edge.udp.shut_down(edge.now)
    edge.run_ticks()
    assert [causes(vehicle) for vehicle in vehicles] == [[CloseCause.STOPPING]] * 3
    check_udp_listener(edge)
