"""Through the log of a site: reports and what became of area messages get there, reputations come from there (M27)."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from milepost.broker.broker import Opened
from milepost.broker.publication import Publication
from milepost.broker.session import Link, Session
from milepost.config.errors import UsageFault
from milepost.config.settings import settings_from
from milepost.eventlog.log import Entry
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.pipeline_records import DELIVERIES, PIPELINES, REPORTS, REPUTATION
from milepost.model.places import Place
from milepost.model.queries import OnTopic
from milepost.model.reports import Report
from milepost.model.sites import SUBSCRIPTION_INFO, EdgeRef, Interest, interest_key, publish_to
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED
from milepost.wire.records import to_record
from unit.runtime.test_membership import EdgeAtLog

HOME = Place(40.7608, -111.891)


def arrived(edge: EdgeAtLog) -> Session:
    """A car that has reported where it is."""
    opened = edge.broker.connect(
        EndpointId("car"),
        who=ClientIdentity(EndpointId("car")),
        rates=UNLIMITED,
        link=Link(),
        is_fresh=True,
        expiry_ns=0,
        window=8,
        encoding=1,
        will=None,
        now=edge.now,
    )
    assert isinstance(opened, Opened)
    assert edge.broker.report(opened.session, Report(EndpointId("car"), HOME, edge.now), edge.now) is None
    return opened.session


def records(edge: EdgeAtLog, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(record.value or b"") for record in edge.store._topics[topic].records]


def test_a_report_stands_in_the_log() -> None:
    edge = EdgeAtLog()
    arrived(edge)
    edge.settle()
    (told,) = records(edge, REPORTS)
    assert (told["edge"], told["endpoints"], told["verdicts"]) == ("north/a", ["car"], [0])


def test_what_became_of_an_area_message_stands_in_the_log_under_its_id() -> None:
    edge = EdgeAtLog()
    session = arrived(edge)
    want(edge, PIPELINES)
    publication = Publication(
        "t/a", b"x", edge.now, source=EndpointId("town"), origin=9, qos=1, address=ToArea(Circle(HOME, 500))
    )
    assert edge.broker.accept(publication, None, edge.now) == 1
    edge.settle()
    edge.broker.deliveries.acknowledge(session, next(iter(session.in_flight)))
    edge.turn(1_000_000_000)
    edge.settle()
    told = records(edge, DELIVERIES)
    assert [state for one in told for state in one["states"]] == ["matched", "sent", "acknowledged"]
    (said,) = records(edge, publish_to(PIPELINES))
    assert {one["id"] for one in told} == {said["message"]["id"]} != {"0"}


def want(edge: EdgeAtLog, handler: str) -> None:
    """Somebody asks for all messages."""
    me, owner = EdgeRef("north", f"@{handler}"), EndpointId(f"@{handler}")
    wanted = to_record(Interest(me, Subscription(owner, OnTopic("#"))))
    edge.store.open().append([Entry(SUBSCRIPTION_INFO, interest_key(me, owner, "#"), wanted)])
    edge.settle()


@pytest.mark.parametrize(("handler", "count"), [(PIPELINES, 1), ("weather", 0)])
def test_pipelines_get_area_messages_that_they_ask_for_and_other_handlers_do_not(handler: str, count: int) -> None:
    edge = EdgeAtLog()
    want(edge, handler)
    publication = Publication(
        "t/a", b"x", edge.now, source=EndpointId("town"), origin=9, qos=1, address=ToArea(Circle(HOME, 500))
    )
    assert edge.broker.accept(publication, None, edge.now) == 0
    edge.settle()
    topic = edge.store._topics.get(publish_to(handler))
    assert (0 if topic is None else len(topic.records)) == count


def test_a_message_that_unpublishes_another_passes_like_any_other() -> None:
    edge = EdgeAtLog()
    want(edge, PIPELINES)
    publication = Publication("Unpublish", b"", edge.now, source=EndpointId("town"), origin=9, qos=1, fields={"id": "17"})
    edge.broker.accept(publication, None, edge.now)
    edge.settle()
    (said,) = records(edge, publish_to(PIPELINES))
    assert (said["message"]["topic"], said["message"]["fields"]) == ("Unpublish", {"id": "17"})


def test_reputations_come_from_the_log_those_from_before_the_edge_too() -> None:
    edge = EdgeAtLog()
    session = arrived(edge)
    score = orjson.dumps({"type": "reputation", "endpoint": "car", "score": 0.25, "at_us": 1, "reasons": []})
    edge.store.open().append([Entry(REPUTATION, "car", score)])
    edge.settle()
    assert edge.broker.watch.share_of(session.number) == 0.25


def test_an_edge_of_a_site_has_no_file_of_reputations() -> None:
    with pytest.raises(UsageFault, match="reputation"):
        settings_from('site.name = "north"\nvetting.reputation = "r.json"', source="m.toml", folder=Path())
