"""Plans: who gets a message of a topic is what matching says, in as few objects as there are ways to get it."""

from milepost.broker.routing import Fan, Group, RouteCache, Turn, group_by_encoding
from milepost.broker.session import Asked, Link, Session, Sessions
from milepost.matching.matcher import Limits, Matcher
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.queries import OnTopic, parse_query
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.tags import tags
from milepost.model.time_windows import TimeWindow
from publications import at

NOBODY = -1


class Office:
    """A planner, and sessions that ask it."""

    def __init__(self) -> None:
        self.matcher = Matcher(Limits(64, 64, 256))
        self.sessions = Sessions(64)
        self.route_cache = RouteCache(self.matcher, self.sessions)

    def session(self, name: str, encoding: int = 5) -> Session:
        session = self.sessions.add(EndpointId(name))
        session.encoding, session.link, session.is_clear = encoding, Link(), True
        return session

    def ask(
        self,
        session: Session,
        topic_filter: str = "t",
        *,
        qos: int = 0,
        label: int = 0,
        share: str | None = None,
        is_not_own: bool = False,
        time_window: TimeWindow | None = None,
        query: str | None = None,
    ) -> int:
        asked = OnTopic(topic_filter) if query is None else parse_query(query)
        subscription = Subscription(
            session.name, asked, time_window=time_window or TimeWindow(), id=SubscriptionId(label), qos=qos, share=share
        )
        row = self.matcher.add(session.number, subscription)
        self.route_cache.put(Asked(subscription, row, is_not_own=is_not_own))
        return row

    def forget(self, row: int) -> None:
        self.matcher.remove(row)
        self.route_cache.take_away(row)

    def fan(self, topic: str = "t", origin: int = NOBODY, *, tag: str | None = None, valid_until: Instant | None = None) -> Fan:
        message = Message(MessageId(1), EndpointId("x"), topic, at(0), tags=tags([tag] if tag else []))
        if valid_until is not None:
            message = Message(MessageId(1), EndpointId("x"), topic, at(0), valid_until=valid_until)
        return self.route_cache.plan(message, at(1)).fan_for(origin)


def told(fan: Fan) -> list[tuple[int, int, tuple[int, ...], list[str]]]:
    return [
        (group.encoding, group.qos, group.labels, [one.name for one in group.sessions]) for group in fan.groups if group.sessions
    ]


def test_takers_that_get_a_message_alike_are_one_group() -> None:
    office = Office()
    for name, encoding, qos, label in (("a", 5, 1, 0), ("b", 5, 1, 0), ("c", 3, 1, 0), ("d", 5, 2, 0), ("e", 5, 1, 7)):
        office.ask(office.session(name, encoding), qos=qos, label=label)
    assert told(office.fan()) == [(5, 1, (), ["a", "b"]), (3, 1, (), ["c"]), (5, 2, (), ["d"]), (5, 1, (7,), ["e"])]
    assert office.fan().size == 5


def test_a_taker_with_many_matching_subscriptions_is_one_with_the_best_quality_and_all_labels() -> None:
    office = Office()
    session = office.session("a")
    for topic_filter, qos, label in (("t", 0, 9), ("#", 2, 3), ("+", 1, 0)):
        office.ask(session, topic_filter, qos=qos, label=label)
    assert told(office.fan()) == [(5, 2, (3, 9), ["a"])]


def test_equal_fans_of_different_topics_are_one_object() -> None:
    office = Office()
    office.ask(office.session("a"), "#")
    assert office.fan("t") is office.fan("u")


def test_a_plan_lasts_until_a_subscription_comes_or_goes() -> None:
    office = Office()
    session = office.session("a")
    row, epoch = office.ask(session), office.route_cache.epoch
    assert told(office.fan()) == [(5, 0, (), ["a"])]
    assert office.route_cache.epoch == epoch
    office.ask(office.session("b"))
    assert told(office.fan()) == [(5, 0, (), ["a", "b"])]
    office.forget(row)
    assert told(office.fan()) == [(5, 0, (), ["b"])]
    assert office.route_cache.epoch > epoch


def test_a_message_that_has_expired_is_for_nobody_and_leaves_no_plan_behind() -> None:
    office = Office()
    office.ask(office.session("a"))
    assert office.fan(valid_until=at(0.5)).size == 0
    assert office.fan().size == 1


def test_a_number_that_another_session_has_now_is_not_taken_for_the_former_one() -> None:
    office = Office()
    former = office.session("former")
    row = office.ask(former, query="ice")
    assert [group.sessions for group in office.fan(tag="ice").groups] == [[former]]
    office.forget(row)
    office.sessions.remove(former)
    later = office.session("later")
    assert later.number == former.number
    office.ask(later, query="ice")
    assert [group.sessions for group in office.fan(tag="ice").groups] == [[later]]


def test_who_wants_no_messages_of_its_own_gets_those_of_others() -> None:
    office = Office()
    one, other = office.session("one"), office.session("other")
    office.ask(one, is_not_own=True)
    office.ask(other)
    assert told(office.fan(origin=one.number)) == [(5, 0, (), ["other"])]
    assert told(office.fan(origin=other.number)) == [(5, 0, (), ["one", "other"])]


def test_one_subscription_that_wants_own_messages_is_enough_to_get_them() -> None:
    office = Office()
    session = office.session("a")
    office.ask(session, "t", is_not_own=True)
    office.ask(session, "#", qos=1)
    assert told(office.fan(origin=session.number)) == [(5, 1, (), ["a"])]


def test_a_member_of_a_share_gets_its_own_message_in_its_turn_though_it_wants_none_otherwise() -> None:
    office = Office()
    session = office.session("a")
    office.ask(session, "t", is_not_own=True)
    office.ask(session, "t", share="g", label=4)
    assert told(office.fan(origin=session.number)) == [(5, 0, (4,), ["a"])]


def test_members_of_a_share_take_turns_and_each_share_serves_one() -> None:
    office = Office()
    members = [office.session(name) for name in "abc"]
    for member in members:
        office.ask(member, share="g")
        office.ask(member, share="h")
    served = [[names[0] for *_, names in told(office.fan())] for _ in range(6)]
    assert all(len(names) == 2 for names in served)
    for which in (0, 1):
        assert sorted(names[which] for names in served) == ["a", "a", "b", "b", "c", "c"]


def test_a_member_that_takes_more_is_served_before_one_that_is_busy_and_that_before_one_that_is_away() -> None:
    sessions = [Session(EndpointId(name), number) for number, name in enumerate(("away", "busy", "clear"))]
    for session in sessions[1:]:
        session.link = Link()
    sessions[2].is_clear = True
    key = (5, 0, (), False)
    assert {Turn([(one, key) for one in sessions], start).take().sessions[0].name for start in range(3)} == {"clear"}
    assert {Turn([(one, key) for one in sessions[:2]], start).take().sessions[0].name for start in range(2)} == {"busy"}
    assert Turn([(sessions[0], key)], 0).take().sessions == [sessions[0]]


def test_what_is_asked_for_during_a_time_window_is_planned_anew_each_time() -> None:
    office = Office()
    office.ask(office.session("a"), time_window=TimeWindow(at(0), at(10)))
    message = Message(MessageId(1), EndpointId("x"), "t", at(1))
    assert office.route_cache.maybe_lasting(message, at(1)) is None
    assert office.route_cache.plan(message, at(1)).fan_for(NOBODY).size == 1
    late = Message(MessageId(2), EndpointId("x"), "t", at(11))
    assert office.route_cache.plan(late, at(11)).fan_for(NOBODY).size == 0


def test_those_who_are_addressed_get_the_message_with_the_quality_it_came_with() -> None:
    sessions = [Session(EndpointId(name), number) for number, name in enumerate("ab")]
    sessions[1].encoding = 3
    fan = group_by_encoding(sessions)
    assert [(group.encoding, group.qos, group.labels) for group in fan.groups] == [(0, 2, ()), (3, 2, ())]
    assert isinstance(fan.groups[0], Group)
    assert fan.size == 2
