"""Messages and subscriptions both ways, over one session and over several (M16)."""

from dataclasses import replace

import pytest

from milepost.client.events import Arrival, Connected, Done, SubscriptionRefused, Suppressed, Suppression
from milepost.client.udp.mapping import received_from, subscription_of
from milepost.client.udp.outbound import WINDOW
from milepost.client.udp.subscriptions import ENDED_MAX, UdpSubscriptions
from milepost.client.values import SubscriptionRequest
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import parse_query
from milepost.model.reasons import Reason, Refused
from milepost.model.sessions import MessageName, Publish, Received, Subscribe, SubscriptionName, Unsubscribe
from milepost.model.subscriptions import Subscription, SubscriptionId
from unit.client.udp.scripted_edge import CAR, HERE, NOW, SIGNER, Talk, message, report_at

INSIDE, ELSEWHERE = ToArea(Circle(HERE, 500.0)), ToArea(Circle(Place(0, 0), 500.0))
ICE = Subscription(CAR, parse_query("ice"), id=SubscriptionId(5))
ICE_NAME = SubscriptionName(CAR, SubscriptionId(5))


def name_of(one: Message) -> MessageName:
    return MessageName(one.source, one.id)


def answers(talk: Talk) -> list[object]:
    return [one.name for one in talk.edge.heard if isinstance(one, Received)]


def shown(talk: Talk) -> list[int]:
    return [event.received.message.id for event in talk.events if isinstance(event, Arrival)]


def test_a_reliable_message_is_done_when_the_edge_has_it() -> None:
    talk = Talk().start()
    talk.session.publish(message(1), talk.now)
    assert talk.pass_on() == [Done(name_of(message(1)))]
    assert talk.wait(60) == [event for event in talk.events[2:] if not isinstance(event, Done)]
    assert talk.edge.names() == [(CAR, 1)]


def test_an_unreliable_message_is_done_when_it_was_sent_and_sent_once() -> None:
    talk = Talk().start()
    talk.is_cut = True
    talk.session.publish(message(1, reliable=False), talk.now)
    assert talk.pass_on() == [Done(name_of(message(1)))]
    talk.is_cut = False
    talk.wait(20)
    assert talk.edge.names() == []


def test_what_is_published_while_there_is_no_session_waits_for_one() -> None:
    talk = Talk()
    talk.session.publish(message(1), NOW)
    talk.session.publish(message(2, reliable=False), NOW)
    assert talk.session.take_events() == []
    talk.start()
    assert sorted(talk.edge.names()) == [(CAR, 1), (CAR, 2)]


def test_a_message_that_is_not_answered_is_repeated_with_longer_and_longer_waits_and_given_up() -> None:
    talk = Talk(keys_ns=None).start()
    talk.edge.interval_ns = 3_600 * SECOND_NS
    talk.session.publish(message(1), talk.now)
    talk.session.take_outgoing()
    sent = []
    while not (events := talk.session.take_events()):
        talk.now = talk.session.next_at
        talk.session.on_tick(talk.now)
        sent += [talk.now for data in talk.session.take_outgoing() if data[0] == 4 and len(data) > 100]
        talk.session.on_datagram(talk.edge.heartbeat(), talk.now)
    (done,) = [event for event in events if isinstance(event, Done)]
    assert done.refused is not None
    assert done.refused.number == Reason.UNANSWERED
    assert talk.edge.names() == []
    assert 45 * SECOND_NS < talk.now - NOW <= 70 * SECOND_NS


def test_a_message_is_not_repeated_after_its_validity() -> None:
    talk = Talk(keys_ns=None).start()
    talk.is_cut = True
    brief = replace(message(1), valid_until=Instant(NOW + 2 * SECOND_NS))
    talk.session.publish(brief, talk.now)
    (done,) = talk.wait(8)
    assert isinstance(done, Done)
    assert done.refused is not None
    assert done.refused.number == Reason.UNANSWERED


def test_a_message_whose_validity_ends_before_it_was_sent_is_expired() -> None:
    talk = Talk()
    talk.is_cut = True
    talk.start()
    talk.session.publish(replace(message(1), valid_until=Instant(NOW + 2 * SECOND_NS)), talk.now)
    (done,) = talk.wait(8)
    assert isinstance(done, Done)
    assert done.refused is not None
    assert done.refused.number == Reason.EXPIRED


def test_a_message_that_the_edge_refuses_is_done_with_its_reason() -> None:
    talk = Talk().start()
    talk.edge.refuses[Publish] = Refused(Reason.NOT_ALLOWED, "not yours")
    talk.session.publish(message(1), talk.now)
    (done,) = talk.pass_on()
    assert isinstance(done, Done)
    assert done.refused is not None
    assert (done.refused.name, done.refused.detail, done.refused.advice) == (
        "NOT_ALLOWED",
        "not yours",
        Reason.NOT_ALLOWED.advice,
    )


def test_what_was_not_answered_is_sent_again_in_a_new_session() -> None:
    talk = Talk().start()
    talk.wait(6)
    talk.is_cut = True
    talk.session.publish(message(1), talk.now)
    talk.pass_on()
    talk.is_cut = False
    reset = talk.edge.reset()
    talk.edge.forget()
    talk.hear(reset)
    talk.wait(0)
    assert talk.edge.names() == [(CAR, 1)]
    assert Done(name_of(message(1))) in talk.events


def test_more_than_may_wait_are_refused() -> None:
    talk = Talk()
    talk.session.setup = replace(talk.session.setup, waiting_max=1_000)
    for number in range(1, 1_002):
        talk.session.publish(message(number), NOW)
    (done,) = talk.session.take_events()
    assert isinstance(done, Done)
    assert done.refused is not None
    assert (done.key, done.refused.number) == (MessageName(CAR, MessageId(1_001)), Reason.QUEUE_FULL)


def test_no_more_than_a_window_is_in_flight_and_emergencies_come_first() -> None:
    talk = Talk().start()
    talk.is_cut = True
    for number in range(1, WINDOW + 6):
        talk.session.publish(message(number), talk.now)
    talk.session.publish(replace(message(999), priority=Priority.EMERGENCY), talk.now)
    assert len(talk.session.take_outgoing()) == WINDOW
    talk.is_cut = False
    talk.hear(talk.edge.say(Received(name_of(message(1)))))
    assert talk.edge.names()[0] == (CAR, 999)
    assert sorted(number for _, number in talk.edge.names()) == [*range(WINDOW + 1, WINDOW + 6), 999]


def test_what_is_withdrawn_before_it_was_sent_is_not_sent() -> None:
    talk = Talk()
    talk.session.publish(message(1), NOW)
    talk.session.publish(message(2), NOW)
    talk.session.withdraw(name_of(message(1)))
    talk.start()
    assert talk.edge.names() == [(CAR, 2)]


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_reliable_message_is_answered_when_it_was_taken_and_shown_once(is_sealed: bool) -> None:
    talk = Talk(is_sealed=is_sealed).start()
    one = message(1, source="car-2")
    (arrived,) = talk.hear(talk.edge.say(Publish(one, matches=(SubscriptionId(5),))))
    assert arrived == Arrival(received_from(one, talk.now, is_signed=False), (SubscriptionId(5),), name_of(one))
    assert talk.hear(talk.edge.say(Publish(one))) == []
    assert answers(talk) == []
    talk.session.acknowledge(name_of(one))
    talk.pass_on()
    assert answers(talk) == [name_of(one)]
    talk.session.acknowledge(name_of(one))
    assert talk.hear(talk.edge.say(Publish(one))) == []
    assert answers(talk) == [name_of(one)] * 2


def test_an_unreliable_message_is_shown_once_and_never_answered() -> None:
    talk = Talk().start()
    one = message(1, source="car-2", reliable=False)
    (arrived,) = talk.hear(talk.edge.say(Publish(one)), talk.edge.say(Publish(one)))
    assert isinstance(arrived, Arrival)
    assert arrived.receipt is None
    assert answers(talk) == []


def test_what_was_shown_is_not_shown_again_in_another_session() -> None:
    talk = Talk().start()
    one = message(1, source="car-2")
    talk.hear(talk.edge.say(Publish(one)))
    talk.session.acknowledge(name_of(one))
    talk.session.take_outgoing()  # the answer is lost
    talk.edge.forget()
    talk.wait(20)
    assert any(isinstance(event, Connected) and not event.is_resumed for event in talk.events[1:])
    talk.hear(talk.edge.say(Publish(one)))
    assert (shown(talk), answers(talk)) == ([1], [name_of(one)])


def test_names_are_remembered_to_a_limit() -> None:
    talk = Talk(keys_ns=None).start()
    for number in range(1, 4_098):
        talk.session.on_datagram(talk.edge.say(Publish(message(number, source="car-2", reliable=False))), talk.now)
    talk.pass_on()
    for number in (2, 1):
        talk.hear(talk.edge.say(Publish(message(number, source="car-2", reliable=False))))
    assert shown(talk) == [*range(1, 4_098), 1]


def test_more_than_the_application_may_hold_are_left_to_the_edge() -> None:
    talk = Talk(held_max=2).start()
    for number in (1, 2, 3):
        talk.hear(talk.edge.say(Publish(message(number, source="car-2"))))
    assert shown(talk) == [1, 2]
    talk.session.acknowledge(name_of(message(1, source="car-2")))
    talk.hear(talk.edge.say(Publish(message(3, source="car-2"))))
    assert shown(talk) == [1, 2, 3]


def test_a_message_to_an_area_is_shown_inside_it_only() -> None:
    # M16
    talk = Talk().start()
    inside, outside = replace(message(1, source="e"), address=INSIDE), replace(message(2, source="e"), address=ELSEWHERE)
    arrived, hidden = talk.hear(talk.edge.say(Publish(inside)), talk.edge.say(Publish(outside)))
    assert isinstance(arrived, Arrival)
    assert hidden == Suppressed(Suppression.OUTSIDE)
    assert answers(talk) == [name_of(outside)]
    talk.session.report(report_at(talk.now, Place(0, 0)), talk.now)
    talk.hear(talk.edge.say(Publish(outside)))
    assert shown(talk) == [1, 2]


def test_a_right_signature_is_told_and_a_wrong_one_is_not_shown() -> None:
    # M28
    talk = Talk().start()
    alert = SIGNER.sign(replace(message(1, source="edge-1"), address=INSIDE, priority=Priority.EMERGENCY))
    forged = replace(alert, body=b"turn round")
    (hidden,) = talk.hear(talk.edge.say(Publish(forged)))
    assert hidden == Suppressed(Suppression.FORGED)
    assert answers(talk) == []
    (arrived,) = talk.hear(talk.edge.say(Publish(alert)))
    assert isinstance(arrived, Arrival)
    assert arrived.received.is_signed
    (unsigned,) = talk.hear(talk.edge.say(Publish(replace(alert, id=MessageId(2), signature=b"", certificate=b""))))
    assert isinstance(unsigned, Arrival)
    assert not unsigned.received.is_signed


def test_a_subscription_is_asked_for_again_only_where_the_edge_forgot_it() -> None:
    talk = Talk().start()
    talk.session.subscribe(ICE, talk.now)
    assert talk.pass_on() == [Done(ICE_NAME)]
    talk.live(45)  # a renewal
    assert len(talk.edge.of(Subscribe)) == 1
    reset = talk.edge.reset()
    talk.edge.forget()
    talk.hear(reset)
    talk.wait(0)
    assert len(talk.edge.of(Subscribe)) == 2
    assert talk.events[-1] == Done(ICE_NAME)


def test_a_subscription_that_is_refused_is_not_asked_for_again() -> None:
    talk = Talk().start()
    talk.edge.refuses[Subscribe] = Refused(Reason.SUBSCRIPTIONS_FULL)
    talk.session.subscribe(ICE, talk.now)
    (done,) = talk.pass_on()
    assert isinstance(done, Done)
    assert done.refused is not None
    talk.edge.forget()
    talk.wait(20)
    assert len(talk.edge.of(Subscribe)) == 1


def test_a_subscription_that_a_new_session_does_not_get_is_ended() -> None:
    talk = Talk().start()
    talk.session.subscribe(ICE, talk.now)
    assert talk.pass_on() == [Done(ICE_NAME)]
    talk.edge.refuses[Subscribe] = Refused(Reason.SUBSCRIPTIONS_FULL)
    talk.edge.forget()
    events = talk.wait(20)
    (refused,) = [event for event in events if isinstance(event, SubscriptionRefused)]
    assert (refused.subscription_id, refused.refused.number) == (5, Reason.SUBSCRIPTIONS_FULL)
    assert not [event for event in events if isinstance(event, Done)]


def test_what_is_unsubscribed_from_is_gone_for_good_and_its_number_rests() -> None:
    talk = Talk().start()
    request = SubscriptionRequest("ice")
    number = talk.session.subscription_id_for(request)
    talk.session.subscribe(subscription_of(request, CAR, number), talk.now)
    assert talk.session.subscription_id_for(request) == number + 1
    talk.session.unsubscribe(SubscriptionId(number), talk.now)
    talk.pass_on()
    assert talk.edge.sessions[talk.edge.token].subscriptions == set()
    assert talk.session.subscription_id_for(request) == number + 1
    talk.edge.forget()
    talk.wait(20)
    assert len(talk.edge.of(Subscribe)) <= 1


def test_a_message_for_a_subscription_that_ended_has_it_ended_again() -> None:
    talk = Talk().start()
    talk.session.subscribe(ICE, talk.now)
    talk.pass_on()
    talk.session.unsubscribe(SubscriptionId(5), talk.now)
    talk.pass_on()
    stray = Publish(message(1, source="car-2", reliable=False), matches=(SubscriptionId(5),))
    talk.hear(talk.edge.say(stray), talk.edge.say(stray))
    assert len(talk.edge.of(Unsubscribe)) == 2


def test_of_two_things_with_one_name_the_later_is_sent() -> None:
    talk = Talk()
    talk.session.subscribe(ICE, NOW)
    talk.session.unsubscribe(SubscriptionId(5), NOW)
    talk.session.subscribe(ICE, NOW)
    talk.start()
    assert len(talk.edge.of(Subscribe)) == 1
    assert talk.edge.of(Unsubscribe) == []


def test_a_message_that_is_held_and_forgotten_makes_room() -> None:
    talk = Talk(keys_ns=None, held_max=1).start()
    talk.hear(talk.edge.say(Publish(message(1, source="car-2"))))
    for number in range(2, 4_098):
        talk.session.on_datagram(talk.edge.say(Publish(message(number, source="car-2", reliable=False))), talk.now)
    talk.pass_on()
    talk.hear(talk.edge.say(Publish(message(5_000, source="car-2"))))
    assert shown(talk)[-1] == 5_000


def test_of_subscriptions_that_ended_the_last_thousand_are_remembered() -> None:
    wishes = UdpSubscriptions(CAR)
    for number in range(1, ENDED_MAX + 2):
        wishes.add(replace(ICE, id=SubscriptionId(number)))
        wishes.remove(SubscriptionId(number))
    assert wishes.is_free(SubscriptionId(1))
    assert not wishes.is_free(SubscriptionId(2))
    wishes.add(replace(ICE, id=SubscriptionId(2)))
    assert wishes.strays([SubscriptionId(2), SubscriptionId(3)]) == [SubscriptionName(CAR, SubscriptionId(3))]
