"""Endpoints that are admitted at once at every edge, like UDP endpoints; their earlier sessions are merged later."""

from typing import TYPE_CHECKING

from milepost.broker.broker import ConnectResult
from milepost.broker.retained_store import RetainHandling
from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost.model.queries import OnTopic
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED
from simulation.roaming.ledger import Account, Receipt
from simulation.roaming.plain_listener import ENCODING, PlainConnection

if TYPE_CHECKING:
    from simulation.roaming.nodes import EdgeNode, EdgeProcess
    from simulation.roaming.world import World

WINDOW = 8


class NonWaitingClient:
    """An endpoint whose session ends with its edge: then nothing is promised."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = EndpointId(name)
        self.role: str | None = None
        """The role in its certificate; None: it is anonymous."""
        self.account = world.ledger.accounts[name] = Account(name, is_waiting=False)
        self.connections = 0
        self._node: EdgeNode | None = None
        self._process: EdgeProcess | None = None
        self._link = PlainConnection()
        self._been_at: set[str] = set()

    @property
    def is_open(self) -> bool:
        node = self._node
        return node is not None and node.process is self._process and not self._link.is_over

    def connect(self, node: "EdgeNode") -> None:
        """Connect to an edge."""
        process = node.process
        if process is None or node.is_paused:
            return
        if self.is_open and node is self._node:
            return
        if process.broker.sessions.find(self.name) is not None:  # it ends, with the messages in transit
            self.account.start_clean(self.world.now, resubscribes=True)
        self.connections += 1
        self._node, self._process, self._link = node, process, PlainConnection()
        self._been_at.add(str(node.ref))
        opened = process.broker.connect(
            self.name,
            identity=ClientIdentity(self.name, None, self.role),
            rates=UNLIMITED,
            connection=self._link,
            clean_start=False,
            expiry_ns=0,
            window=WINDOW,
            encoding=ENCODING,
            will=None,
            now=node.now,
        )
        assert isinstance(opened, ConnectResult)
        self._link.session = opened.session
        if self.connections > 1:
            self.account.merges[self.connections] = self.world.now
            self.account.merge_sites[self.connections] = node.ref.site
        self.world.note(f"{self.name} connects to {node.ref}")
        process.has_work = True
        for subscription in self.account.current:
            self._subscribe(subscription.filter, subscription.qos)
            subscription.is_granted = True

    def subscribe(self, topic_filter: str, qos: int) -> None:
        if self.is_open:
            self.account.add_subscription(topic_filter, qos, self.world.now)
            self.account.grant(((topic_filter, qos),))
            self._subscribe(topic_filter, qos)

    def _subscribe(self, topic_filter: str, qos: int) -> None:
        node, session = self._node, self._link.session
        assert node is not None
        assert self._process is not None
        assert session is not None
        subscription = Subscription(self.name, OnTopic(topic_filter), qos=qos)
        refused = self._process.broker.subscribe(
            session, topic_filter, subscription, node.now, retain_handling=RetainHandling.NEVER
        )
        assert refused is None, refused

    def report(self, latitude: float, longitude: float) -> None:
        """Report its position."""
        session, node = self._link.session, self._node
        if self.is_open and node is not None and session is not None and self._process is not None:
            self._process.broker.report(session, Report(self.name, Place(latitude, longitude), node.now), node.now)
            self._process.has_work = True

    @property
    def has_input(self) -> bool:
        return self.is_open and bool(self._link.received)

    def read_input(self) -> None:
        """Read the received messages and acknowledge them, if the edge is running."""
        if not self.is_open or self._node is None or self._process is None or self._node.is_paused:
            return
        session = self._link.session
        assert session is not None
        received, self._link.received = self._link.received, []
        for number, body, _, _ in received:
            receipt = Receipt(body, number, False, self.connections)
            self.world.note(f"{self.name} gets {body[:20]!r} number {number}")
            self.account.receipts.append(receipt)
            if number and session.connection is self._link:
                self._process.broker.deliveries.acknowledge(session, number)
                self._process.unconfirmed.append(receipt)
        self._process.has_work = True

    def on_kill(self, node: "EdgeNode") -> None:
        """Handle the end of an edge: state of this endpoint there is lost."""
        if str(node.ref) in self._been_at:
            self.account.start_clean(self.world.now, resubscribes=True)
