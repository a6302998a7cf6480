"""Active alerts for endpoints that enter an area later, the sessions notified of each, and the all-clear."""

import pytest

from edge_in_memory import START, Client, EdgeInMemory
from milepost.broker.active_alerts import ACTIVE_MAX, HANDOVER_INCIDENTS_MAX, INCIDENTS_MAX, NOTIFIED_NS, ActiveAlerts
from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.effects import StateChanges
from milepost.broker.publication import Publication
from milepost.broker.session import Session
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId, SourceId, edge_source, service_source
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import UNPUBLISH
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.trust.certificates import Certificate
from milepost.trust.signing import Signer, Verifier
from milepost.wire.mqtt import Connect, Properties, Version
from milepost.wire.times import instant_to_text
from udp_edge_in_memory import EDGE_CERTIFICATE, EDGE_SIGNING, EDGE_STATIC, certificate_of, identity

HERE, AWAY = "40.0,-111.0", "40.011,-111.0"
AREA = "area:circle 40.0,-111.0 1000"
DESK = EndpointId("desk")
ROAD = "area:UPSTREAM ((-111.01 40.0, -110.99 40.0; 15, 60 0, 1700 0))"


def user_properties(**values: str) -> Properties:
    return Properties(user=tuple((f"milepost-{name.replace('_', '-')}", value) for name, value in values.items()))


def report(client: Client, where: str) -> None:
    client.publish("pos", b"", properties=user_properties(report=where))


def warn(client: Client, body: bytes, edge: EdgeInMemory, *, valid_s: float = 60, to: str = AREA, **more: str) -> None:
    until = instant_to_text(Instant(edge.now + int(valid_s * SECOND_NS)))
    client.publish("alert", body, 1, properties=user_properties(to=to, valid_until=until, **more))


def all_clear(client: Client, body: bytes, *incidents: str) -> None:
    client.publish("alert", body, 1, properties=user_properties(to=f"notified:{' '.join(incidents)}"))


def connect_at(edge: EdgeInMemory, **where: str) -> dict[str, Client]:
    return {name: edge.connect(name, properties=user_properties(report=at)) for name, at in where.items()}


def test_an_endpoint_that_enters_the_area_while_the_message_is_valid_is_notified_once() -> None:
    edge = EdgeInMemory()
    cars, desk = connect_at(edge, near=HERE, far=AWAY), edge.connect("desk")
    warn(desk, b"ice", edge, valid_s=200)
    assert [client.bodies() for client in cars.values()] == [[b"ice"], []]
    for where, bodies in ((AWAY, []), (HERE, [b"ice"]), (AWAY, []), (HERE, [])):
        edge.pass_time(30)
        report(cars["far"], where)
        assert cars["far"].bodies() == bodies, where
    late = edge.connect("late", properties=user_properties(report=HERE))
    assert late.bodies() == [b"ice"], "an endpoint that connects inside has entered, too"
    edge.pass_time(100)
    assert connect_at(edge, later=HERE)["later"].bodies() == []
    assert len(edge.broker.deliveries.active_alerts) == 0


def test_a_message_without_an_expiry_goes_only_to_endpoints_inside_at_that_time() -> None:
    edge = EdgeInMemory()
    edge.connect("desk").publish("alert", b"ice", 1, properties=user_properties(to=AREA))
    assert connect_at(edge, late=HERE)["late"].bodies() == []


def test_m26_a_vehicle_that_turns_towards_the_place_is_notified_then() -> None:
    edge = EdgeInMemory()
    cars = connect_at(edge, back="40.0,-111.0,270,20")
    warn(edge.connect("desk"), b"jam", edge, to=ROAD)
    assert cars["back"].bodies() == []
    edge.pass_time(5)
    report(cars["back"], "40.0,-111.0,90,20")
    assert cars["back"].bodies() == [b"jam"]


def test_a_message_about_an_incident_replaces_the_previous_one() -> None:
    edge = EdgeInMemory()
    desk, other = edge.connect("desk"), edge.connect("other")
    warn(desk, b"one", edge, incident="i")
    warn(other, b"of another", edge, incident="i")
    warn(desk, b"two", edge, incident="i")
    assert sorted(connect_at(edge, late=HERE)["late"].bodies()) == [b"of another", b"two"]


def test_the_all_clear_goes_to_exactly_the_notified_endpoints_wherever_they_are() -> None:
    edge = EdgeInMemory()
    cars, desk = connect_at(edge, notified=HERE, never=AWAY), edge.connect("desk")
    warn(desk, b"ice", edge, incident="i")
    late = connect_at(edge, late=HERE)["late"]
    cars["notified"].take(), late.take()
    edge.pass_time(100)
    report(cars["notified"], AWAY)
    all_clear(edge.connect("other"), b"of another source", "i")
    all_clear(desk, b"over", "i", "unknown")
    assert [client.bodies() for client in (*cars.values(), late)] == [[b"over"], [], [b"over"]]
    all_clear(desk, b"again", "i")
    assert connect_at(edge, last=HERE)["last"].bodies() == []
    assert [client.bodies() for client in (*cars.values(), late)] == [[], [], []]


def test_notified_sessions_are_forgotten_after_a_while() -> None:
    edge = EdgeInMemory()
    cars, desk = connect_at(edge, notified=HERE), edge.connect("desk")
    warn(desk, b"ice", edge, incident="i")
    assert cars["notified"].bodies() == [b"ice"]
    edge.pass_time(NOTIFIED_NS / SECOND_NS + 1)
    all_clear(desk, b"over", "i")
    assert cars["notified"].bodies() == []


def test_t6_an_unpublish_is_delivered_to_endpoints_that_had_the_message() -> None:
    edge = EdgeInMemory()
    car = connect_at(edge, notified=HERE)["notified"]
    alert = _publication(7, valid_s=60)
    edge.broker.accept(alert, None, edge.now)
    unpublish = Publication(UNPUBLISH, b"sorry", edge.now, source=alert.source, origin=99, qos=1, fields={"id": "7"})
    edge.broker.accept(unpublish, None, edge.now)
    edge.run_ticks()
    assert car.bodies() == [b"x", b"sorry"]
    assert connect_at(edge, late=HERE)["late"].bodies() == []


def test_active_alerts_and_notified_sessions_survive_a_restart() -> None:
    edge = EdgeInMemory()
    durable = edge.connect("durable", expiry_s=1_000, properties=user_properties(report=HERE))
    desk = edge.connect("desk")
    warn(desk, b"ice", edge, incident="i", valid_s=600)
    assert durable.bodies() == [b"ice"]
    again = edge.restarted(after_s=1)
    durable = again.connect("durable", clean=False, expiry_s=1_000)
    durable.take()
    report(durable, HERE)
    again.pass_time(1)
    assert durable.bodies() == [], "it already has the message"
    late = connect_at(again, late=HERE)["late"]
    assert late.bodies() == [b"ice"]
    all_clear(again.connect("desk"), b"over", "i")
    assert (durable.bodies(), late.bodies()) == ([b"over"], [b"over"])
    third = again.restarted(after_s=1)
    assert connect_at(third, last=HERE)["last"].bodies() == []
    stored = third.stored.load()
    assert (stored.active_alerts, stored.notified) == ({}, {})


def test_a_session_that_has_ended_leaves_no_notifications() -> None:
    edge = EdgeInMemory()
    warn(edge.connect("desk"), b"ice", edge, valid_s=600)
    for _ in range(3):
        client = edge.connect("car", expiry_s=10, properties=user_properties(report=HERE))
        assert client.bodies() == [b"ice"], "a new session has not been notified"
        client.drop_connection()
        edge.pass_time(11)
    assert edge.stored.load().notified == {}


def _publication(number: int, *, valid_s: float = 60, priority: Priority = Priority.SAFETY, incident: str = "") -> Publication:
    area = ToArea(Circle(Place(40.0, -111.0), 1_000.0), incident)
    until = Instant(START + int(valid_s * SECOND_NS))
    source = EndpointId("desk")
    found = Publication("alert", b"x", START, source=source, qos=1, valid_until=until, priority=priority, address=area)
    found.id = number
    return found


def _cancel(incident: str, source: SourceId = DESK, certificate: Certificate | None = None) -> Publication:
    found = Publication("alert", b"", START, source=source, qos=1, address=ToNotified((incident,)))
    found.signed = (bytes(64), certificate.data) if certificate is not None else None
    return found


OTHER_ROLE = certificate_of("edge-1", EDGE_STATIC, "operator", 2, signing=EDGE_SIGNING)
OTHER_EDGE = certificate_of("edge-2", EDGE_STATIC, "edge", 3, signing=EDGE_SIGNING)
RENEWED = certificate_of("edge-1", EDGE_STATIC, "edge", 4, signing=EDGE_SIGNING)


@pytest.mark.parametrize(
    ("source", "raised", "cancelled", "is_cancelled"),
    [
        (DESK, None, None, True),
        (EndpointId("other"), None, None, False),
        (service_source("desk"), None, None, False),
        (edge_source("desk"), None, None, False),
        (DESK, EDGE_CERTIFICATE, EDGE_CERTIFICATE, True),
        (DESK, EDGE_CERTIFICATE, RENEWED, True),
        (DESK, EDGE_CERTIFICATE, None, False),
        (DESK, EDGE_CERTIFICATE, OTHER_ROLE, False),
        (DESK, EDGE_CERTIFICATE, OTHER_EDGE, False),
        (DESK, None, EDGE_CERTIFICATE, True),
    ],
)
@pytest.mark.parametrize("is_handed_over", [False, True])
def test_only_the_source_and_signer_of_an_alert_cancel_it(
    source: SourceId, raised: Certificate | None, cancelled: Certificate | None, is_cancelled: bool, is_handed_over: bool
) -> None:
    changes, alerts, car = StateChanges(), ActiveAlerts(BrokerCounters()), Session(EndpointId("car"), 3)
    alert = _publication(1, incident="i")
    alert.signed = (bytes(64), raised.data) if raised is not None else None
    alerts.note_delivered(alert, [car], changes)
    if is_handed_over:
        former, alerts = alerts, ActiveAlerts(BrokerCounters())
        alerts.adopt(car, former.notifications_of(car), changes)
    cancel = _cancel("i", source, cancelled)
    assert alerts.notified_sessions(cancel) == ([3] if is_cancelled else [])
    assert alerts.was_notified(car, cancel) is is_cancelled
    alerts.note_delivered(cancel, [], changes)
    assert bool(alerts.notifications_of(car)) is not is_cancelled
    assert alerts.is_active(alert) is (not is_cancelled and not is_handed_over)


def test_an_alert_that_was_signed_is_not_replaced_by_an_unsigned_one() -> None:
    edge = EdgeInMemory()
    car = connect_at(edge, near=HERE)["near"]
    signed, forged = _publication(1, incident="i"), _publication(2, incident="i")
    signed.signed, signed.body, forged.body = (bytes(64), EDGE_CERTIFICATE.data), b"ice", b"no ice"
    for publication in (signed, forged):
        edge.broker.apply_record(publication, edge.now)
    edge.run_ticks()
    assert car.bodies() == [b"ice"]
    assert edge.broker.counts.dropped[Reason.SIGNATURE_INVALID] == 1
    late = edge.connect("late", properties=user_properties(report=HERE))
    assert late.bodies() == [b"ice"]


@pytest.mark.parametrize("is_genuine", [False, True])
def test_an_edge_with_an_authority_verifies_a_signed_cancel_from_the_log(is_genuine: bool) -> None:
    edge, signer = EdgeInMemory(), Signer(EDGE_SIGNING, EDGE_CERTIFICATE)
    edge.broker.verify_with(Verifier(identity().certificate_authority))
    car = connect_at(edge, near=HERE)["near"]
    alert, cancel = _publication(1, incident="i"), _cancel("i", edge_source("edge-1"))
    alert.source, cancel.id, cancel.body, cancel.valid_until = edge_source("edge-1"), 2, b"over", alert.valid_until
    alert.signed = signer.signed(alert.message)
    cancel.signed = signer.signed(cancel.message) if is_genuine else (bytes(64), EDGE_CERTIFICATE.data)
    for publication in (alert, cancel):
        edge.broker.apply_record(publication, edge.now)
    edge.run_ticks()
    assert car.bodies() == ([b"x", b"over"] if is_genuine else [b"x"])


@pytest.mark.parametrize(
    ("attack", "reason"), [("forged", Reason.SIGNATURE_INVALID), ("revoked", Reason.CERTIFICATE_REVOKED), ("expired", None)]
)
def test_an_edge_with_an_authority_drops_alerts_from_the_log_without_a_valid_signature(
    attack: str, reason: Reason | None
) -> None:
    edge, signer, authority = EdgeInMemory(), Signer(EDGE_SIGNING, EDGE_CERTIFICATE), identity().certificate_authority
    edge.broker.verify_with(Verifier(authority))
    car = connect_at(edge, near=HERE)["near"]
    alert = _publication(1, incident="i", valid_s=60)
    alert.source, alert.is_retained = edge_source("edge-1"), True
    alert.signed = signer.signed(alert.message)
    if attack == "forged":
        alert.body = b"changed"
    elif attack == "revoked":
        authority.revoked = frozenset({EDGE_CERTIFICATE.serial})
    now = Instant(alert.valid_until + 1) if attack == "expired" else edge.now
    edge.broker.apply_record(alert, now)
    edge.broker.apply_record(alert, now)
    edge.run_ticks()
    assert car.bodies() == []
    assert edge.connect("late", properties=user_properties(report=HERE)).bodies() == []
    assert len(edge.broker.deliveries.active_alerts) == len(edge.broker.retained) == 0
    assert edge.broker.counts.refused == ({} if reason is None else {reason: 1})


def test_active_alerts_are_limited_and_the_least_urgent_is_evicted_first() -> None:
    counts, changes = BrokerCounters(), StateChanges()
    alerts = ActiveAlerts(counts)
    for number in range(1, ACTIVE_MAX + 1):
        alerts.activate(_publication(number, valid_s=60 + number), changes)
    first, convenience = _publication(1, valid_s=61), _publication(ACTIVE_MAX + 1, priority=Priority.CONVENIENCE, valid_s=9_999)
    alerts.activate(convenience, changes)
    assert len(alerts) == ACTIVE_MAX
    assert not alerts.is_active(convenience)
    urgent = _publication(ACTIVE_MAX + 2, priority=Priority.EMERGENCY, valid_s=1)
    alerts.activate(urgent, changes)
    assert alerts.is_active(urgent)
    assert not alerts.is_active(first), "of the least urgent, the first to expire"
    assert counts.dropped == {Reason.ACTIVE_ALERTS_FULL: 2}
    assert len([one for one in changes.active_alerts.values() if one is not None]) == ACTIVE_MAX


def test_incidents_with_remembered_sessions_are_limited() -> None:
    counts, changes = BrokerCounters(), StateChanges()
    alerts, car = ActiveAlerts(counts), Session(EndpointId("car"), 3)
    for number in range(1, INCIDENTS_MAX + 2):
        publication = _publication(number, incident=f"i{number}")
        alerts.activate(publication, changes)
        alerts.note_notified(publication, [car], changes)
    notified = len([one for number in range(1, INCIDENTS_MAX + 2) for one in alerts.notified_sessions(_cancel(f"i{number}"))])
    assert notified == INCIDENTS_MAX
    assert alerts.notified_sessions(_cancel("i1")) == [], "the first is forgotten"
    lasting = _publication(INCIDENTS_MAX + 9)
    lasting.valid_until = FOREVER
    alerts.note_delivered(lasting, [car], changes)
    assert alerts.notified_sessions(_cancel("i2")) == [], "inactive incidents count, too"
    handed_over = alerts.notifications_of(car)
    assert len(handed_over) == HANDOVER_INCIDENTS_MAX
    assert {one.incident for one in handed_over} <= {f"i{number}" for number in range(3, INCIDENTS_MAX + 2)}, (
        "active incidents come first"
    )


def test_a_late_message_does_not_replace_one_that_was_seen_later() -> None:
    changes, alerts = StateChanges(), ActiveAlerts(BrokerCounters())
    late, latest = _publication(1, incident="i"), _publication(2, incident="i")
    late.seen_at = Instant(START - 1)
    assert alerts.activate(latest, changes)
    assert not alerts.activate(late, changes)
    car = Session(EndpointId("car"), 3)
    alerts.note_notified(latest, [car], changes)
    alerts.note_notified(late, [car], changes)
    assert alerts.was_delivered(car, latest)


@pytest.mark.parametrize(("known_id", "expected"), [(5, False), (4, True)])
def test_a_session_notified_at_another_edge_gets_only_newer_messages_here(known_id: int, expected: bool) -> None:
    changes = StateChanges()
    elsewhere, here, car = ActiveAlerts(BrokerCounters()), ActiveAlerts(BrokerCounters()), Session(EndpointId("car"), 3)
    publication = _publication(known_id, incident="i")
    elsewhere.activate(publication, changes)
    elsewhere.note_notified(publication, [car], changes)
    here.activate(_publication(5, incident="i"), changes)
    here.adopt(car, elsewhere.notifications_of(car), changes)
    assert here.was_delivered(car, _publication(5, incident="i")) is not expected
    assert here.notified_sessions(_cancel("i")) == [3]


def test_an_undelivered_message_may_be_delivered_again_and_gets_no_all_clear() -> None:
    changes, alerts, car = StateChanges(), ActiveAlerts(BrokerCounters()), Session(EndpointId("car"), 3)
    first, second = _publication(1, incident="i"), _publication(2, incident="i")
    alerts.activate(first, changes)
    alerts.note_notified(first, [car], changes)
    alerts.undo_notified(car, first, changes)
    assert alerts.notified_sessions(_cancel("i")) == []
    alerts.note_notified(first, [car], changes)
    alerts.activate(second, changes)
    alerts.note_notified(second, [car], changes)
    alerts.undo_notified(car, second, changes)
    assert not alerts.was_delivered(car, second)
    assert alerts.notified_sessions(_cancel("i")) == [3], "the first message was sent"


def test_the_alerts_of_one_endpoint_do_not_evict_those_of_others() -> None:
    alerts, changes = ActiveAlerts(BrokerCounters()), StateChanges()
    quiet, system = _publication(1), _publication(2)
    quiet.source, system.source = EndpointId("quiet"), edge_source("edge-1")
    for publication in (quiet, system, *(_publication(number, valid_s=9_999) for number in range(3, ACTIVE_MAX + 100))):
        alerts.activate(publication, changes)
    assert len(alerts) == ACTIVE_MAX
    assert alerts.is_active(quiet)
    assert alerts.is_active(system)


def connect_as(edge: EdgeInMemory, name: str, user: str | None) -> Client:
    client = edge.open_connection()
    client.stream.user = user
    client.send(Connect(name, Version.V5, True, 0))
    edge.run_ticks()
    client.take()
    return client


@pytest.mark.parametrize(
    ("raised_by", "cancelled_by", "is_cancelled"),
    [("ada", "mallory", False), ("ada", None, False), ("ada", "ada", True), (None, None, True)],
)
def test_the_next_client_with_a_name_does_not_cancel_the_alert_of_the_last_one(
    raised_by: str | None, cancelled_by: str | None, is_cancelled: bool
) -> None:
    edge = EdgeInMemory()
    (car,) = connect_at(edge, near=HERE).values()
    first = connect_as(edge, "desk", raised_by)
    warn(first, b"ice", edge, valid_s=600, incident="I-1")
    first.drop_connection()
    edge.run_ticks()
    assert car.bodies() == [b"ice"]
    second = connect_as(edge, "desk", cancelled_by)
    all_clear(second, b"over", "I-1")
    assert car.bodies() == ([b"over"] if is_cancelled else [])
    assert len(edge.broker.deliveries.active_alerts) == (not is_cancelled)
    warn(second, b"fog", edge, valid_s=600, incident="I-1")
    assert car.bodies() == ([b"fog"] if is_cancelled else [])
