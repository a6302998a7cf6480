"""Endpoints that are let in at once wherever they appear, as those that speak UDP are; what they left behind is merged later."""

from typing import TYPE_CHECKING

from milepost.broker.broker import Opened
from milepost.broker.retained_store import WantsRetained
from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost.model.queries import OnTopic
from milepost.model.reports import Report
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED
from simulation.roaming.ledger import Account, Receipt
from simulation.roaming.plain_door import DIALECT, PlainLink

if TYPE_CHECKING:
    from simulation.roaming.nodes import EdgeNode, EdgeProcess
    from simulation.roaming.world import World

WINDOW = 8


class Driver:
    """One of them. Its session ends with its edge: then nothing is promised."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = EndpointId(name)
        self.account = world.ledger.accounts[name] = Account(name, is_waiting=False)
        self.connections = 0
        self._node: EdgeNode | None = None
        self._process: EdgeProcess | None = None
        self._link = PlainLink()
        self._been_at: set[str] = set()

    @property
    def is_open(self) -> bool:
        node = self._node
        return node is not None and node.process is self._process and not self._link.is_over

    def connect(self, node: "EdgeNode") -> None:
        """Appear at an edge."""
        process = node.process
        if process is None or node.is_paused:
            return
        if self.is_open and node is self._node:
            return
        if process.broker.sessions.maybe(self.name) is not None:  # it ends, with what was on its way
            self.account.begin_anew(self.world.now, is_asking=True)
        self.connections += 1
        self._node, self._process, self._link = node, process, PlainLink()
        self._been_at.add(str(node.ref))
        opened = process.broker.connect(
            self.name,
            who=ClientIdentity(self.name),
            rates=UNLIMITED,
            link=self._link,
            is_fresh=False,
            expiry_ns=0,
            window=WINDOW,
            encoding=DIALECT,
            will=None,
            now=node.now,
        )
        assert isinstance(opened, Opened)
        self._link.session = opened.session
        if self.connections > 1:
            self.account.merges[self.connections] = self.world.now
        self.world.note(f"{self.name} drives to {node.ref}")
        process.wants_turn = True
        for wish in self.account.current:
            self._subscribe(wish.filter, wish.qos)
            wish.is_granted = True

    def subscribe(self, topic_filter: str, qos: int) -> None:
        if self.is_open:
            self.account.wish(topic_filter, qos, self.world.now)
            self.account.grant(((topic_filter, qos),))
            self._subscribe(topic_filter, qos)

    def _subscribe(self, topic_filter: str, qos: int) -> None:
        node, session = self._node, self._link.session
        assert node is not None
        assert self._process is not None
        assert session is not None
        asked = Subscription(self.name, OnTopic(topic_filter), qos=qos)
        refused = self._process.broker.subscribe(session, topic_filter, asked, node.now, wants_retained=WantsRetained.NEVER)
        assert refused is None, refused

    def report(self, latitude: float, longitude: float) -> None:
        """Say where it is."""
        session, node = self._link.session, self._node
        if self.is_open and node is not None and session is not None and self._process is not None:
            self._process.broker.report(session, Report(self.name, Place(latitude, longitude), node.now), node.now)
            self._process.wants_turn = True

    @property
    def has_news(self) -> bool:
        return self.is_open and bool(self._link.came)

    def look(self) -> None:
        """Take what came, and acknowledge it, if the edge is there to hear it."""
        if not self.is_open or self._node is None or self._process is None or self._node.is_paused:
            return
        session = self._link.session
        assert session is not None
        came, self._link.came = self._link.came, []
        for number, body, _, _ in came:
            receipt = Receipt(body, number, False, self.connections)
            self.world.note(f"{self.name} gets {body[:20]!r} number {number}")
            self.account.receipts.append(receipt)
            if number and session.link is self._link:
                self._process.broker.deliveries.acknowledge(session, number)
                self._process.unsettled.append(receipt)
        self._process.wants_turn = True

    def on_kill(self, node: "EdgeNode") -> None:
        """An edge is no more: if it had something of this endpoint, that is no more, too."""
        if str(node.ref) in self._been_at:
            self.account.begin_anew(self.world.now, is_asking=True)
