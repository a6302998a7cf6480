"""From what became of an incident to the message that says so (M24, M26), and emergencies, told by edges themselves (M22)."""

from dataclasses import replace

import pytest

from milepost.incidents import maybe_alert
from milepost.incidents.engine import Approach
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EVENT_KINDS, Change, EventKind, IncidentId
from milepost.model.messages import Message
from milepost.model.places import moved
from milepost.model.priorities import Priority
from milepost.model.sessions import Publish
from milepost.roads import Road, network_of
from milepost.wire.datagrams import decode, encode
from unit.incidents.events import HOME, NOON, after, away, events, fed

KIND = EventKind("Collision", "Collision", "reports >= 5", "Alert/Collision", slots=1, valid_s=600, priority=Priority.TRAFFIC)
HUB = EndpointId("hub-1")


def life() -> list[Change]:
    """Raised, moved, cleared."""
    found = [event for step in range(3) for event in events(5, away(120.0 * step), 10 * step + 1)]
    return fed(KIND, found).advance(after(1000))


def alert_of(change: Change) -> Message:
    alert = maybe_alert(change, KIND, HUB)
    assert alert is not None
    return alert


def test_an_alert_says_what_is_where_and_until_when() -> None:
    change = life()[0]
    incident, alert = change.incident, alert_of(change)
    assert (alert.source, alert.topic, alert.priority, alert.reliable) == (HUB, "Alert/Collision", Priority.TRAFFIC, True)
    assert (alert.seen_at, alert.valid_until) == (after(10), after(610))
    assert alert.address == ToArea(incident.told, incident.id)
    assert alert.place == incident.centre
    assert dict(alert.fields) == {
        "incident": f"Collision-{NOON // KIND.interval_ns}-{'-'.join(map(str, KIND.grid.spot(HOME).square))}",
        "kind": "Collision",
        "phase": "raised",
        "reports": 5,
        "witnesses": 5,
        "radius_m": 50.0,
    }


def test_the_all_clear_goes_to_all_who_were_warned() -> None:
    changes = life()
    assert [change.phase.value for change in changes] == ["raised", "moved", "moved", "cleared"]
    name = changes[0].incident.id
    assert alert_of(changes[1]).address == ToArea(changes[1].incident.told, name)
    assert alert_of(changes[-1]).address == ToNotified((name,))
    early = replace(changes[0].incident, id=IncidentId("early-1"))
    clear = maybe_alert(changes[-1], KIND, HUB, (early, changes[0].incident))
    assert clear is not None
    assert clear.address == ToNotified((name, "early-1"))
    assert alert_of(changes[-1]).fields["phase"] == "cleared"


def test_the_same_change_gives_the_same_message_and_another_gives_another() -> None:
    changes = life()
    assert [alert_of(change) for change in changes] == [alert_of(change) for change in life()]
    numbers = {alert_of(change).id for change in changes}
    numbers |= {alert_of(replace(changes[0], at=after(20))).id, alert_of(replace(changes[0], phase=changes[1].phase)).id}
    assert len(numbers) == 6


def test_an_alert_fits_a_datagram() -> None:
    alert = alert_of(life()[0])
    assert decode(encode(Publish(alert))) == Publish(alert)


def test_m22_no_alert_is_made_of_an_emergency_which_is_kept_as_an_incident() -> None:
    emergency = EVENT_KINDS[0]
    incidents = fed(emergency, events(1))
    (raised,) = incidents.advance(after(2))
    assert raised.incident.kind == "Emergency"
    assert maybe_alert(raised, emergency, HUB) is None


def test_a_change_is_told_by_the_rules_of_its_kind_only() -> None:
    with pytest.raises(AssertionError):
        maybe_alert(life()[0], EVENT_KINDS[3], HUB)


def town() -> Approach:
    """A street from west to east through the first place of `life`, and one beside it that does not lead there."""
    west, east = moved(HOME, 270, 3_000), moved(HOME, 90, 1_000)
    roads = [
        Road("in", [(west.latitude, west.longitude), (east.latitude, east.longitude)], 20.0, 1, "w", "e"),
        Road("past", [(west.latitude + 0.005, west.longitude), (east.latitude + 0.005, east.longitude)], 20.0, 1, "v", "f"),
    ]
    return Approach(network_of(roads, []), upstream_s=60.0)


def test_m26_where_roads_are_known_an_alert_goes_to_who_is_there_or_on_the_way() -> None:
    change = life()[0]
    alert = maybe_alert(change, KIND, HUB, approach=town())
    assert alert is not None
    assert isinstance(alert.address, ToArea)
    area = alert.address.area
    beside = moved(moved(HOME, 0, 556), 270, 1_000)
    places = [moved(HOME, 270, 1_000), beside, moved(HOME, 0, 40), moved(HOME, 0, 150), moved(HOME, 90, 500)]
    assert [bool(area.contains(place.vector[None])[0]) for place in places] == [True, False, True, False, False]
    assert decode(encode(Publish(alert))) == Publish(alert)
    assert maybe_alert(change, KIND, HUB, approach=town()) == alert


def test_m26_far_from_roads_alerts_go_to_circles() -> None:
    first = life()[0]
    far = moved(HOME, 180, 50_000)
    desert = replace(first, incident=replace(first.incident, centre=far, told=Circle(far, 500.0)))
    alert = maybe_alert(desert, KIND, HUB, approach=town())
    assert alert is not None
    assert alert.address == ToArea(desert.incident.told, desert.incident.id)
