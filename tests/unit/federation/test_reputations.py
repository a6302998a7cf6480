"""Reputations from the log of the site: those who are here and those who come have so much less of their rates (M27)."""

import orjson

from edge_in_memory import START
from milepost.broker.broker import Broker, Opened
from milepost.broker.limits import Limits
from milepost.broker.session import Link, Session
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.model.endpoints import EndpointId
from milepost.model.pipeline_records import REPUTATION
from milepost.model.sites import EdgeRef, LoggedRecord
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED


class Edge:
    """An edge of a site that hears reputations."""

    def __init__(self) -> None:
        self.broker = Broker(Limits(sessions_max=64, subscriptions_max=16))
        self.member = SiteMember(self.broker, EdgeRef("north", "a"), SiteLimits())

    def open(self, name: str) -> Session:
        opened = self.broker.connect(
            EndpointId(name),
            who=ClientIdentity(EndpointId(name)),
            rates=UNLIMITED,
            link=Link(),
            is_fresh=True,
            expiry_ns=0,
            window=1,
            encoding=1,
            will=None,
            now=START,
        )
        assert isinstance(opened, Opened)
        return opened.session

    def hear(self, *scores: tuple[str, float | None]) -> None:
        records = [
            LoggedRecord(at, name, None if score is None else record(name, score), START)
            for at, (name, score) in enumerate(scores)
        ]
        self.member.on_records(REPUTATION, records, START)

    def share_of(self, session: Session) -> float:
        return round(self.broker.watch.share_of(session.number), 4)


def record(name: str, score: float) -> bytes:
    return orjson.dumps({"type": "reputation", "endpoint": name, "score": score, "at_us": 1, "reasons": []})


def test_the_topic_is_read_from_its_beginning() -> None:
    assert Edge().member.starts()[REPUTATION] is None


def test_who_is_here_and_who_comes_later_has_its_share() -> None:
    edge = Edge()
    here, other = edge.open("here"), edge.open("other")
    edge.hear(("here", 0.25), ("coming", 0.5))
    assert [edge.share_of(one) for one in (here, other, edge.open("coming"))] == [0.25, 1.0, 0.5]


def test_who_is_believed_again_has_all_of_it() -> None:
    edge = Edge()
    one, other = edge.open("one"), edge.open("other")
    edge.hear(("one", 0.25), ("other", 0.5))
    edge.hear(("one", None), ("other", 1.0))
    assert [edge.share_of(session) for session in (one, other)] == [1.0, 1.0]
    assert edge.member.scores.known == {}


def test_a_record_that_is_none_changes_nothing_but_a_count() -> None:
    edge = Edge()
    session = edge.open("one")
    edge.hear(("one", 0.5))
    wrong = [b"nonsense", record("another", 0.1), record("one", 7.0)]
    edge.member.on_records(REPUTATION, [LoggedRecord(at, "one", value, START) for at, value in enumerate(wrong)], START)
    assert edge.share_of(session) == 0.5
    assert edge.member.state.counts["unreadable"] == 3
