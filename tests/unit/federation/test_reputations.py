"""Reputations from the log of the site: a low one reduces the rates of present and later sessions (M27)."""

import orjson

from edge_in_memory import START
from milepost.broker.broker import Broker, ConnectResult
from milepost.broker.limits import BrokerLimits
from milepost.broker.session import Connection, Session
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.endpoints import EndpointId
from milepost.model.pipeline_records import REPUTATION
from milepost.model.site_records import EdgeRef, LoggedRecord
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED


class Edge:
    """An edge of a site that reads reputations."""

    def __init__(self) -> None:
        self.broker = Broker(BrokerLimits(sessions_max=64, subscriptions_max=16))
        self.member = SiteMember(self.broker, EdgeRef("north", "a"), SiteLimits())

    def open(self, name: str) -> Session:
        opened = self.broker.connect(
            EndpointId(name),
            identity=ClientIdentity(EndpointId(name)),
            rates=UNLIMITED,
            connection=Connection(),
            clean_start=True,
            expiry_ns=0,
            window=1,
            encoding=1,
            will=None,
            now=START,
        )
        assert isinstance(opened, ConnectResult)
        return opened.session

    def read_scores(self, *scores: tuple[str, float | None]) -> None:
        records = [
            LoggedRecord(at, name, None if score is None else record(name, score), START)
            for at, (name, score) in enumerate(scores)
        ]
        self.member.on_records(REPUTATION, records, START)

    def share_of(self, session: Session) -> float:
        return round(self.broker.presence.share_of(session.number), 4)


def record(name: str, score: float) -> bytes:
    return orjson.dumps({"type": "reputation", "endpoint": name, "score": score, "at_us": 1, "reasons": []})


def test_the_reputation_topic_is_read_from_its_beginning() -> None:
    assert Edge().member.starts()[REPUTATION] is None


def test_a_reputation_limits_the_rate_of_present_and_later_sessions() -> None:
    edge = Edge()
    here, other = edge.open("here"), edge.open("other")
    edge.read_scores(("here", 0.25), ("coming", 0.5))
    assert [edge.share_of(one) for one in (here, other, edge.open("coming"))] == [0.25, 1.0, 0.5]


def test_a_restored_reputation_restores_the_full_rate() -> None:
    edge = Edge()
    one, other = edge.open("one"), edge.open("other")
    edge.read_scores(("one", 0.25), ("other", 0.5))
    edge.read_scores(("one", None), ("other", 1.0))
    assert [edge.share_of(session) for session in (one, other)] == [1.0, 1.0]
    assert edge.member.scores.known == {}


def test_an_unreadable_reputation_is_only_counted() -> None:
    edge = Edge()
    session = edge.open("one")
    edge.read_scores(("one", 0.5))
    wrong = [b"nonsense", record("another", 0.1), record("one", 7.0)]
    edge.member.on_records(REPUTATION, [LoggedRecord(at, "one", value, START) for at, value in enumerate(wrong)], START)
    assert edge.share_of(session) == 0.5
    assert edge.member.state.counts["unreadable"] == 3
