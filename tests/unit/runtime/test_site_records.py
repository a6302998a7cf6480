"""The log of a site: reports and deliveries of area messages are appended, reputations are read from it (M27)."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from milepost.broker.broker import ConnectResult
from milepost.broker.publication import Publication
from milepost.broker.session import Connection, Session
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
from milepost.model.site_records import SUBSCRIPTION_INFO, EdgeRef, Interest, handler_topic, interest_key
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED
from milepost.wire.records import to_record
from unit.runtime.test_membership import EdgeAtLog

HOME = Place(40.7608, -111.891)


def arrived(edge: EdgeAtLog) -> Session:
    """A car that has reported its position."""
    opened = edge.broker.connect(
        EndpointId("car"),
        identity=ClientIdentity(EndpointId("car")),
        rates=UNLIMITED,
        connection=Connection(),
        clean_start=True,
        expiry_ns=0,
        window=8,
        encoding=1,
        will=None,
        now=edge.now,
    )
    assert isinstance(opened, ConnectResult)
    assert edge.broker.report(opened.session, Report(EndpointId("car"), HOME, edge.now), edge.now) is None
    return opened.session


def records(edge: EdgeAtLog, topic: str) -> list[dict[str, Any]]:
    return [orjson.loads(record.value or b"") for record in edge.store._topics[topic].records]


def test_a_report_is_appended_to_the_log() -> None:
    edge = EdgeAtLog()
    arrived(edge)
    edge.settle()
    (record,) = records(edge, REPORTS)
    assert (record["edge"], record["endpoints"], record["verdicts"]) == ("north/a", ["car"], [0])


def test_the_deliveries_of_an_area_message_are_appended_to_the_log() -> None:
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
    record = records(edge, DELIVERIES)
    assert [state for one in record for state in one["states"]] == ["matched", "sent", "acknowledged"]
    (forwarded,) = records(edge, handler_topic(PIPELINES))
    assert {one["id"] for one in record} == {forwarded["message"]["id"]} != {"0"}


def want(edge: EdgeAtLog, handler: str) -> None:
    """Subscribe a handler to all messages."""
    me, owner = EdgeRef("north", f"@{handler}"), EndpointId(handler)
    interest = to_record(Interest(me, Subscription(owner, OnTopic("#"))))
    edge.store.open().append([Entry(SUBSCRIPTION_INFO, interest_key(me, owner, "#"), interest)])
    edge.settle()


@pytest.mark.parametrize(("handler", "count"), [(PIPELINES, 1), ("weather", 0)])
def test_pipelines_get_area_messages_that_they_subscribe_to_and_handlers_do_not(handler: str, count: int) -> None:
    edge = EdgeAtLog()
    want(edge, handler)
    publication = Publication(
        "t/a", b"x", edge.now, source=EndpointId("town"), origin=9, qos=1, address=ToArea(Circle(HOME, 500))
    )
    assert edge.broker.accept(publication, None, edge.now) == 0
    edge.settle()
    topic = edge.store._topics.get(handler_topic(handler))
    assert (0 if topic is None else len(topic.records)) == count


def test_an_unpublish_message_is_forwarded_like_any_other() -> None:
    edge = EdgeAtLog()
    want(edge, PIPELINES)
    publication = Publication("Unpublish", b"", edge.now, source=EndpointId("town"), origin=9, qos=1, fields={"id": "17"})
    edge.broker.accept(publication, None, edge.now)
    edge.settle()
    (forwarded,) = records(edge, handler_topic(PIPELINES))
    assert (forwarded["message"]["topic"], forwarded["message"]["fields"]) == ("Unpublish", {"id": "17"})


def test_reputations_are_read_from_the_log_also_older_ones() -> None:
    edge = EdgeAtLog()
    session = arrived(edge)
    score = orjson.dumps({"type": "reputation", "endpoint": "car", "score": 0.25, "at_us": 1, "reasons": []})
    edge.store.open().append([Entry(REPUTATION, "car", score)])
    edge.settle()
    assert edge.broker.presence.share_of(session.number) == 0.25


def test_an_edge_of_a_site_may_have_no_reputation_file() -> None:
    with pytest.raises(UsageFault, match="reputation"):
        settings_from('site.name = "north"\nvetting.reputation = "r.json"', source="m.toml", folder=Path())
