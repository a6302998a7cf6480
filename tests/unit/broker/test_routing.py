"""Routes: the receivers that matching finds for a topic, in as few groups as possible."""

from milepost.broker.read_rights import ReadRights
from milepost.broker.routing import ReceiverGroup, ReceiverGroups, RouteCache, SharedMembers, group_by_encoding
from milepost.broker.session import Connection, Session, Sessions, SessionSubscription
from milepost.matching.matcher import Matcher, MatcherLimits
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.queries import OnTopic, parse_query
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.tags import tags
from milepost.model.time_windows import TimeWindow
from publications import at

NO_SESSION = -1


class Routes:
    """A route cache, and sessions that subscribe."""

    def __init__(self) -> None:
        self.matcher = Matcher(MatcherLimits(64, 64, 256))
        self.sessions = Sessions(64)
        self.rights = ReadRights()
        self.route_cache = RouteCache(self.matcher, self.sessions, self.rights)

    def session(self, name: str, encoding: int = 5) -> Session:
        session = self.sessions.add(EndpointId(name))
        session.encoding, session.connection, session.is_ready = encoding, Connection(), True
        return session

    def subscribe(
        self,
        session: Session,
        topic_filter: str = "t",
        *,
        qos: int = 0,
        subscription_id: int = 0,
        share: str | None = None,
        no_local: bool = False,
        time_window: TimeWindow | None = None,
        query: str | None = None,
    ) -> int:
        parsed = OnTopic(topic_filter) if query is None else parse_query(query)
        subscription = Subscription(
            session.name,
            parsed,
            time_window=time_window or TimeWindow(),
            id=SubscriptionId(subscription_id),
            qos=qos,
            share=share,
        )
        row = self.matcher.add(session.number, subscription)
        self.route_cache.put(SessionSubscription(subscription, row, no_local=no_local))
        return row

    def unsubscribe(self, row: int) -> None:
        self.matcher.remove(row)
        self.route_cache.remove(row)

    def receivers(
        self, topic: str = "t", origin: int = NO_SESSION, *, tag: str | None = None, valid_until: Instant | None = None
    ) -> ReceiverGroups:
        message = Message(MessageId(1), EndpointId("x"), topic, at(0), tags=tags([tag] if tag else []))
        if valid_until is not None:
            message = Message(MessageId(1), EndpointId("x"), topic, at(0), valid_until=valid_until)
        return self.route_cache.route_for(message, at(1)).receivers_for(origin)


def summary(receivers: ReceiverGroups) -> list[tuple[int, int, tuple[int, ...], list[str]]]:
    return [
        (group.encoding, group.qos, group.subscription_ids, [one.name for one in group.sessions])
        for group in receivers.groups
        if group.sessions
    ]


def test_receivers_that_get_a_message_alike_are_one_group() -> None:
    routes = Routes()
    for name, encoding, qos, subscription_id in (("a", 5, 1, 0), ("b", 5, 1, 0), ("c", 3, 1, 0), ("d", 5, 2, 0), ("e", 5, 1, 7)):
        routes.subscribe(routes.session(name, encoding), qos=qos, subscription_id=subscription_id)
    assert summary(routes.receivers()) == [(5, 1, (), ["a", "b"]), (3, 1, (), ["c"]), (5, 2, (), ["d"]), (5, 1, (7,), ["e"])]
    assert routes.receivers().size == 5


def test_a_receiver_with_several_matching_subscriptions_gets_one_delivery_with_the_highest_qos_and_all_ids() -> None:
    routes = Routes()
    session = routes.session("a")
    for topic_filter, qos, subscription_id in (("t", 0, 9), ("#", 2, 3), ("+", 1, 0)):
        routes.subscribe(session, topic_filter, qos=qos, subscription_id=subscription_id)
    assert summary(routes.receivers()) == [(5, 2, (3, 9), ["a"])]


def test_equal_receivers_of_different_topics_are_one_object() -> None:
    routes = Routes()
    routes.subscribe(routes.session("a"), "#")
    assert routes.receivers("t") is routes.receivers("u")


def test_a_cached_route_lasts_until_a_subscription_is_added_or_removed() -> None:
    routes = Routes()
    session = routes.session("a")
    row, epoch = routes.subscribe(session), routes.route_cache.epoch
    assert summary(routes.receivers()) == [(5, 0, (), ["a"])]
    assert routes.route_cache.epoch == epoch
    routes.subscribe(routes.session("b"))
    assert summary(routes.receivers()) == [(5, 0, (), ["a", "b"])]
    routes.unsubscribe(row)
    assert summary(routes.receivers()) == [(5, 0, (), ["b"])]
    assert routes.route_cache.epoch > epoch


def test_an_expired_message_has_no_receivers_and_leaves_no_cached_route() -> None:
    routes = Routes()
    routes.subscribe(routes.session("a"))
    assert routes.receivers(valid_until=at(0.5)).size == 0
    assert routes.receivers().size == 1


def test_a_reused_session_number_is_not_mistaken_for_the_former_session() -> None:
    routes = Routes()
    former = routes.session("former")
    row = routes.subscribe(former, query="ice")
    assert [group.sessions for group in routes.receivers(tag="ice").groups] == [[former]]
    routes.unsubscribe(row)
    routes.sessions.remove(former)
    later = routes.session("later")
    assert later.number == former.number
    routes.subscribe(later, query="ice")
    assert [group.sessions for group in routes.receivers(tag="ice").groups] == [[later]]


def test_a_no_local_subscriber_gets_the_messages_of_others() -> None:
    routes = Routes()
    one, other = routes.session("one"), routes.session("other")
    routes.subscribe(one, no_local=True)
    routes.subscribe(other)
    assert summary(routes.receivers(origin=one.number)) == [(5, 0, (), ["other"])]
    assert summary(routes.receivers(origin=other.number)) == [(5, 0, (), ["one", "other"])]


def test_one_subscription_without_no_local_suffices_for_own_messages() -> None:
    routes = Routes()
    session = routes.session("a")
    routes.subscribe(session, "t", no_local=True)
    routes.subscribe(session, "#", qos=1)
    assert summary(routes.receivers(origin=session.number)) == [(5, 1, (), ["a"])]


def test_a_member_of_a_share_gets_its_own_message_in_its_turn_despite_no_local() -> None:
    routes = Routes()
    session = routes.session("a")
    routes.subscribe(session, "t", no_local=True)
    routes.subscribe(session, "t", share="g", subscription_id=4)
    assert summary(routes.receivers(origin=session.number)) == [(5, 0, (4,), ["a"])]


def test_members_of_a_share_take_turns_and_each_share_serves_one() -> None:
    routes = Routes()
    members = [routes.session(name) for name in "abc"]
    for member in members:
        routes.subscribe(member, share="g")
        routes.subscribe(member, share="h")
    served = [[names[0] for *_, names in summary(routes.receivers())] for _ in range(6)]
    assert all(len(names) == 2 for names in served)
    for which in (0, 1):
        assert sorted(names[which] for names in served) == ["a", "a", "b", "b", "c", "c"]


def test_a_ready_member_is_served_before_a_busy_one_and_that_before_a_disconnected_one() -> None:
    sessions = [Session(EndpointId(name), number) for number, name in enumerate(("away", "busy", "clear"))]
    for session in sessions[1:]:
        session.connection = Connection()
    sessions[2].is_ready = True
    key = (5, 0, (), False)
    assert {SharedMembers([(one, key) for one in sessions], start).take_next().sessions[0].name for start in range(3)} == {
        "clear"
    }
    assert {SharedMembers([(one, key) for one in sessions[:2]], start).take_next().sessions[0].name for start in range(2)} == {
        "busy"
    }
    assert SharedMembers([(sessions[0], key)], 0).take_next().sessions == [sessions[0]]


def test_topics_with_time_window_subscriptions_are_not_cached() -> None:
    routes = Routes()
    routes.subscribe(routes.session("a"), time_window=TimeWindow(at(0), at(10)))
    message = Message(MessageId(1), EndpointId("x"), "t", at(1))
    assert routes.route_cache.find_cacheable(message, at(1)) is None
    assert routes.route_cache.route_for(message, at(1)).receivers_for(NO_SESSION).size == 1
    late = Message(MessageId(2), EndpointId("x"), "t", at(11))
    assert routes.route_cache.route_for(late, at(11)).receivers_for(NO_SESSION).size == 0


def test_addressed_endpoints_get_the_message_with_its_published_qos() -> None:
    sessions = [Session(EndpointId(name), number) for number, name in enumerate("ab")]
    sessions[1].encoding = 3
    receivers = group_by_encoding(sessions)
    assert [(group.encoding, group.qos, group.subscription_ids) for group in receivers.groups] == [(0, 2, ()), (3, 2, ())]
    assert isinstance(receivers.groups[0], ReceiverGroup)
    assert receivers.size == 2
