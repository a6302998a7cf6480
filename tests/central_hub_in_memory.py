"""Sites, their logs and processes of the centre, all in memory and in one thread, with a clock that only tests move."""

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
from milepost.model.sites import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    Claim,
    EdgeInfo,
    EdgeRef,
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


class CentreProcess:
    """One process of the centre."""

    def __init__(self, sites: "Sites", name: str) -> None:
        self.told: list[tuple[str, str, str]] = []
        self._calls: deque[Callable[[Instant], None]] = deque()
        self._sites = sites
        self.logs: dict[str, MemoryLog] = {site: store.open() for site, store in sites.stores.items()}
        self.centre = CentralHub(name, sites.stores)
        self.link = HubLink(self.centre, self.logs, self._calls.append, tell=lambda *words: self.told.append(words))
        self.link.begin()

    @property
    def is_busy(self) -> bool:
        """Whether something was handed over."""
        return bool(self._calls)

    def turn(self) -> None:
        """Do what was handed over."""
        while self._calls:
            self._calls.popleft()(self._sites.now)

    def kill(self) -> None:
        """As SIGKILL does: what it has appended and was not told of is lost."""
        for log in self.logs.values():
            log.kill()
        self._sites.processes.remove(self)


class Sites:
    """Some sites and whoever joins them."""

    def __init__(self, *names: str) -> None:
        self.now = START
        self.stores = {name: MemoryStore(lambda: self.now) for name in names}
        self.processes: list[CentreProcess] = []
        self._logs = {name: store.open() for name, store in self.stores.items()}
        self._numbers = iter(range(START, START + 1_000_000))

    def start_centre(self, name: str = "centre") -> CentreProcess:
        """One more process, which has read all there is and got its share of the sites."""
        process = self.new_process(name)
        self.processes.append(process)
        self.settle()
        return process

    def new_process(self, name: str) -> CentreProcess:
        """A process that has just begun."""
        return CentreProcess(self, name)

    def settle(self) -> None:
        """Let everything happen until nothing happens any more, in no time."""
        for _ in range(ROUNDS_MAX):
            for process in list(self.processes):
                process.turn()
                process.link.tick(self.now)
            steps = [step for store in self.stores.values() for step in store.ready() if step.kind is not StepKind.CLEAN]
            for step in steps:
                step.run()
            if not steps and not any(process.is_busy for process in self.processes):
                return
        raise AssertionError("it never ends")

    def pass_s(self, seconds: float) -> None:
        """Let time go by."""
        end = Instant(self.now + int(seconds * SECOND_NS))
        while self.now < end:
            self.now = Instant(min(end, self.now + SECOND_NS // 2))
            self.settle()

    def append(self, site: str, topic: str, key: str, value: SiteRecord | bytes | None) -> None:
        """Append a record as an edge would."""
        data = value if isinstance(value, bytes | None) else to_record(value)
        self._logs[site].append([Entry(topic, key, data)])

    def records(self, site: str, topic: str = CROSS_HUB) -> list[Record]:
        """All that stands in a topic."""
        first, end = self._logs[site].ends(topic)
        return self._logs[site].read(topic, first, end - first) if end > first else []

    def values(self, site: str, topic: str = CROSS_HUB) -> list[SiteRecord]:
        """The same, read."""
        return [from_record(record.value) for record in self.records(site, topic) if record.value is not None]

    def table(self, site: str, topic: str = SUBSCRIPTION_INFO) -> dict[str, SiteRecord]:
        """What stands in a compacted topic, but for signs of life."""
        last = {record.key: record.value for record in self.records(site, topic)}
        return {key: from_record(value) for key, value in last.items() if value is not None and key != "@@centre"}

    def heard(self, site: str) -> list[str]:
        """The topics of all that an edge of the site takes from its cross-hub, in order: what is not higher is dropped."""
        found: list[str] = []
        cursors: dict[EdgeRef, int] = {}
        for value in self.values(site):
            if isinstance(value, ForwardedMessage) and value.number > cursors.get(value.sender, 0):
                cursors[value.sender] = value.number
                found.append(value.message.topic)
        return found

    # What edges say

    def number(self) -> int:
        """A number higher than all before."""
        return next(self._numbers)

    def said(self, edge: str, topic: str, **options: object) -> ForwardedMessage:
        """Something said at an edge, appended to the cross-hub of its site."""
        said = say(ref(edge), self.number(), topic, **options)  # type: ignore[arg-type]
        self.append(said.sender.site, CROSS_HUB, "", said)
        return said

    def wants(self, edge: str, endpoint: str, query: str, **options: object) -> None:
        """An edge says that an endpoint wants something."""
        subscription = Subscription(EndpointId(endpoint), parse_query(query), **options)  # type: ignore[arg-type]
        key = interest_key(ref(edge), endpoint, query)
        self.append(ref(edge).site, SUBSCRIPTION_INFO, key, Interest(ref(edge), subscription))

    def wants_no_more(self, edge: str, endpoint: str, query: str) -> None:
        """An edge takes it back."""
        self.append(ref(edge).site, SUBSCRIPTION_INFO, interest_key(ref(edge), endpoint, query), None)

    def claims(self, edge: str, endpoint: str, epoch: int, **options: object) -> None:
        """An endpoint appears at an edge."""
        claim = Claim(EndpointId(endpoint), ref(edge), Epoch(epoch), **options)  # type: ignore[arg-type]
        self.append(ref(edge).site, VEHICLE_INFO, claim_key(endpoint, ref(edge)), claim)

    def goes(self, edge: str, endpoint: str) -> None:
        """An edge has nothing of an endpoint any more."""
        self.append(ref(edge).site, VEHICLE_INFO, claim_key(endpoint, ref(edge)), None)

    def covers(self, edge: str, info: EdgeInfo | None) -> None:
        """An edge describes itself, or is no more."""
        self.append(ref(edge).site, SUBSCRIPTION_INFO, edge_key(ref(edge)), info)

    def hands_over(self, sender: str, receiver: str, endpoint: str, queries: Iterable[str], **options: object) -> Handover:
        """An edge hands an endpoint over."""
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

    def takes(self, sender: str, receiver: str, endpoint: str, queries: Iterable[str]) -> None:
        """An edge says that it has taken a handover."""
        taken = HandoverTaken(EndpointId(endpoint), Epoch(1), ref(sender), ref(receiver), self.number(), held(endpoint, queries))
        self.append(taken.sender.site, CROSS_HUB, receiver, taken)


def ref(text: str) -> EdgeRef:
    """An edge by its name."""
    site, _, edge = text.partition("/")
    return EdgeRef(site, edge)


def held(endpoint: str, queries: Iterable[str]) -> tuple[HeldSubscription, ...]:
    """Subscriptions as a session has them."""
    return tuple(HeldSubscription(query, Subscription(EndpointId(endpoint), parse_query(query))) for query in queries)


def say(
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
    """A message that left its edge."""
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
