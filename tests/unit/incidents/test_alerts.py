"""From the change of an incident to its alert (M24, M26), and emergencies, which edges announce themselves (M22)."""

from dataclasses import replace

import pytest

from milepost.incidents import maybe_alert
from milepost.incidents.alerts import Approach
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import service_source
from milepost.model.incidents import EVENT_KINDS, EventKind, IncidentChange, IncidentId
from milepost.model.messages import Message
from milepost.model.places import moved
from milepost.model.priorities import Priority
from milepost.model.session_datagrams import PublishDatagram
from milepost.roads import Road, build_network
from milepost.wire.datagrams import decode, encode
from unit.incidents.events import HOME, NOON, after, away, events, incidents_from

KIND = EventKind("Collision", "Collision", "reports >= 5", "Alert/Collision", slots=1, valid_s=600, priority=Priority.TRAFFIC)
HUB = service_source("hub-1")


def life() -> list[IncidentChange]:
    """Return the changes raised, moved, cleared."""
    found = [event for step in range(3) for event in events(5, away(120.0 * step), 10 * step + 1)]
    return incidents_from(KIND, found).advance(after(1000))


def alert_of(change: IncidentChange) -> Message:
    alert = maybe_alert(change, KIND, HUB)
    assert alert is not None
    return alert


def test_an_alert_has_kind_place_and_validity() -> None:
    change = life()[0]
    incident, alert = change.incident, alert_of(change)
    assert (alert.source, alert.topic, alert.priority, alert.reliable) == (HUB, "Alert/Collision", Priority.TRAFFIC, True)
    assert (alert.seen_at, alert.valid_until) == (after(10), after(610))
    assert alert.address == ToArea(incident.alert_area, incident.id)
    assert alert.place == incident.centre
    assert dict(alert.fields) == {
        "incident": f"Collision-{NOON // KIND.interval_ns}-{'-'.join(map(str, KIND.grid.locate(HOME).square))}",
        "kind": "Collision",
        "phase": "raised",
        "reports": 5,
        "witnesses": 5,
        "radius_m": 50.0,
    }


def test_the_all_clear_goes_to_all_notified_endpoints() -> None:
    changes = life()
    assert [change.phase.value for change in changes] == ["raised", "moved", "moved", "cleared"]
    name = changes[0].incident.id
    assert alert_of(changes[1]).address == ToArea(changes[1].incident.alert_area, name)
    assert alert_of(changes[-1]).address == ToNotified((name,))
    early = replace(changes[0].incident, id=IncidentId("early-1"))
    clear = maybe_alert(changes[-1], KIND, HUB, (early, changes[0].incident))
    assert clear is not None
    assert clear.address == ToNotified((name, "early-1"))
    assert alert_of(changes[-1]).fields["phase"] == "cleared"


def test_equal_changes_give_equal_messages_and_others_differ() -> None:
    changes = life()
    assert [alert_of(change) for change in changes] == [alert_of(change) for change in life()]
    numbers = {alert_of(change).id for change in changes}
    numbers |= {alert_of(replace(changes[0], at=after(20))).id, alert_of(replace(changes[0], phase=changes[1].phase)).id}
    assert len(numbers) == 6


def test_an_alert_fits_a_datagram() -> None:
    alert = alert_of(life()[0])
    assert decode(encode(PublishDatagram(alert))) == PublishDatagram(alert)


def test_m22_an_emergency_is_an_incident_without_an_alert() -> None:
    emergency = EVENT_KINDS[0]
    incidents = incidents_from(emergency, events(1))
    (raised,) = incidents.advance(after(2))
    assert raised.incident.kind == "Emergency"
    assert maybe_alert(raised, emergency, HUB) is None


def test_a_change_is_announced_by_the_rules_of_its_own_kind_only() -> None:
    with pytest.raises(AssertionError):
        maybe_alert(life()[0], EVENT_KINDS[3], HUB)


def town() -> Approach:
    """A street from west to east through the first place of `life`, and one beside it that does not lead there."""
    west, east = moved(HOME, 270, 3_000), moved(HOME, 90, 1_000)
    roads = [
        Road("in", [(west.latitude, west.longitude), (east.latitude, east.longitude)], 20.0, 1, "w", "e"),
        Road("past", [(west.latitude + 0.005, west.longitude), (east.latitude + 0.005, east.longitude)], 20.0, 1, "v", "f"),
    ]
    return Approach(build_network(roads, []), upstream_s=60.0)


def test_m26_with_a_road_network_an_alert_goes_to_endpoints_there_or_upstream() -> None:
    change = life()[0]
    alert = maybe_alert(change, KIND, HUB, approach=town())
    assert alert is not None
    assert isinstance(alert.address, ToArea)
    area = alert.address.area
    beside = moved(moved(HOME, 0, 556), 270, 1_000)
    places = [moved(HOME, 270, 1_000), beside, moved(HOME, 0, 40), moved(HOME, 0, 150), moved(HOME, 90, 500)]
    assert [bool(area.contains(place.vector[None])[0]) for place in places] == [True, False, True, False, False]
    assert decode(encode(PublishDatagram(alert))) == PublishDatagram(alert)
    assert maybe_alert(change, KIND, HUB, approach=town()) == alert


def test_m26_far_from_roads_alerts_go_to_circles() -> None:
    first = life()[0]
    far = moved(HOME, 180, 50_000)
    desert = replace(first, incident=replace(first.incident, centre=far, alert_area=Circle(far, 500.0)))
    alert = maybe_alert(desert, KIND, HUB, approach=town())
    assert alert is not None
    assert alert.address == ToArea(desert.incident.alert_area, desert.incident.id)
