"""A session as a whole: opening, renewing, losing its edge, ending (M10, M11)."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from milepost.client.errors import RefusedByEdge
from milepost.client.events import Connected, Ended, Lost, ReportRefused
from milepost.client.udp.session import Phase, UdpSession
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.sessions import Close, CloseCause, Heartbeat, Init, ReportSent, SessionToken, refusal_of
from milepost.trust.noise import public_of
from milepost.wire.datagrams import encode
from unit.client.udp.scripted_edge import CAR_KEY, EDGE_KEY, KEYS_NS, NOW, TRUST, Talk, message, report_at

BOTH = pytest.mark.parametrize("is_sealed", [True, False])


def reports(talk: Talk) -> list[ReportSent]:
    return [one for one in talk.edge.heard if isinstance(one, ReportSent)]


def inits(talk: Talk) -> list[Init]:
    return [one for one in talk.edge.heard if isinstance(one, Init)]


@BOTH
def test_a_session_opens_and_says_where_it_is_at_once(is_sealed: bool) -> None:
    talk = Talk(is_sealed=is_sealed).start()
    assert talk.session.phase is Phase.OPEN
    assert talk.events == [Connected(is_resumed=False, edge="edge-1")]
    init, first = talk.edge.heard
    assert isinstance(init, Init)
    assert isinstance(first, ReportSent)
    assert (init.former, first.report.place) == (None, init.report.place)
    assert first.report.seen_at > init.report.seen_at


def test_before_it_is_started_nothing_is_wanted_and_nothing_is_sent() -> None:
    session = Talk().session
    session.on_tick(NOW)
    session.publish(message(1), NOW)
    assert (session.next_at, session.take_outgoing()) == (FOREVER, [])


@BOTH
def test_an_init_is_repeated_byte_by_byte_and_then_made_anew(is_sealed: bool) -> None:
    talk = Talk(is_sealed=is_sealed)
    talk.session.start(report_at(NOW), NOW)
    sent = [(NOW, talk.session.take_outgoing())]
    for _ in range(8):
        at = talk.session.next_at
        talk.session.on_tick(at)
        sent.append((at, talk.session.take_outgoing()))
    datagrams = [data for _, (data,) in sent]
    assert len(set(datagrams[:4])) == len(set(datagrams[4:8])) == 1
    assert len(set(datagrams)) == 3
    waits = [(later - sooner) / SECOND_NS for (sooner, _), (later, _) in pairwise(sent)]
    for wait, most in zip(waits, [0.25, 0.5, 1, 2, 4, 4, 4, 4], strict=True):
        assert 0.75 * most <= wait <= most


def test_an_answer_to_a_repeat_opens_one_session() -> None:
    talk = Talk()
    talk.session.start(report_at(NOW), NOW)
    (init,) = talk.session.take_outgoing()
    (answer,) = talk.edge.on_datagram(init, NOW)
    talk.hear(answer, answer)
    assert (talk.session.phase, talk.session.broken, len(talk.events)) == (Phase.OPEN, 1, 1)


def test_an_edge_under_load_is_shown_its_cookie_with_the_same_init() -> None:
    talk = Talk()
    talk.edge.asks_for_cookie = True
    talk.start()
    assert talk.session.phase is Phase.OPEN
    first, second = talk.edge.inits
    assert (first[:-16], first[-16:]) == (second[:-16], bytes(16))
    assert second[-16:] != bytes(16)


def test_a_cookie_is_used_for_two_minutes_and_a_copy_of_it_causes_nothing() -> None:
    talk = Talk()
    talk.edge.asks_for_cookie = True
    talk.session.start(report_at(NOW), NOW)
    (init,) = talk.session.take_outgoing()
    (cookie,) = talk.edge.on_datagram(init, NOW)
    talk.session.on_datagram(cookie, NOW)
    (with_cookie,) = talk.session.take_outgoing()
    for _ in range(3):
        talk.session.on_datagram(cookie, NOW)
    assert talk.session.take_outgoing() == []
    talk.session.on_tick(talk.session.next_at)
    assert talk.session.take_outgoing() == [with_cookie]
    talk.session.on_tick(Instant(NOW + 121 * SECOND_NS))
    (later,) = talk.session.take_outgoing()
    assert later[-16:] == bytes(16)


def test_a_cookie_for_another_init_is_not_believed() -> None:
    one, other = Talk(), Talk()
    for talk in (one, other):
        talk.edge.asks_for_cookie = True
    one.session.start(report_at(NOW), NOW)
    other.session.start(report_at(Instant(NOW + 1)), Instant(NOW + 1))
    (init,) = other.session.take_outgoing()
    one.session.take_outgoing()
    one.session.on_datagram(other.edge.on_datagram(init, NOW)[0], NOW)
    assert (one.session.take_outgoing(), one.session.broken) == ([], 1)


@BOTH
def test_a_standing_vehicle_reports_every_interval_from_the_same_place(is_sealed: bool) -> None:
    talk = Talk(is_sealed=is_sealed, keys_ns=None).start()
    talk.hear(talk.edge.heartbeat())
    talk.wait(5.5)
    said = reports(talk)
    assert {one.report.place for one in said} == {said[0].report.place}
    times = [one.report.seen_at for one in said]
    assert times == sorted(set(times))
    assert max(later - sooner for sooner, later in pairwise(times)) <= SECOND_NS
    assert len(said) <= 9


def test_between_two_reports_the_edge_hears_that_the_endpoint_lives() -> None:
    talk = Talk(keys_ns=None).start()
    talk.live(2)
    before = len(talk.edge.of(Heartbeat)), len(talk.edge.of(ReportSent))
    talk.live(4)
    assert (len(talk.edge.of(Heartbeat)), len(talk.edge.of(ReportSent))) == (before[0] + 4, before[1] + 4)


def test_until_the_edge_is_heard_reports_are_repeated_sooner() -> None:
    talk = Talk(keys_ns=None)
    talk.edge.interval_ns = 60 * SECOND_NS
    talk.start()
    talk.wait(5)
    assert 4 <= len(reports(talk)) <= 7
    talk.hear(talk.edge.heartbeat())
    before = len(reports(talk))
    talk.wait(100)
    assert len(reports(talk)) - before <= 3


def test_a_report_of_the_application_goes_out_at_once_and_is_what_is_repeated() -> None:
    talk = Talk().start()
    talk.now = Instant(NOW + SECOND_NS // 2)
    moved = Place(48.2, 11.6)
    talk.session.report(report_at(talk.now, moved), talk.now)
    talk.pass_on()
    assert reports(talk)[-1].report == report_at(talk.now, moved)
    talk.wait(1.5)
    assert reports(talk)[-1].report.place == moved
    assert reports(talk)[-1].report.seen_at > NOW + SECOND_NS


def test_a_report_from_before_the_last_repeat_is_said_after_it() -> None:
    talk = Talk().start()
    talk.session.report(report_at(Instant(NOW - SECOND_NS), Place(1, 2)), talk.now)
    talk.pass_on()
    assert reports(talk)[-1].report.seen_at > reports(talk)[-2].report.seen_at


def test_a_report_from_a_clock_far_ahead_does_not_pull_later_ones_along() -> None:
    talk = Talk().start()
    talk.session.report(report_at(Instant(NOW + 3_600 * SECOND_NS)), talk.now)
    talk.wait(2)
    assert reports(talk)[-1].report.seen_at <= talk.now


def test_keys_are_renewed_before_they_wear_out_and_nobody_notices() -> None:
    talk = Talk().start()
    talk.live(50)
    assert [type(event) for event in talk.events] == [Connected]
    first, second = inits(talk)
    assert (first.former, second.former) == (None, SessionToken(1_000))
    assert 0.6 * KEYS_NS < second.report.seen_at - NOW < 0.7 * KEYS_NS
    assert {one.session for one in reports(talk)[-3:]} == {SessionToken(1_001)}


def test_under_the_former_token_the_edge_is_heard_for_ten_seconds_more() -> None:
    talk = Talk().start()
    talk.live(41)
    assert talk.edge.token == 1_001
    late = [talk.edge.say(refusal_of(Refused(Reason.CLOCK_AHEAD)), 1_000) for _ in range(2)]
    assert [type(event) for event in talk.hear(late[0])] == [ReportRefused]
    talk.live(11)
    broken = talk.session.broken
    assert talk.hear(late[1]) == []
    assert talk.session.broken == broken + 1


def test_a_renewal_without_an_answer_ends_in_away_when_the_keys_are_worn_out() -> None:
    talk = Talk().start()
    talk.live(39)
    talk.is_cut = True
    talk.live(22)
    assert any(isinstance(event, Lost) and "keys" in event.why for event in talk.events)
    assert talk.session.phase is Phase.AWAY


@BOTH
def test_a_silent_edge_is_away_after_nine_intervals_and_asked_for_the_former_session(is_sealed: bool) -> None:
    talk = Talk(is_sealed=is_sealed).start()
    talk.is_cut = True
    assert talk.wait(8.9) == []
    (away,) = talk.wait(0.2)
    assert isinstance(away, Lost)
    assert talk.session.phase is Phase.AWAY
    talk.is_cut = False
    (back,) = talk.wait(5)
    assert isinstance(back, Connected)
    assert back.is_resumed
    assert inits(talk)[-1].former == SessionToken(1_000)


@BOTH
def test_a_right_reset_is_followed_by_init_at_once_and_without_former(is_sealed: bool) -> None:
    talk = Talk(is_sealed=is_sealed).start()
    talk.wait(6)
    reset = talk.edge.reset()
    talk.edge.forget()
    assert [type(event) for event in talk.hear(reset)] == [Lost]
    assert [type(event) for event in talk.wait(0)] == [Connected]
    assert inits(talk)[-1].former is None


@BOTH
def test_a_wrong_reset_changes_nothing(is_sealed: bool) -> None:
    talk = Talk(is_sealed=is_sealed).start()
    assert talk.hear(talk.edge.reset(is_right=False), b"\x05", b"\x05" + bytes(24)) == []
    assert (talk.session.phase, talk.session.broken) == (Phase.OPEN, 3)


def test_an_edge_that_resets_again_and_again_is_asked_less_and_less_often() -> None:
    talk = Talk().start()
    for _ in range(100):
        talk.hear(talk.edge.reset())
        talk.wait(max(0, talk.session.next_at - talk.now) / SECOND_NS)
        if talk.now > NOW + 60 * SECOND_NS:
            break
    assert len(inits(talk)) < 40


@pytest.mark.parametrize("cause", [CloseCause.SILENT, CloseCause.STOPPING, CloseCause.MOVED, CloseCause.DONE])
def test_an_edge_that_closes_is_asked_again_after_a_wait(cause: CloseCause) -> None:
    talk = Talk().start()
    talk.wait(6)
    assert [type(event) for event in talk.hear(talk.edge.closing(cause))] == [Lost]
    assert talk.session.next_at > talk.now
    assert [type(event) for event in talk.wait(0.3)] == [Connected]
    assert inits(talk)[-1].former is None


@pytest.mark.parametrize(
    ("cause", "reason"), [(CloseCause.EXPELLED, Reason.NOT_ALLOWED), (CloseCause.REPLACED, Reason.SESSION_TAKEN_OVER)]
)
def test_an_edge_that_will_not_have_us_back_is_the_end(cause: CloseCause, reason: Reason) -> None:
    talk = Talk().start()
    (ended,) = talk.hear(talk.edge.closing(cause))
    assert isinstance(ended, Ended)
    assert isinstance(ended.fault, RefusedByEdge)
    assert ended.fault.number == reason
    assert (talk.session.phase, talk.session.next_at, talk.wait(60)) == (Phase.CLOSED, FOREVER, [])


@pytest.mark.parametrize(("reason", "is_final"), [(Reason.HANDSHAKES_FULL, False), (Reason.OUTSIDE_COVERAGE, True)])
def test_an_init_that_is_refused_is_repeated_only_where_that_makes_sense(reason: Reason, is_final: bool) -> None:
    talk = Talk(is_sealed=False)
    talk.session.start(report_at(NOW), NOW)
    talk.session.on_datagram(encode(refusal_of(Refused(reason))), NOW)
    assert talk.session.phase is (Phase.CLOSED if is_final else Phase.OPENING)
    assert [type(event) for event in talk.session.take_events()] == [Ended if is_final else ReportRefused]


def test_a_refused_report_is_told_and_one_out_of_order_is_not() -> None:
    talk = Talk().start()
    talk.edge.refuses[ReportSent] = Refused(Reason.MOVE_TELEPORT, "too far")
    (complained,) = talk.wait(0.4)
    assert isinstance(complained, ReportRefused)
    assert (complained.refused.number, complained.refused.detail) == (Reason.MOVE_TELEPORT, "too far")
    talk.edge.refuses[ReportSent] = Refused(Reason.REPORT_OUT_OF_ORDER)
    assert talk.wait(3) == []


def test_a_goodbye_is_said_once_and_nothing_after_it() -> None:
    talk = Talk().start()
    talk.session.close(talk.now)
    talk.session.close(talk.now)
    assert talk.pass_on() == [Ended(None)]
    assert [type(one) for one in talk.edge.heard[-1:]] == [Close]
    talk.session.publish(message(1), talk.now)
    talk.session.report(report_at(talk.now), talk.now)
    talk.session.start(report_at(talk.now), talk.now)
    talk.session.on_tick(talk.now)
    assert (talk.session.take_outgoing(), talk.session.take_events()) == ([], [])


def test_a_copied_and_a_changed_datagram_change_nothing() -> None:
    talk = Talk().start()
    data = talk.edge.say(refusal_of(Refused(Reason.CLOCK_AHEAD)))
    changed = data[:-1] + bytes([data[-1] ^ 1])
    assert len(talk.hear(changed)) == 0
    assert len(talk.hear(data, data, data)) == 1
    assert talk.session.broken == 3


def test_a_forged_datagram_is_no_sign_of_life() -> None:
    talk = Talk().start()
    talk.is_cut = True
    for _ in range(9):
        talk.hear(b"\x04" + bytes(60), talk.edge.reset(is_right=False))
        talk.wait(1)
    assert talk.session.phase is Phase.AWAY


def test_what_does_not_fit_into_a_datagram_is_told_before_it_is_sent() -> None:
    talk = Talk()
    with pytest.raises(Malformed) as fault:
        talk.session.publish(message(1, body=bytes(64_000)), NOW)
    assert fault.value.reason is Reason.MESSAGE_TOO_LARGE
    talk.start()
    talk.session.publish(message(2, body=bytes(63_900)), NOW)
    talk.pass_on()
    assert talk.edge.names() == [("car-1", 2)]


def test_a_datagram_with_another_token_is_not_the_edges() -> None:
    talk = Talk(is_sealed=False).start()
    talk.hear(encode(refusal_of(Refused(Reason.CLOCK_AHEAD), session=SessionToken(5))))
    assert (len(talk.events), talk.session.broken) == (1, 1)


def test_an_edge_that_wants_reports_all_the_time_gets_fifty_a_second() -> None:
    talk = Talk(keys_ns=None)
    talk.edge.interval_ns = 1
    talk.start()
    talk.hear(talk.edge.heartbeat())
    before = len(reports(talk))
    assert talk.wait(0.1) == []
    assert 4 <= len(reports(talk)) - before <= 6


@BOTH
def test_another_edge_can_be_met_instead_of_one_that_does_not_answer(is_sealed: bool) -> None:
    talk = Talk(is_sealed=is_sealed)
    if is_sealed:
        other = replace(talk.session.setup, trust=replace(TRUST, edge_key=public_of(CAR_KEY)))
        talk.session = UdpSession(other, Random(1).randbytes)
    talk.is_cut = True
    talk.start()
    talk.is_cut = False
    talk.session.meet(public_of(EDGE_KEY), talk.now)
    talk.session.on_tick(talk.now)
    talk.pass_on()
    assert talk.session.phase is Phase.OPEN
    talk.session.meet(public_of(CAR_KEY), talk.now)
    talk.live(3)
    assert talk.session.phase is Phase.OPEN


def test_an_init_is_later_than_the_last_also_while_the_clock_stands_still() -> None:
    talk = Talk()
    talk.session.start(report_at(NOW), NOW)
    (lost,) = talk.session.take_outgoing()
    talk.edge.on_datagram(lost, NOW)
    talk.session.meet(public_of(EDGE_KEY), NOW)
    talk.session.on_tick(NOW)
    talk.pass_on()
    assert talk.session.phase is Phase.OPEN


def test_a_renewal_sends_nothing_again_that_is_not_due() -> None:
    talk = Talk().start()
    talk.live(39)
    talk.wait(0.9)
    talk.session.publish(message(1, now=talk.now), talk.now)
    talk.session.take_outgoing()
    talk.wait(0.12)
    assert (talk.edge.token, talk.edge.names()) == (1_001, [])
    talk.wait(0.3)
    assert talk.edge.names() == [("car-1", 1)]
