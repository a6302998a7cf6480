"""The membership of an edge: appends in order, one batch at a time; a record that the log refuses delays nothing."""

from collections import deque
from collections.abc import Callable, Sequence

from edge_in_memory import SMALL, START, LogInMemory
from milepost.broker.broker import Broker
from milepost.broker.publication import Publication
from milepost.eventlog.log import Done, Entry, LogRefused, LogUnavailable
from milepost.eventlog.memory import MemoryLog, MemoryStore
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.queries import OnTopic
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeRef,
    Epoch,
    ForwardedMessage,
    Handover,
    Interest,
    edge_key,
    interest_key,
)
from milepost.model.subscriptions import Subscription
from milepost.runtime.membership import APPEND_INTERVAL_NS, SiteLink
from milepost.wire.records import from_record, to_record

OTHER = EdgeRef("north", "b")


class ToughLog(MemoryLog):
    """A log in memory that can be unavailable, or refuse a record at once or in its confirmation."""

    is_away = False
    fails_later = False

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self.is_away:
            raise LogUnavailable("away")
        if any(b"TOO LARGE" in (entry.value or b"") for entry in entries):
            raise LogRefused("too large")
        if self.fails_later and done is not None:
            done(LogUnavailable("lost on the way"))
            return
        super().append(entries, done)


class EdgeAtLog:
    """An edge of a site over a log in memory, with ticks that the test runs."""

    def __init__(self, *, is_gathering: bool = False) -> None:
        self.now = START
        self.store = MemoryStore(lambda: self.now)
        self.log = ToughLog(self.store._topics, self.store._groups, lambda: self.now, 99)
        self.store._logs.append(self.log)
        self.broker = Broker(SMALL)
        self.member = SiteMember(self.broker, EdgeRef("north", "a"), SiteLimits())
        self.logger = LogInMemory()
        self.calls: deque[Callable[[Instant], None]] = deque()
        self.asked_back: list[float] = []
        tick_within = self.asked_back.append if is_gathering else None
        self.link = SiteLink(
            self.member, self.log, self.calls.append, self.logger, tick_within=tick_within, on_announced=self.note_keys
        )
        self.keys_when_announced: list[list[str]] = []
        other = self.store.open()
        key = interest_key(OTHER, "car", "t/#")
        other.append([Entry(SUBSCRIPTION_INFO, key, to_record(Interest(OTHER, Subscription(EndpointId("car"), OnTopic("t/#")))))])
        self.store.run_all()
        self.link.start()
        self.settle()

    def settle(self) -> None:
        for _ in range(50):
            self.now = Instant(self.now + 1_000_000)
            while self.calls:
                self.calls.popleft()(self.now)
            self.broker.take_changes()
            self.link.flush(self.now)
            self.store.run_all()

    def turn(self, after_ns: int) -> None:
        self.now = Instant(self.now + after_ns)
        while self.calls:
            self.calls.popleft()(self.now)
        self.link.flush(self.now)
        self.store.run_all()

    def note_keys(self) -> None:
        self.keys_when_announced.append([record.key for record in self.store._topics[SUBSCRIPTION_INFO].records])

    def publish(self, *bodies: bytes) -> None:
        for body in bodies:
            publication = Publication("t/a", body, self.now, source=EndpointId("pub"), origin=0, qos=1)
            assert not self.broker.accept(publication, None, self.now)

    def forwarded(self) -> list[bytes]:
        records = self.store._topics[CROSS_HUB].records
        values = [from_record(record.value or b"") for record in records]
        return [value.message.body for value in values if isinstance(value, ForwardedMessage)]


def test_messages_published_before_the_registry_is_read_are_forwarded_afterwards() -> None:
    member = SiteMember(Broker(SMALL), EdgeRef("north", "c"), SiteLimits())
    for topic in ("t/a", "u/a"):
        publication = Publication(topic, b"early", START, source=EndpointId("pub"), origin=0, qos=1)
        assert not member.state.broker.accept(publication, None, START)
    assert member.state.outbox.take_batch() == []
    member.state.interest.put("k", str(OTHER), Subscription(EndpointId("car"), OnTopic("t/#")))
    member.caught_up(SUBSCRIPTION_INFO, START)
    member.caught_up(VEHICLE_INFO, START)
    forwarded = [from_record(one.value or b"") for one in member.state.outbox.take_batch() if one.topic == CROSS_HUB]
    assert [one.message.topic for one in forwarded if isinstance(one, ForwardedMessage)] == ["t/a"]


def test_records_that_a_log_could_not_append_are_retried_in_order() -> None:
    edge = EdgeAtLog()
    edge.log.is_away = True
    edge.publish(b"1", b"2")
    edge.settle()
    edge.log.is_away, edge.log.fails_later = False, True
    edge.publish(b"3")
    edge.settle()
    assert edge.forwarded() == []
    edge.log.fails_later = False
    edge.publish(b"4")
    edge.settle()
    assert edge.forwarded() == [b"1", b"2", b"3", b"4"]
    assert edge.member.state.outbox.waiting == 0


def test_a_record_that_the_log_refuses_is_dropped_and_logged() -> None:
    edge = EdgeAtLog()
    edge.publish(b"1", b"2", b"3")
    outbox = edge.member.state.outbox
    second = list(outbox._spool)[1]
    bad = outbox._spool[second]._replace(value=b"TOO LARGE")
    outbox._queue[1] = outbox._spool[second] = bad
    edge.settle()
    assert edge.forwarded() == [b"1", b"3"]
    assert "record refused by the log" in edge.logger.events
    assert outbox.waiting == 0


def test_a_message_too_large_for_the_log_is_refused_if_another_edge_subscribes_to_it() -> None:
    edge = EdgeAtLog()
    publication = Publication("t/a", bytes(800_000), edge.now, source=EndpointId("pub"), origin=0, qos=1)
    refused = edge.broker.accept(publication, None, edge.now)
    assert not isinstance(refused, int)
    assert refused.reason.name == "MESSAGE_TOO_LARGE"
    alone = Publication("u/a", bytes(800_000), edge.now, source=EndpointId("pub"), origin=0, qos=1)
    assert edge.broker.accept(alone, None, edge.now) == 0


def test_records_soon_after_an_append_wait_for_the_next_batch() -> None:
    edge = EdgeAtLog(is_gathering=True)
    edge.asked_back.clear()
    for body in (b"1", b"2", b"3"):
        edge.publish(body)
        edge.turn(APPEND_INTERVAL_NS // 4)
    assert edge.forwarded() == [b"1"]
    assert edge.asked_back == [APPEND_INTERVAL_NS * 3 / 4 / 1e9, APPEND_INTERVAL_NS / 2 / 1e9]
    edge.turn(APPEND_INTERVAL_NS // 2)
    assert edge.forwarded() == [b"1", b"2", b"3"]


def test_a_tick_without_records_requests_no_other_tick() -> None:
    edge = EdgeAtLog(is_gathering=True)
    edge.asked_back.clear()
    edge.publish(b"1")
    for _ in range(8):
        edge.turn(APPEND_INTERVAL_NS // 4)
    assert edge.forwarded() == [b"1"]
    assert edge.asked_back == []


def test_a_clock_set_back_delays_no_append() -> None:
    edge = EdgeAtLog(is_gathering=True)
    edge.publish(b"1")
    edge.turn(0)
    edge.publish(b"2")
    edge.turn(-APPEND_INTERVAL_NS)
    edge.publish(b"3")
    edge.turn(-APPEND_INTERVAL_NS)
    edge.turn(0)
    assert edge.forwarded()[:2] == [b"1", b"2"]


def test_a_handover_is_logged_in_one_line() -> None:
    edge = EdgeAtLog()
    other, car = edge.store.open(), EndpointId("car")
    handover = Handover(car, Epoch(edge.now), OTHER, edge.member.state.edge, 1, expiry_ns=SECOND_NS)
    other.append([Entry(CROSS_HUB, str(handover.receiver), to_record(handover))])
    edge.store.run_all()
    edge.settle()
    assert edge.logger.events.count("session moved") == 1


def test_the_edge_is_reported_as_announced_once_and_only_when_the_log_has_its_record() -> None:
    edge = EdgeAtLog()
    (keys,) = edge.keys_when_announced
    assert edge_key(edge.member.state.edge) in keys


def test_an_edge_is_not_announced_before_the_log_has_confirmed_the_record() -> None:
    member = SiteMember(Broker(SMALL), EdgeRef("north", "c"), SiteLimits())
    assert not member.is_announced
    member.caught_up(SUBSCRIPTION_INFO, START)
    member.caught_up(VEHICLE_INFO, START)
    appends = member.state.outbox.take_batch()
    assert edge_key(EdgeRef("north", "c")) in [one.key for one in appends]
    assert not member.is_announced
    member.appended(appends, START)
    assert member.is_announced
