"""Messages and subscriptions both ways, over one session and over several (M16)."""

from dataclasses import replace

import pytest

from milepost.client.events import Arrival, Connected, Done, SubscriptionRefused, Suppressed, Suppression
from milepost.client.messages import SubscriptionRequest, received_from_message
from milepost.client.udp.mapping import subscription_of
from milepost.client.udp.outbound import WINDOW
from milepost.client.udp.subscriptions import ENDED_MAX, UdpSubscriptions
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import edge_source
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import parse_query
from milepost.model.reasons import Reason, Refused
from milepost.model.session_datagrams import (
    MessageName,
    PublishDatagram,
    ReceivedDatagram,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
)
from milepost.model.subscriptions import Subscription, SubscriptionId
from unit.client.udp.scripted_edge import CAR, HERE, NOW, SIGNER, SessionHarness, message, report_at

INSIDE, ELSEWHERE = ToArea(Circle(HERE, 500.0)), ToArea(Circle(Place(0, 0), 500.0))
ICE = Subscription(CAR, parse_query("ice"), id=SubscriptionId(5))
ICE_NAME = SubscriptionName(CAR, SubscriptionId(5))


def name_of(one: Message) -> MessageName:
    return MessageName(one.source, one.id)


def answers(harness: SessionHarness) -> list[object]:
    return [one.name for one in harness.edge.received if isinstance(one, ReceivedDatagram)]


def delivered(harness: SessionHarness) -> list[int]:
    return [event.received.message.id for event in harness.events if isinstance(event, Arrival)]


def test_a_reliable_message_is_done_when_the_edge_acknowledges_it() -> None:
    harness = SessionHarness().start()
    harness.session.publish(message(1), harness.now)
    assert harness.exchange() == [Done(name_of(message(1)))]
    assert harness.wait(60) == [event for event in harness.events[2:] if not isinstance(event, Done)]
    assert harness.edge.names() == [(CAR, 1)]


def test_an_unreliable_message_is_sent_once_and_then_done() -> None:
    harness = SessionHarness().start()
    harness.is_disconnected = True
    harness.session.publish(message(1, reliable=False), harness.now)
    assert harness.exchange() == [Done(name_of(message(1)))]
    harness.is_disconnected = False
    harness.wait(20)
    assert harness.edge.names() == []


def test_messages_published_without_a_session_are_queued() -> None:
    harness = SessionHarness()
    harness.session.publish(message(1), NOW)
    harness.session.publish(message(2, reliable=False), NOW)
    assert harness.session.take_events() == []
    harness.start()
    assert sorted(harness.edge.names()) == [(CAR, 1), (CAR, 2)]


def test_an_unanswered_message_is_resent_with_back_off_and_given_up() -> None:
    harness = SessionHarness(keys_ns=None).start()
    harness.edge.interval_ns = 3_600 * SECOND_NS
    harness.session.publish(message(1), harness.now)
    harness.session.take_outgoing()
    sent = []
    while not (events := harness.session.take_events()):
        harness.now = harness.session.next_at
        harness.session.on_tick(harness.now)
        sent += [harness.now for data in harness.session.take_outgoing() if data[0] == 4 and len(data) > 100]
        harness.session.on_datagram(harness.edge.heartbeat(), harness.now)
    (done,) = [event for event in events if isinstance(event, Done)]
    assert done.refused is not None
    assert done.refused.number == Reason.UNACKNOWLEDGED
    assert harness.edge.names() == []
    assert 45 * SECOND_NS < harness.now - NOW <= 70 * SECOND_NS


def test_a_message_is_not_resent_after_its_validity() -> None:
    harness = SessionHarness(keys_ns=None).start()
    harness.is_disconnected = True
    brief = replace(message(1), valid_until=Instant(NOW + 2 * SECOND_NS))
    harness.session.publish(brief, harness.now)
    (done,) = harness.wait(8)
    assert isinstance(done, Done)
    assert done.refused is not None
    assert done.refused.number == Reason.UNACKNOWLEDGED


def test_a_message_that_expires_before_it_was_sent_is_refused_as_expired() -> None:
    harness = SessionHarness()
    harness.is_disconnected = True
    harness.start()
    harness.session.publish(replace(message(1), valid_until=Instant(NOW + 2 * SECOND_NS)), harness.now)
    (done,) = harness.wait(8)
    assert isinstance(done, Done)
    assert done.refused is not None
    assert done.refused.number == Reason.EXPIRED


def test_a_refused_message_is_done_with_the_reason() -> None:
    harness = SessionHarness().start()
    harness.edge.refuses[PublishDatagram] = Refused(Reason.NOT_ALLOWED, "not yours")
    harness.session.publish(message(1), harness.now)
    (done,) = harness.exchange()
    assert isinstance(done, Done)
    assert done.refused is not None
    assert (done.refused.name, done.refused.detail, done.refused.advice) == (
        "NOT_ALLOWED",
        "not yours",
        Reason.NOT_ALLOWED.advice,
    )


def test_unanswered_messages_are_resent_in_a_new_session() -> None:
    harness = SessionHarness().start()
    harness.wait(6)
    harness.is_disconnected = True
    harness.session.publish(message(1), harness.now)
    harness.exchange()
    harness.is_disconnected = False
    reset = harness.edge.reset()
    harness.edge.forget()
    harness.receive(reset)
    harness.wait(0)
    assert harness.edge.names() == [(CAR, 1)]
    assert Done(name_of(message(1))) in harness.events


def test_publications_beyond_the_limit_are_refused() -> None:
    harness = SessionHarness()
    harness.session.setup = replace(harness.session.setup, pending_max=1_000)
    for number in range(1, 1_002):
        harness.session.publish(message(number), NOW)
    (done,) = harness.session.take_events()
    assert isinstance(done, Done)
    assert done.refused is not None
    assert (done.key, done.refused.number) == (MessageName(CAR, MessageId(1_001)), Reason.QUEUE_FULL)


def test_the_window_limits_messages_in_flight_and_emergencies_come_first() -> None:
    harness = SessionHarness().start()
    harness.is_disconnected = True
    for number in range(1, WINDOW + 6):
        harness.session.publish(message(number), harness.now)
    harness.session.publish(replace(message(999), priority=Priority.EMERGENCY), harness.now)
    assert len(harness.session.take_outgoing()) == WINDOW
    harness.is_disconnected = False
    harness.receive(harness.edge.datagram_of(ReceivedDatagram(name_of(message(1)))))
    assert harness.edge.names()[0] == (CAR, 999)
    assert sorted(number for _, number in harness.edge.names()) == [*range(WINDOW + 1, WINDOW + 6), 999]


def test_a_message_withdrawn_before_it_was_sent_is_not_sent() -> None:
    harness = SessionHarness()
    harness.session.publish(message(1), NOW)
    harness.session.publish(message(2), NOW)
    harness.session.withdraw(name_of(message(1)))
    harness.start()
    assert harness.edge.names() == [(CAR, 2)]


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_reliable_message_is_acknowledged_when_taken_and_delivered_once(is_sealed: bool) -> None:
    harness = SessionHarness(is_sealed=is_sealed).start()
    one = message(1, source="car-2")
    (arrived,) = harness.receive(harness.edge.datagram_of(PublishDatagram(one, matches=(SubscriptionId(5),))))
    assert arrived == Arrival(received_from_message(one, harness.now, None), (SubscriptionId(5),), name_of(one))
    assert harness.receive(harness.edge.datagram_of(PublishDatagram(one))) == []
    assert answers(harness) == []
    harness.session.acknowledge(name_of(one))
    harness.exchange()
    assert answers(harness) == [name_of(one)]
    harness.session.acknowledge(name_of(one))
    assert harness.receive(harness.edge.datagram_of(PublishDatagram(one))) == []
    assert answers(harness) == [name_of(one)] * 2


def test_an_unreliable_message_is_delivered_once_and_never_acknowledged() -> None:
    harness = SessionHarness().start()
    one = message(1, source="car-2", reliable=False)
    (arrived,) = harness.receive(harness.edge.datagram_of(PublishDatagram(one)), harness.edge.datagram_of(PublishDatagram(one)))
    assert isinstance(arrived, Arrival)
    assert arrived.receipt is None
    assert answers(harness) == []


def test_a_delivered_message_is_not_delivered_again_in_another_session() -> None:
    harness = SessionHarness().start()
    one = message(1, source="car-2")
    harness.receive(harness.edge.datagram_of(PublishDatagram(one)))
    harness.session.acknowledge(name_of(one))
    harness.session.take_outgoing()  # the answer is lost
    harness.edge.forget()
    harness.wait(20)
    assert any(isinstance(event, Connected) and not event.is_resumed for event in harness.events[1:])
    harness.receive(harness.edge.datagram_of(PublishDatagram(one)))
    assert (delivered(harness), answers(harness)) == ([1], [name_of(one)])


def test_remembered_message_names_are_limited() -> None:
    harness = SessionHarness(keys_ns=None).start()
    for number in range(1, 4_098):
        harness.session.on_datagram(
            harness.edge.datagram_of(PublishDatagram(message(number, source="car-2", reliable=False))), harness.now
        )
    harness.exchange()
    for number in (2, 1):
        harness.receive(harness.edge.datagram_of(PublishDatagram(message(number, source="car-2", reliable=False))))
    assert delivered(harness) == [*range(1, 4_098), 1]


def test_messages_beyond_the_receive_maximum_are_left_for_the_edge_to_resend() -> None:
    harness = SessionHarness(untaken_max=2).start()
    for number in (1, 2, 3):
        harness.receive(harness.edge.datagram_of(PublishDatagram(message(number, source="car-2"))))
    assert delivered(harness) == [1, 2]
    harness.session.acknowledge(name_of(message(1, source="car-2")))
    harness.receive(harness.edge.datagram_of(PublishDatagram(message(3, source="car-2"))))
    assert delivered(harness) == [1, 2, 3]


def test_a_message_to_an_area_is_delivered_only_inside_it() -> None:
    # M16
    harness = SessionHarness().start()
    inside, outside = replace(message(1, source="e"), address=INSIDE), replace(message(2, source="e"), address=ELSEWHERE)
    arrived, hidden = harness.receive(
        harness.edge.datagram_of(PublishDatagram(inside)), harness.edge.datagram_of(PublishDatagram(outside))
    )
    assert isinstance(arrived, Arrival)
    assert hidden == Suppressed(Suppression.OUTSIDE, outside.topic)
    assert answers(harness) == [name_of(outside)]
    harness.session.report(report_at(harness.now, Place(0, 0)), harness.now)
    harness.receive(harness.edge.datagram_of(PublishDatagram(outside)))
    assert delivered(harness) == [1, 2]


def test_a_valid_signature_is_reported_and_a_message_with_an_invalid_one_is_suppressed() -> None:
    # M28
    harness = SessionHarness().start()
    alert = SIGNER.sign(
        replace(
            message(1, source=edge_source("edge-1")),
            address=INSIDE,
            priority=Priority.EMERGENCY,
            valid_until=Instant(harness.now + 60 * SECOND_NS),
        )
    )
    forged = replace(alert, body=b"turn round")
    (hidden,) = harness.receive(harness.edge.datagram_of(PublishDatagram(forged)))
    assert isinstance(hidden, Suppressed)
    assert hidden.reason is Suppression.FORGED
    assert answers(harness) == []
    (arrived,) = harness.receive(harness.edge.datagram_of(PublishDatagram(alert)))
    assert isinstance(arrived, Arrival)
    assert arrived.received.signer == ("edge", "edge-1")
    assert arrived.received.message == alert
    (unsigned,) = harness.receive(
        harness.edge.datagram_of(PublishDatagram(replace(alert, id=MessageId(2), signature=b"", certificate=b"")))
    )
    assert isinstance(unsigned, Arrival)
    assert not unsigned.received.is_signed


def test_a_subscription_is_resent_only_if_the_edge_lost_it() -> None:
    harness = SessionHarness().start()
    harness.session.subscribe(ICE, harness.now)
    assert harness.exchange() == [Done(ICE_NAME)]
    harness.run_with_heartbeats(45)  # a renewal
    assert len(harness.edge.of(SubscribeDatagram)) == 1
    reset = harness.edge.reset()
    harness.edge.forget()
    harness.receive(reset)
    harness.wait(0)
    assert len(harness.edge.of(SubscribeDatagram)) == 2
    assert harness.events[-1] == Done(ICE_NAME)


def test_a_refused_subscription_is_not_resent() -> None:
    harness = SessionHarness().start()
    harness.edge.refuses[SubscribeDatagram] = Refused(Reason.SUBSCRIPTIONS_FULL)
    harness.session.subscribe(ICE, harness.now)
    (done,) = harness.exchange()
    assert isinstance(done, Done)
    assert done.refused is not None
    harness.edge.forget()
    harness.wait(20)
    assert len(harness.edge.of(SubscribeDatagram)) == 1


def test_a_subscription_refused_in_a_new_session_ends() -> None:
    harness = SessionHarness().start()
    harness.session.subscribe(ICE, harness.now)
    assert harness.exchange() == [Done(ICE_NAME)]
    harness.edge.refuses[SubscribeDatagram] = Refused(Reason.SUBSCRIPTIONS_FULL)
    harness.edge.forget()
    events = harness.wait(20)
    (refused,) = [event for event in events if isinstance(event, SubscriptionRefused)]
    assert (refused.subscription_id, refused.refused.number) == (5, Reason.SUBSCRIPTIONS_FULL)
    assert not [event for event in events if isinstance(event, Done)]


def test_an_ended_subscription_is_not_resent_and_its_id_is_not_reused_soon() -> None:
    harness = SessionHarness().start()
    request = SubscriptionRequest("ice")
    number = harness.session.subscription_id_for(request)
    harness.session.subscribe(subscription_of(request, CAR, number), harness.now)
    assert harness.session.subscription_id_for(request) == number + 1
    harness.session.unsubscribe(SubscriptionId(number), harness.now)
    harness.exchange()
    assert harness.edge.sessions[harness.edge.token].subscriptions == set()
    assert harness.session.subscription_id_for(request) == number + 1
    harness.edge.forget()
    harness.wait(20)
    assert len(harness.edge.of(SubscribeDatagram)) <= 1


def test_a_message_for_an_ended_subscription_causes_another_unsubscribe() -> None:
    harness = SessionHarness().start()
    harness.session.subscribe(ICE, harness.now)
    harness.exchange()
    harness.session.unsubscribe(SubscriptionId(5), harness.now)
    harness.exchange()
    stray = PublishDatagram(message(1, source="car-2", reliable=False), matches=(SubscriptionId(5),))
    harness.receive(harness.edge.datagram_of(stray), harness.edge.datagram_of(stray))
    assert len(harness.edge.of(UnsubscribeDatagram)) == 2


def test_of_two_datagrams_with_one_name_only_the_later_is_sent() -> None:
    harness = SessionHarness()
    harness.session.subscribe(ICE, NOW)
    harness.session.unsubscribe(SubscriptionId(5), NOW)
    harness.session.subscribe(ICE, NOW)
    harness.start()
    assert len(harness.edge.of(SubscribeDatagram)) == 1
    assert harness.edge.of(UnsubscribeDatagram) == []


def test_a_forgotten_untaken_message_no_longer_counts_toward_the_limit() -> None:
    harness = SessionHarness(keys_ns=None, untaken_max=1).start()
    harness.receive(harness.edge.datagram_of(PublishDatagram(message(1, source="car-2"))))
    for number in range(2, 4_098):
        harness.session.on_datagram(
            harness.edge.datagram_of(PublishDatagram(message(number, source="car-2", reliable=False))), harness.now
        )
    harness.exchange()
    harness.receive(harness.edge.datagram_of(PublishDatagram(message(5_000, source="car-2"))))
    assert delivered(harness)[-1] == 5_000


def test_the_last_thousand_ended_subscriptions_are_remembered() -> None:
    wishes = UdpSubscriptions(CAR)
    for number in range(1, ENDED_MAX + 2):
        wishes.add(replace(ICE, id=SubscriptionId(number)))
        wishes.remove(SubscriptionId(number))
    assert wishes.is_free(SubscriptionId(1))
    assert not wishes.is_free(SubscriptionId(2))
    wishes.add(replace(ICE, id=SubscriptionId(2)))
    assert wishes.ended_among([SubscriptionId(2), SubscriptionId(3)]) == [SubscriptionName(CAR, SubscriptionId(3))]
