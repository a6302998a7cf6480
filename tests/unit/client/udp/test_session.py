"""A session as a whole: opening, renewing, losing its edge, ending (M10, M11)."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from milepost.client.errors import RefusedByEdge
from milepost.client.events import Connected, Ended, Lost, ReportRefused
from milepost.client.udp.session import UdpPhase, UdpSession
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.session_datagrams import Close, CloseCause, Heartbeat, Init, ReportSent, SessionToken, refusal_of
from milepost.trust.noise import public_of
from milepost.wire.datagrams import encode
from unit.client.udp.scripted_edge import CAR_KEY, EDGE_KEY, KEYS_NS, NOISE_CREDENTIALS, NOW, SessionHarness, message, report_at

BOTH = pytest.mark.parametrize("is_sealed", [True, False])


def reports(harness: SessionHarness) -> list[ReportSent]:
    return [one for one in harness.edge.received if isinstance(one, ReportSent)]


def inits(harness: SessionHarness) -> list[Init]:
    return [one for one in harness.edge.received if isinstance(one, Init)]


@BOTH
def test_a_session_opens_and_reports_at_once(is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed).start()
    assert harness.session.phase is UdpPhase.OPEN
    assert harness.events == [Connected(is_resumed=False, edge="edge-1")]
    init, first = harness.edge.received
    assert isinstance(init, Init)
    assert isinstance(first, ReportSent)
    assert (init.former, first.report.place) == (None, init.report.place)
    assert first.report.seen_at > init.report.seen_at


@BOTH
def test_a_session_that_leaves_its_edge_closes_there_and_does_not_resume(is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed).start()
    harness.session.leave_edge("revoked", NOW)
    harness.session.leave_edge("revoked", NOW)
    assert harness.session.phase is UdpPhase.RECONNECTING
    assert harness.session.take_events() == [Lost("revoked")]
    assert len(harness.session.take_outgoing()) == 1, "CLOSE"
    harness.session.switch_edge(public_of(EDGE_KEY), NOW)
    harness.exchange()
    assert inits(harness)[-1].former is None


def test_before_start_no_timer_is_set_and_nothing_is_sent() -> None:
    session = SessionHarness().session
    session.on_tick(NOW)
    session.publish(message(1), NOW)
    assert (session.next_at, session.take_outgoing()) == (FOREVER, [])


@BOTH
def test_an_init_is_repeated_byte_for_byte_and_then_rebuilt(is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed)
    harness.session.start(report_at(NOW), NOW)
    sent = [(NOW, harness.session.take_outgoing())]
    for _ in range(8):
        at = harness.session.next_at
        harness.session.on_tick(at)
        sent.append((at, harness.session.take_outgoing()))
    datagrams = [data for _, (data,) in sent]
    assert len(set(datagrams[:4])) == len(set(datagrams[4:8])) == 1
    assert len(set(datagrams)) == 3
    waits = [(later - sooner) / SECOND_NS for (sooner, _), (later, _) in pairwise(sent)]
    for wait, most in zip(waits, [0.25, 0.5, 1, 2, 4, 4, 4, 4], strict=True):
        assert 0.75 * most <= wait <= most


def test_two_answers_to_a_repeated_init_open_one_session() -> None:
    harness = SessionHarness()
    harness.session.start(report_at(NOW), NOW)
    (init,) = harness.session.take_outgoing()
    (answer,) = harness.edge.on_datagram(init, NOW)
    harness.receive(answer, answer)
    assert (harness.session.phase, harness.session.invalid_datagrams, len(harness.events)) == (UdpPhase.OPEN, 1, 1)


def test_under_load_the_same_init_is_resent_with_the_cookie() -> None:
    harness = SessionHarness()
    harness.edge.requires_cookie = True
    harness.start()
    assert harness.session.phase is UdpPhase.OPEN
    first, second = harness.edge.inits
    assert (first[:-16], first[-16:]) == (second[:-16], bytes(16))
    assert second[-16:] != bytes(16)


def test_a_cookie_is_valid_for_two_minutes_and_a_duplicate_has_no_effect() -> None:
    harness = SessionHarness()
    harness.edge.requires_cookie = True
    harness.session.start(report_at(NOW), NOW)
    (init,) = harness.session.take_outgoing()
    (cookie,) = harness.edge.on_datagram(init, NOW)
    harness.session.on_datagram(cookie, NOW)
    (with_cookie,) = harness.session.take_outgoing()
    for _ in range(3):
        harness.session.on_datagram(cookie, NOW)
    assert harness.session.take_outgoing() == []
    harness.session.on_tick(harness.session.next_at)
    assert harness.session.take_outgoing() == [with_cookie]
    harness.session.on_tick(Instant(NOW + 121 * SECOND_NS))
    (later,) = harness.session.take_outgoing()
    assert later[-16:] == bytes(16)


def test_a_cookie_for_another_init_is_rejected() -> None:
    one, other = SessionHarness(), SessionHarness()
    for harness in (one, other):
        harness.edge.requires_cookie = True
    one.session.start(report_at(NOW), NOW)
    other.session.start(report_at(Instant(NOW + 1)), Instant(NOW + 1))
    (init,) = other.session.take_outgoing()
    one.session.take_outgoing()
    one.session.on_datagram(other.edge.on_datagram(init, NOW)[0], NOW)
    assert (one.session.take_outgoing(), one.session.invalid_datagrams) == ([], 1)


@BOTH
def test_a_stationary_vehicle_repeats_its_report_every_interval(is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed, keys_ns=None).start()
    harness.receive(harness.edge.heartbeat())
    harness.wait(5.5)
    sent = reports(harness)
    assert {one.report.place for one in sent} == {sent[0].report.place}
    times = [one.report.seen_at for one in sent]
    assert times == sorted(set(times))
    assert max(later - sooner for sooner, later in pairwise(times)) <= SECOND_NS
    assert len(sent) <= 9


def test_a_heartbeat_is_sent_between_two_reports() -> None:
    harness = SessionHarness(keys_ns=None).start()
    harness.run_with_heartbeats(2)
    before = len(harness.edge.of(Heartbeat)), len(harness.edge.of(ReportSent))
    harness.run_with_heartbeats(4)
    assert (len(harness.edge.of(Heartbeat)), len(harness.edge.of(ReportSent))) == (before[0] + 4, before[1] + 4)


def test_until_the_edge_answers_reports_are_repeated_sooner() -> None:
    harness = SessionHarness(keys_ns=None)
    harness.edge.interval_ns = 60 * SECOND_NS
    harness.start()
    harness.wait(5)
    assert 4 <= len(reports(harness)) <= 7
    harness.receive(harness.edge.heartbeat())
    before = len(reports(harness))
    harness.wait(100)
    assert len(reports(harness)) - before <= 3


def test_a_new_report_is_sent_at_once_and_repeated_from_then_on() -> None:
    harness = SessionHarness().start()
    harness.now = Instant(NOW + SECOND_NS // 2)
    moved = Place(48.2, 11.6)
    harness.session.report(report_at(harness.now, moved), harness.now)
    harness.exchange()
    assert reports(harness)[-1].report == report_at(harness.now, moved)
    harness.wait(1.5)
    assert reports(harness)[-1].report.place == moved
    assert reports(harness)[-1].report.seen_at > NOW + SECOND_NS


def test_a_report_older_than_the_last_repeat_is_sent_with_a_later_time() -> None:
    harness = SessionHarness().start()
    harness.session.report(report_at(Instant(NOW - SECOND_NS), Place(1, 2)), harness.now)
    harness.exchange()
    assert reports(harness)[-1].report.seen_at > reports(harness)[-2].report.seen_at


def test_a_report_from_the_future_does_not_shift_later_reports() -> None:
    harness = SessionHarness().start()
    harness.session.report(report_at(Instant(NOW + 3_600 * SECOND_NS)), harness.now)
    harness.wait(2)
    assert reports(harness)[-1].report.seen_at <= harness.now


def test_keys_are_renewed_before_they_expire_without_an_event() -> None:
    harness = SessionHarness().start()
    harness.run_with_heartbeats(50)
    assert [type(event) for event in harness.events] == [Connected]
    first, second = inits(harness)
    assert (first.former, second.former) == (None, SessionToken(1_000))
    assert 0.6 * KEYS_NS < second.report.seen_at - NOW < 0.7 * KEYS_NS
    assert {one.session for one in reports(harness)[-3:]} == {SessionToken(1_001)}


def test_datagrams_with_the_previous_token_are_accepted_for_ten_seconds() -> None:
    harness = SessionHarness().start()
    harness.run_with_heartbeats(41)
    assert harness.edge.token == 1_001
    late = [harness.edge.datagram_of(refusal_of(Refused(Reason.CLOCK_AHEAD)), 1_000) for _ in range(2)]
    assert [type(event) for event in harness.receive(late[0])] == [ReportRefused]
    harness.run_with_heartbeats(11)
    broken = harness.session.invalid_datagrams
    assert harness.receive(late[1]) == []
    assert harness.session.invalid_datagrams == broken + 1


def test_an_unanswered_renewal_loses_the_session_when_the_keys_expire() -> None:
    harness = SessionHarness().start()
    harness.run_with_heartbeats(39)
    harness.is_disconnected = True
    harness.run_with_heartbeats(22)
    assert any(isinstance(event, Lost) and "keys" in event.reason for event in harness.events)
    assert harness.session.phase is UdpPhase.RECONNECTING


@BOTH
def test_a_silent_edge_is_lost_after_nine_intervals_and_the_session_is_resumed(is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed).start()
    harness.is_disconnected = True
    assert harness.wait(8.9) == []
    (away,) = harness.wait(0.2)
    assert isinstance(away, Lost)
    assert harness.session.phase is UdpPhase.RECONNECTING
    harness.is_disconnected = False
    (back,) = harness.wait(5)
    assert isinstance(back, Connected)
    assert back.is_resumed
    assert inits(harness)[-1].former == SessionToken(1_000)


@BOTH
def test_a_valid_reset_causes_an_init_at_once_without_a_previous_token(is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed).start()
    harness.wait(6)
    reset = harness.edge.reset()
    harness.edge.forget()
    assert [type(event) for event in harness.receive(reset)] == [Lost]
    assert [type(event) for event in harness.wait(0)] == [Connected]
    assert inits(harness)[-1].former is None


@BOTH
def test_an_invalid_reset_changes_nothing(is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed).start()
    assert harness.receive(harness.edge.reset(is_valid=False), b"\x05", b"\x05" + bytes(24)) == []
    assert (harness.session.phase, harness.session.invalid_datagrams) == (UdpPhase.OPEN, 3)


def test_repeated_resets_are_answered_with_back_off() -> None:
    harness = SessionHarness().start()
    for _ in range(100):
        harness.receive(harness.edge.reset())
        harness.wait(max(0, harness.session.next_at - harness.now) / SECOND_NS)
        if harness.now > NOW + 60 * SECOND_NS:
            break
    assert len(inits(harness)) < 40


@pytest.mark.parametrize("cause", [CloseCause.SILENT, CloseCause.STOPPING, CloseCause.MOVED, CloseCause.DONE])
def test_after_close_a_new_session_is_requested_after_a_wait(cause: CloseCause) -> None:
    harness = SessionHarness().start()
    harness.wait(6)
    assert [type(event) for event in harness.receive(harness.edge.close_datagram(cause))] == [Lost]
    assert harness.session.next_at > harness.now
    assert [type(event) for event in harness.wait(0.3)] == [Connected]
    assert inits(harness)[-1].former is None


@pytest.mark.parametrize(
    ("cause", "reason"), [(CloseCause.EXPELLED, Reason.NOT_ALLOWED), (CloseCause.REPLACED, Reason.SESSION_TAKEN_OVER)]
)
def test_an_expelled_or_replaced_endpoint_does_not_reconnect(cause: CloseCause, reason: Reason) -> None:
    harness = SessionHarness().start()
    (ended,) = harness.receive(harness.edge.close_datagram(cause))
    assert isinstance(ended, Ended)
    assert isinstance(ended.fault, RefusedByEdge)
    assert ended.fault.number == reason
    assert (harness.session.phase, harness.session.next_at, harness.wait(60)) == (UdpPhase.CLOSED, FOREVER, [])


@pytest.mark.parametrize(("reason", "is_final"), [(Reason.HANDSHAKES_FULL, False), (Reason.OUTSIDE_COVERAGE, True)])
def test_a_refused_init_is_repeated_only_for_transient_reasons(reason: Reason, is_final: bool) -> None:
    harness = SessionHarness(is_sealed=False)
    harness.session.start(report_at(NOW), NOW)
    harness.session.on_datagram(encode(refusal_of(Refused(reason))), NOW)
    assert harness.session.phase is (UdpPhase.CLOSED if is_final else UdpPhase.OPENING)
    assert [type(event) for event in harness.session.take_events()] == [Ended if is_final else ReportRefused]


def test_a_refused_report_is_an_event_unless_it_was_out_of_order() -> None:
    harness = SessionHarness().start()
    harness.edge.refuses[ReportSent] = Refused(Reason.MOVE_TELEPORT, "too far")
    (complained,) = harness.wait(0.4)
    assert isinstance(complained, ReportRefused)
    assert (complained.refused.number, complained.refused.detail) == (Reason.MOVE_TELEPORT, "too far")
    harness.edge.refuses[ReportSent] = Refused(Reason.REPORT_OUT_OF_ORDER)
    assert harness.wait(3) == []


def test_close_is_sent_once_and_nothing_after_it() -> None:
    harness = SessionHarness().start()
    harness.session.close(harness.now)
    harness.session.close(harness.now)
    assert harness.exchange() == [Ended(None)]
    assert [type(one) for one in harness.edge.received[-1:]] == [Close]
    harness.session.publish(message(1), harness.now)
    harness.session.report(report_at(harness.now), harness.now)
    harness.session.start(report_at(harness.now), harness.now)
    harness.session.on_tick(harness.now)
    assert (harness.session.take_outgoing(), harness.session.take_events()) == ([], [])


def test_replayed_and_altered_datagrams_change_nothing() -> None:
    harness = SessionHarness().start()
    data = harness.edge.datagram_of(refusal_of(Refused(Reason.CLOCK_AHEAD)))
    changed = data[:-1] + bytes([data[-1] ^ 1])
    assert len(harness.receive(changed)) == 0
    assert len(harness.receive(data, data, data)) == 1
    assert harness.session.invalid_datagrams == 3


def test_a_forged_datagram_does_not_extend_the_session() -> None:
    harness = SessionHarness().start()
    harness.is_disconnected = True
    for _ in range(9):
        harness.receive(b"\x04" + bytes(60), harness.edge.reset(is_valid=False))
        harness.wait(1)
    assert harness.session.phase is UdpPhase.RECONNECTING


def test_a_value_too_large_for_a_datagram_is_refused_before_it_is_sent() -> None:
    harness = SessionHarness()
    with pytest.raises(Malformed) as fault:
        harness.session.publish(message(1, body=bytes(64_000)), NOW)
    assert fault.value.reason is Reason.MESSAGE_TOO_LARGE
    harness.start()
    harness.session.publish(message(2, body=bytes(63_900)), NOW)
    harness.exchange()
    assert harness.edge.names() == [("car-1", 2)]


def test_a_datagram_with_another_token_is_rejected() -> None:
    harness = SessionHarness(is_sealed=False).start()
    harness.receive(encode(refusal_of(Refused(Reason.CLOCK_AHEAD), session=SessionToken(5))))
    assert (len(harness.events), harness.session.invalid_datagrams) == (1, 1)


def test_the_reporting_rate_is_limited_to_fifty_per_second() -> None:
    harness = SessionHarness(keys_ns=None)
    harness.edge.interval_ns = 1
    harness.start()
    harness.receive(harness.edge.heartbeat())
    before = len(reports(harness))
    assert harness.wait(0.1) == []
    assert 4 <= len(reports(harness)) - before <= 6


@BOTH
def test_the_session_can_switch_to_another_edge_while_disconnected(is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed)
    if is_sealed:
        other = replace(harness.session.setup, credentials=replace(NOISE_CREDENTIALS, edge_key=public_of(CAR_KEY)))
        harness.session = UdpSession(other, Random(1).randbytes)
    harness.is_disconnected = True
    harness.start()
    harness.is_disconnected = False
    harness.session.switch_edge(public_of(EDGE_KEY), harness.now)
    harness.session.on_tick(harness.now)
    harness.exchange()
    assert harness.session.phase is UdpPhase.OPEN
    harness.session.switch_edge(public_of(CAR_KEY), harness.now)
    harness.run_with_heartbeats(3)
    assert harness.session.phase is UdpPhase.OPEN


def test_each_init_has_a_later_time_even_if_the_clock_stands_still() -> None:
    harness = SessionHarness()
    harness.session.start(report_at(NOW), NOW)
    (lost,) = harness.session.take_outgoing()
    harness.edge.on_datagram(lost, NOW)
    harness.session.switch_edge(public_of(EDGE_KEY), NOW)
    harness.session.on_tick(NOW)
    harness.exchange()
    assert harness.session.phase is UdpPhase.OPEN


def test_a_renewal_resends_only_what_is_due() -> None:
    harness = SessionHarness().start()
    harness.run_with_heartbeats(39)
    harness.wait(0.9)
    harness.session.publish(message(1, now=harness.now), harness.now)
    harness.session.take_outgoing()
    harness.wait(0.12)
    assert (harness.edge.token, harness.edge.names()) == (1_001, [])
    harness.wait(0.3)
    assert harness.edge.names() == [("car-1", 1)]
