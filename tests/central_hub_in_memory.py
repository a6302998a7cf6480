"""Sites, their logs and processes of the central hub, all in memory and in one thread, with a clock that only tests advance."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from milepost.eventlog.log import Entry, Record
from milepost.eventlog.memory import MemoryLog, MemoryStore, StepKind
from milepost.federation.central_hub import CentralHub
from milepost.model.addresses import Address, ToContent
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.queries import parse_query
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeInfo,
    EdgeRef,
    EndpointClaim,
    Epoch,
    ForwardedMessage,
    Handover,
    HandoverTaken,
    HeldSubscription,
    Interest,
    SiteRecord,
    claim_key,
    edge_key,
    interest_key,
)
from milepost.model.subscriptions import Subscription
from milepost.model.tags import Tag
from milepost.runtime.hub_logs import HubLink
from milepost.wire.records import from_record, to_record

START: Final = Instant(1_800_000_000 * SECOND_NS)
ROUNDS_MAX: Final = 10_000


class HubProcess:
    """One process of the central hub."""

    def __init__(self, sites: "Sites", name: str) -> None:
        self.log_events: list[tuple[str, str, str]] = []
        self._calls: deque[Callable[[Instant], None]] = deque()
        self._sites = sites
        self.logs: dict[str, MemoryLog] = {site: store.open() for site, store in sites.stores.items()}
        self.hub = CentralHub(name, sites.stores)
        self.link = HubLink(
            self.hub, self.logs, self._calls.append, on_event=lambda *arguments: self.log_events.append(arguments)
        )
        self.link.begin()

    @property
    def is_busy(self) -> bool:
        """Whether calls are pending."""
        return bool(self._calls)

    def run_calls(self) -> None:
        """Run the pending calls."""
        while self._calls:
            self._calls.popleft()(self._sites.now)

    def kill(self) -> None:
        """Stop like a process killed by SIGKILL: unconfirmed appends are lost."""
        for log in self.logs.values():
            log.kill()
        self._sites.processes.remove(self)


class Sites:
    """Some sites and the hub processes that join them."""

    def __init__(self, *names: str) -> None:
        self.now = START
        self.stores = {name: MemoryStore(lambda: self.now) for name in names}
        self.processes: list[HubProcess] = []
        self._logs = {name: store.open() for name, store in self.stores.items()}
        self._numbers = iter(range(START, START + 1_000_000))

    def start_hub(self, name: str = "hub") -> HubProcess:
        """Start one more process; it has read all topics and got its share of the sites."""
        process = self.new_process(name)
        self.processes.append(process)
        self.run_until_idle()
        return process

    def new_process(self, name: str) -> HubProcess:
        """Return a process that has just started."""
        return HubProcess(self, name)

    def run_until_idle(self) -> None:
        """Run all calls and steps until none is left; the clock does not advance."""
        for _ in range(ROUNDS_MAX):
            for process in list(self.processes):
                process.run_calls()
                process.link.tick(self.now)
            steps = [step for store in self.stores.values() for step in store.ready() if step.kind is not StepKind.CLEAN]
            for step in steps:
                step.run()
            if not steps and not any(process.is_busy for process in self.processes):
                return
        raise AssertionError("the system does not become idle")

    def pass_s(self, seconds: float) -> None:
        """Advance the clock."""
        end = Instant(self.now + int(seconds * SECOND_NS))
        while self.now < end:
            self.now = Instant(min(end, self.now + SECOND_NS // 2))
            self.run_until_idle()

    def append(self, site: str, topic: str, key: str, value: SiteRecord | bytes | None) -> None:
        """Append a record as an edge would."""
        data = value if isinstance(value, bytes | None) else to_record(value)
        self._logs[site].append([Entry(topic, key, data)])

    def records(self, site: str, topic: str = CROSS_HUB) -> list[Record]:
        """Return all records of a topic."""
        first, end = self._logs[site].ends(topic)
        return self._logs[site].read(topic, first, end - first) if end > first else []

    def values(self, site: str, topic: str = CROSS_HUB) -> list[SiteRecord]:
        """Return all records of a topic, decoded."""
        return [from_record(record.value) for record in self.records(site, topic) if record.value is not None]

    def table(self, site: str, topic: str = SUBSCRIPTION_INFO) -> dict[str, SiteRecord]:
        """Return the last value of each key of a compacted topic, without heartbeats."""
        last = {record.key: record.value for record in self.records(site, topic)}
        return {key: from_record(value) for key, value in last.items() if value is not None and key != "@@hub"}

    def received_topics(self, site: str) -> list[str]:
        """Return the topics of the messages that an edge accepts from cross-hub, in order; it drops numbers below its cursor."""
        found: list[str] = []
        cursors: dict[EdgeRef, int] = {}
        for value in self.values(site):
            if isinstance(value, ForwardedMessage) and value.number > cursors.get(value.sender, 0):
                cursors[value.sender] = value.number
                found.append(value.message.topic)
        return found

    # Records of edges

    def number(self) -> int:
        """Return a number above all earlier ones."""
        return next(self._numbers)

    def publish(self, edge: str, topic: str, **options: object) -> ForwardedMessage:
        """Append a message published at an edge to the cross-hub of its site."""
        message = forwarded(ref(edge), self.number(), topic, **options)  # type: ignore[arg-type]
        self.append(message.sender.site, CROSS_HUB, "", message)
        return message

    def subscribe(self, edge: str, endpoint: str, query: str, **options: object) -> None:
        """Announce a subscription of an endpoint at an edge."""
        subscription = Subscription(EndpointId(endpoint), parse_query(query), **options)  # type: ignore[arg-type]
        key = interest_key(ref(edge), endpoint, query)
        self.append(ref(edge).site, SUBSCRIPTION_INFO, key, Interest(ref(edge), subscription))

    def unsubscribe(self, edge: str, endpoint: str, query: str) -> None:
        """Withdraw a subscription."""
        self.append(ref(edge).site, SUBSCRIPTION_INFO, interest_key(ref(edge), endpoint, query), None)

    def claim(self, edge: str, endpoint: str, epoch: int, **options: object) -> None:
        """Claim an endpoint for an edge."""
        claim = EndpointClaim(EndpointId(endpoint), ref(edge), Epoch(epoch), **options)  # type: ignore[arg-type]
        self.append(ref(edge).site, VEHICLE_INFO, claim_key(endpoint, ref(edge)), claim)

    def withdraw_claim(self, edge: str, endpoint: str) -> None:
        """Withdraw the claim of an edge."""
        self.append(ref(edge).site, VEHICLE_INFO, claim_key(endpoint, ref(edge)), None)

    def describe_edge(self, edge: str, info: EdgeInfo | None) -> None:
        """Announce an edge, or with None its removal."""
        self.append(ref(edge).site, SUBSCRIPTION_INFO, edge_key(ref(edge)), info)

    def hand_over(self, sender: str, receiver: str, endpoint: str, queries: Iterable[str], **options: object) -> Handover:
        """Append a handover."""
        number = self.number()
        handover = Handover(
            EndpointId(endpoint),
            Epoch(1),
            ref(sender),
            ref(receiver),
            number,
            subscriptions=held(endpoint, queries),
            as_of=self.now,
            **options,  # type: ignore[arg-type]
        )
        self.append(handover.sender.site, CROSS_HUB, receiver, handover)
        return handover

    def confirm_handover(self, sender: str, receiver: str, endpoint: str, queries: Iterable[str]) -> None:
        """Append the confirmation of a handover."""
        taken = HandoverTaken(EndpointId(endpoint), Epoch(1), ref(sender), ref(receiver), self.number(), held(endpoint, queries))
        self.append(taken.sender.site, CROSS_HUB, receiver, taken)


def ref(text: str) -> EdgeRef:
    """Return an edge by its name."""
    site, _, edge = text.partition("/")
    return EdgeRef(site, edge)


def held(endpoint: str, queries: Iterable[str]) -> tuple[HeldSubscription, ...]:
    """Return subscriptions as stored in a session."""
    return tuple(HeldSubscription(query, Subscription(EndpointId(endpoint), parse_query(query))) for query in queries)


def forwarded(
    sender: EdgeRef,
    number: int,
    topic: str,
    *,
    to: Address | None = None,
    tags: frozenset[Tag] = frozenset(),
    place: Place | None = None,
    retained: bool = False,
    direct: tuple[str, ...] = (),
    body: bytes = b"",
) -> ForwardedMessage:
    """Return a message forwarded by its edge."""
    message = Message(
        MessageId(1),
        EndpointId("someone"),
        topic,
        START,
        tags=tags,
        address=to or ToContent(),
        place=place,
        body=body,
    )
    return ForwardedMessage(sender, number, message, is_retained=retained, direct=direct)
