"""What stands for who comes into an area later, who was told of what, and the last word on it."""

import pytest

from edge_in_memory import START, Client, EdgeInMemory
from milepost.broker.active_alerts import INCIDENTS_MAX, STANDING_MAX, TAKEN_ALONG_MAX, TOLD_NS, ActiveAlerts
from milepost.broker.counts import Counts
from milepost.broker.effects import Changes
from milepost.broker.publication import Publication
from milepost.broker.session import Session
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import UNPUBLISH
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Properties
from milepost.wire.times import instant_to_text

HERE, AWAY = "40.0,-111.0", "40.011,-111.0"
AREA = "area:circle 40.0,-111.0 1000"
DESK = EndpointId("desk")
ROAD = "area:UPSTREAM ((-111.01 40.0, -110.99 40.0; 15, 60 0, 1700 0))"


def words(**said: str) -> Properties:
    return Properties(user=tuple((f"milepost-{name.replace('_', '-')}", value) for name, value in said.items()))


def report(client: Client, where: str) -> None:
    client.publish("pos", b"", properties=words(report=where))


def warn(client: Client, body: bytes, edge: EdgeInMemory, *, valid_s: float = 60, to: str = AREA, **more: str) -> None:
    until = instant_to_text(Instant(edge.now + int(valid_s * SECOND_NS)))
    client.publish("alert", body, 1, properties=words(to=to, valid_until=until, **more))


def call_off(client: Client, body: bytes, *incidents: str) -> None:
    client.publish("alert", body, 1, properties=words(to=f"told:{' '.join(incidents)}"))


def seen(edge: EdgeInMemory, **where: str) -> dict[str, Client]:
    return {name: edge.connect(name, properties=words(report=at)) for name, at in where.items()}


def test_who_comes_into_the_area_while_the_message_is_valid_is_told_once() -> None:
    edge = EdgeInMemory()
    cars, desk = seen(edge, near=HERE, far=AWAY), edge.connect("desk")
    warn(desk, b"ice", edge, valid_s=200)
    assert [client.bodies() for client in cars.values()] == [[b"ice"], []]
    for where, bodies in ((AWAY, []), (HERE, [b"ice"]), (AWAY, []), (HERE, [])):
        edge.pass_time(30)
        report(cars["far"], where)
        assert cars["far"].bodies() == bodies, where
    late = edge.connect("late", properties=words(report=HERE))
    assert late.bodies() == [b"ice"], "who connects inside has come in, too"
    edge.pass_time(100)
    assert seen(edge, later=HERE)["later"].bodies() == []
    assert len(edge.broker.deliveries.standing) == 0


def test_a_message_without_an_end_goes_to_who_is_there_and_nobody_else() -> None:
    edge = EdgeInMemory()
    edge.connect("desk").publish("alert", b"ice", 1, properties=words(to=AREA))
    assert seen(edge, late=HERE)["late"].bodies() == []


def test_m26_on_roads_who_turns_towards_the_place_is_told_then() -> None:
    edge = EdgeInMemory()
    cars = seen(edge, back="40.0,-111.0,270,20")
    warn(edge.connect("desk"), b"jam", edge, to=ROAD)
    assert cars["back"].bodies() == []
    edge.pass_time(5)
    report(cars["back"], "40.0,-111.0,90,20")
    assert cars["back"].bodies() == [b"jam"]


def test_the_next_message_about_an_incident_takes_the_place_of_the_last() -> None:
    edge = EdgeInMemory()
    desk, other = edge.connect("desk"), edge.connect("other")
    warn(desk, b"one", edge, incident="i")
    warn(other, b"of another", edge, incident="i")
    warn(desk, b"two", edge, incident="i")
    assert sorted(seen(edge, late=HERE)["late"].bodies()) == [b"of another", b"two"]


def test_the_last_word_goes_to_exactly_those_who_were_told_wherever_they_are() -> None:
    edge = EdgeInMemory()
    cars, desk = seen(edge, told=HERE, never=AWAY), edge.connect("desk")
    warn(desk, b"ice", edge, incident="i")
    late = seen(edge, late=HERE)["late"]
    cars["told"].take(), late.take()
    edge.pass_time(100)
    report(cars["told"], AWAY)
    call_off(edge.connect("other"), b"not its own", "i")
    call_off(desk, b"over", "i", "unknown")
    assert [client.bodies() for client in (*cars.values(), late)] == [[b"over"], [], [b"over"]]
    call_off(desk, b"again", "i")
    assert seen(edge, last=HERE)["last"].bodies() == []
    assert [client.bodies() for client in (*cars.values(), late)] == [[], [], []]


def test_after_a_while_nobody_knows_who_was_told() -> None:
    edge = EdgeInMemory()
    cars, desk = seen(edge, told=HERE), edge.connect("desk")
    warn(desk, b"ice", edge, incident="i")
    assert cars["told"].bodies() == [b"ice"]
    edge.pass_time(TOLD_NS / SECOND_NS + 1)
    call_off(desk, b"over", "i")
    assert cars["told"].bodies() == []


def test_t6_what_is_unpublished_is_called_off_for_who_had_it() -> None:
    edge = EdgeInMemory()
    car = seen(edge, told=HERE)["told"]
    alert = _publication(7, valid_s=60)
    edge.broker.accept(alert, None, edge.now)
    taken_back = Publication(UNPUBLISH, b"sorry", edge.now, source=alert.source, origin=99, qos=1, fields={"id": "7"})
    edge.broker.accept(taken_back, None, edge.now)
    edge.settle()
    assert car.bodies() == [b"x", b"sorry"]
    assert seen(edge, late=HERE)["late"].bodies() == []


def test_a_process_that_goes_on_knows_what_stands_and_who_was_told() -> None:
    edge = EdgeInMemory()
    kept = edge.connect("kept", expiry_s=1_000, properties=words(report=HERE))
    desk = edge.connect("desk")
    warn(desk, b"ice", edge, incident="i", valid_s=600)
    assert kept.bodies() == [b"ice"]
    again = edge.restarted(after_s=1)
    kept = again.connect("kept", clean=False, expiry_s=1_000)
    kept.take()
    report(kept, HERE)
    again.pass_time(1)
    assert kept.bodies() == [], "it has it"
    late = seen(again, late=HERE)["late"]
    assert late.bodies() == [b"ice"]
    call_off(again.connect("desk"), b"over", "i")
    assert (kept.bodies(), late.bodies()) == ([b"over"], [b"over"])
    third = again.restarted(after_s=1)
    assert seen(third, last=HERE)["last"].bodies() == []
    kept_rows = third.kept.load()
    assert (kept_rows.standing, kept_rows.told) == ({}, {})


def test_of_a_session_that_is_over_nothing_is_left() -> None:
    edge = EdgeInMemory()
    warn(edge.connect("desk"), b"ice", edge, valid_s=600)
    for _ in range(3):
        client = edge.connect("car", expiry_s=10, properties=words(report=HERE))
        assert client.bodies() == [b"ice"], "a new session has had nothing"
        client.lose()
        edge.pass_time(11)
    assert edge.kept.load().told == {}


def _publication(number: int, *, valid_s: float = 60, priority: Priority = Priority.SAFETY, incident: str = "") -> Publication:
    area = ToArea(Circle(Place(40.0, -111.0), 1_000.0), incident)
    until = Instant(START + int(valid_s * SECOND_NS))
    source = EndpointId("desk")
    found = Publication("alert", b"x", START, source=source, qos=1, valid_until=until, priority=priority, address=area)
    found.id = number
    return found


def test_what_stands_is_limited_and_the_least_urgent_goes_first() -> None:
    counts, changes = Counts(), Changes()
    standing = ActiveAlerts(counts)
    for number in range(1, STANDING_MAX + 1):
        standing.put(_publication(number, valid_s=60 + number), changes)
    first, convenience = _publication(1, valid_s=61), _publication(STANDING_MAX + 1, priority=Priority.CONVENIENCE, valid_s=9_999)
    standing.put(convenience, changes)
    assert len(standing) == STANDING_MAX
    assert not standing.stands(convenience)
    urgent = _publication(STANDING_MAX + 2, priority=Priority.EMERGENCY, valid_s=1)
    standing.put(urgent, changes)
    assert standing.stands(urgent)
    assert not standing.stands(first), "of the least urgent, what ends first"
    assert counts.dropped == {Reason.STANDING_FULL: 2}
    assert len([one for one in changes.standing.values() if one is not None]) == STANDING_MAX


def test_of_how_many_incidents_it_is_known_who_was_told_is_limited() -> None:
    counts, changes = Counts(), Changes()
    standing, car = ActiveAlerts(counts), Session(EndpointId("car"), 3)
    for number in range(1, INCIDENTS_MAX + 2):
        publication = _publication(number, incident=f"i{number}")
        standing.put(publication, changes)
        standing.note(publication, [car], changes)
    told = len([one for number in range(1, INCIDENTS_MAX + 2) for one in standing.who_was_told(DESK, [f"i{number}"])])
    assert told == INCIDENTS_MAX
    assert standing.who_was_told(DESK, ["i1"]) == [], "the first is forgotten"
    lasting = _publication(INCIDENTS_MAX + 9)
    lasting.valid_until = FOREVER
    standing.handed_out(lasting, [car], changes)
    assert standing.who_was_told(DESK, ["i2"]) == [], "what does not stand counts, too"
    taken = standing.told_of(car)
    assert len(taken) == TAKEN_ALONG_MAX
    assert {one.incident for one in taken} <= {f"i{number}" for number in range(3, INCIDENTS_MAX + 2)}, "first what stands"


def test_what_comes_late_does_not_take_the_place_of_what_was_seen_later() -> None:
    changes, standing = Changes(), ActiveAlerts(Counts())
    late, latest = _publication(1, incident="i"), _publication(2, incident="i")
    late.seen_at = Instant(START - 1)
    assert standing.put(latest, changes)
    assert not standing.put(late, changes)
    car = Session(EndpointId("car"), 3)
    standing.note(latest, [car], changes)
    standing.note(late, [car], changes)
    assert standing.has_had(car, latest)


@pytest.mark.parametrize(("had", "expected"), [(5, False), (4, True)])
def test_who_was_told_elsewhere_is_told_here_what_is_newer_and_nothing_else(had: int, expected: bool) -> None:
    changes = Changes()
    federation, here, car = ActiveAlerts(Counts()), ActiveAlerts(Counts()), Session(EndpointId("car"), 3)
    publication = _publication(had, incident="i")
    federation.put(publication, changes)
    federation.note(publication, [car], changes)
    here.put(_publication(5, incident="i"), changes)
    here.bring(car, federation.told_of(car), changes)
    assert here.has_had(car, _publication(5, incident="i")) is not expected
    assert here.who_was_told(EndpointId("desk"), ["i"]) == [3]


def test_what_could_not_be_sent_may_be_handed_again_and_is_not_called_off() -> None:
    changes, standing, car = Changes(), ActiveAlerts(Counts()), Session(EndpointId("car"), 3)
    first, second = _publication(1, incident="i"), _publication(2, incident="i")
    standing.put(first, changes)
    standing.note(first, [car], changes)
    standing.untell(car, first, changes)
    assert standing.who_was_told(EndpointId("desk"), ["i"]) == []
    standing.note(first, [car], changes)
    standing.put(second, changes)
    standing.note(second, [car], changes)
    standing.untell(car, second, changes)
    assert not standing.has_had(car, second)
    assert standing.who_was_told(EndpointId("desk"), ["i"]) == [3], "the first has gone out"
