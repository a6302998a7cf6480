"""Alerts of an edge: the messages that raise them, their area and their content (M22, M26)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_in_memory import START, EdgeInMemory
from milepost.broker.alert_rules import AlertRule, AlertShape, EmergencyAlerts
from milepost.broker.presence import PlausibilityRules
from milepost.broker.publication import EDGE_ITSELF, Publication
from milepost.model.areas import Circle, Corridor
from milepost.model.endpoints import EndpointId, edge_source
from milepost.model.instants import SECOND_NS
from milepost.model.messages import FIELDS_MAX
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.tags import Tag
from milepost.trust.signing import Signer
from milepost.wire.mqtt import Properties
from strategies import places
from udp_edge_in_memory import EDGE_CERTIFICATE, EDGE_SIGNING

HOME = Place(40.7608, -111.891)


AT_HOME = Properties(user=(("milepost-place", "40.7608,-111.891"),))


def emergency(fields: int = 0) -> Publication:
    values = {f"f{number}": number for number in range(fields)}
    return Publication("t", b"crash", START, source=EndpointId("car"), place=HOME, tags=frozenset({Tag("i80")}), fields=values)


def test_the_first_rule_that_matches_a_topic_applies() -> None:
    alerts = EmergencyAlerts()
    alerts.rules = (AlertRule("a/+", alert="first"), AlertRule("a/#", alert="second"))
    assert [rule.alert if rule else None for rule in map(alerts.find_rule, ("a/1", "a/1/2", "b"))] == ["first", "second", None]


@pytest.mark.parametrize("shape", AlertShape)
@given(place=places, heading=st.none() | st.floats(0, 360, exclude_max=True))
def test_there_is_an_area_for_every_place_and_heading(shape: AlertShape, place: Place, heading: float | None) -> None:
    area = AlertRule("t", shape=shape, ahead_m=100.0).area_for(place, heading)
    assert isinstance(area, Corridor if shape is AlertShape.CORRIDOR and heading is not None else Circle)
    assert area.contains(place.vector[None])[0]


@pytest.mark.parametrize(
    "options",
    [
        {"topic": "#"},
        {"topic": "Alert"},
        {"topic": "a/#/b"},
        {"topic": "t", "alert": "a/+"},
        {"topic": "t", "valid_s": 0.0},
        {"topic": "t", "valid_s": 90_000.0},
        {"topic": "t", "radius_m": -1.0},
        {"topic": "t", "shape": AlertShape.CORRIDOR, "ahead_m": 0.0, "behind_m": -5.0},
        {"topic": "t", "shape": AlertShape.CORRIDOR, "half_width_m": 0.0},
    ],
)
def test_a_rule_that_would_raise_alerts_about_alerts_or_for_no_area_is_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # each has another text
        AlertRule(**options)  # type: ignore[arg-type]


def test_an_alert_names_its_reporter_and_its_source_is_the_edge() -> None:
    alerts = EmergencyAlerts()
    rule = AlertRule("t", alert="Alert/t", valid_s=5.0)
    raised = emergency()
    alert = alerts.make(rule, raised, None, edge_source("edge-1"), 77, START)
    assert (alert.topic, alert.body, alert.source, alert.origin, alert.id) == (
        "Alert/t",
        b"crash",
        "@edge/edge-1",
        EDGE_ITSELF,
        77,
    )
    assert (alert.priority, alert.qos, alert.valid_until) == (Priority.EMERGENCY, 1, START + 5 * SECOND_NS)
    assert (alert.fields["raised_by"], alert.fields["raised_on"]) == ("car", "t")
    assert (alert.tags, alert.place, alert.signed, alerts.raised) == (raised.tags, HOME, None, 1)


@pytest.mark.parametrize("fields", [0, FIELDS_MAX - 2, FIELDS_MAX - 1, FIELDS_MAX])
def test_an_alert_can_be_encoded_and_signed_however_many_fields_the_emergency_has(fields: int) -> None:
    alerts = EmergencyAlerts()
    alerts.signer = Signer(EDGE_SIGNING, EDGE_CERTIFICATE)
    alert = alerts.make(AlertRule("t"), emergency(fields), None, edge_source("edge-1"), 77, START)
    assert len(alert.message.fields) == min(fields + 2, FIELDS_MAX)
    assert alert.message.fields["raised_by"] == "car"


def test_an_emergency_over_mqtt_is_delivered_first_and_to_endpoints_near_it() -> None:
    # M22
    edge = EdgeInMemory()
    edge.broker.alerts.rules = (AlertRule("collision"),)
    near, far, sender = (edge.connect(name) for name in ("near", "far", "sender"))
    near.publish("$milepost/report", b'{"place": {"latitude": 40.761, "longitude": -111.891}}', 1)
    far.publish("$milepost/report", b'{"place": {"latitude": 41.761, "longitude": -111.891}}', 1)
    near.subscribe("collision")
    near.take(), far.take()
    sender.publish("collision", b"crash", properties=AT_HOME)
    assert [message.topic for message in near.messages()] == ["Alert", "collision"]
    assert far.messages() == []


def test_an_emergency_without_a_place_raises_nothing_and_is_counted() -> None:
    edge = EdgeInMemory()
    edge.broker.alerts.rules = (AlertRule("collision"),)
    edge.connect("sender").publish("collision")
    assert edge.broker.alerts.raised == 0
    assert edge.broker.counts.dropped == {Reason.FIELD_MISSING: 1}


@pytest.mark.parametrize(("centre", "raised"), [(HOME, 1), (Place(48.1, 11.6), 0)])
def test_an_emergency_outside_the_coverage_raises_no_alert(centre: Place, raised: int) -> None:
    edge = EdgeInMemory()
    edge.broker.configure(PlausibilityRules(Circle(centre, 5_000.0)), (AlertRule("Emergency"),))
    edge.connect("c").publish("Emergency", b"", 1, properties=AT_HOME)
    assert edge.broker.statistics().alerts_raised == raised
    assert edge.broker.counts.dropped[Reason.AREA_NOT_COVERED] == 1 - raised
