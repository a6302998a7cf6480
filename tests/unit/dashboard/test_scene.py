from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from milepost.dashboard.records import EdgeRemoved, Fact
from milepost.dashboard.scene import FORGET_S, OFFLINE_S, ROAMED_S, Scene
from milepost.dashboard.server import frame_of
from milepost.dashboard.vehicles import VehicleFlag
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EVENT_KINDS
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.site_records import EdgeInfo, EdgeRef, ForwardedMessage, HubInfo, edge_key
from unit.dashboard.mirrors import HOME, START, Mirror, alert, deliveries, later, reports

WEST = EdgeInfo(EdgeRef("north", "west"), Circle(HOME, 1_000))


def scene_of(*facts: Fact, at: Instant = START, vehicles_max: int = 100) -> Scene:
    scene = Scene(EVENT_KINDS, vehicles_max=vehicles_max)
    for fact in facts:
        scene.take("north", fact, at, at)
    scene.tick(at)
    return scene


def shown(scene: Scene, at: Instant = START) -> Mirror:
    return Mirror().take(frame_of(scene.whole(at)))


def flags(scene: Scene, name: str) -> VehicleFlag:
    vehicles: dict[str, Any] = shown(scene).shown[1]
    return VehicleFlag(vehicles[name][-1])


def advance(scene: Scene, to: Instant, *facts: Fact) -> Scene:
    for fact in facts:
        scene.take("north", fact, to, to)
    scene.tick(to)
    return scene


names = st.sampled_from([f"car-{number}" for number in range(6)])
offsets = st.floats(-0.02, 0.02, allow_nan=False)
some_reports = st.builds(
    lambda edge, rows: ("reports", edge, rows),
    st.sampled_from(["north/west", "north/east"]),
    st.lists(st.tuples(names, offsets, offsets)),
)
some_alerts = st.builds(
    lambda number, incident, phase, valid_s: ("alert", number, incident, phase, valid_s),
    st.integers(1, 5),
    st.sampled_from(["", "one"]),
    st.sampled_from(["raised", "cleared"]),
    st.integers(1, 90),
)
some_deliveries = st.builds(
    lambda number, rows: ("deliveries", number, rows),
    st.integers(1, 6),
    st.lists(st.tuples(names, st.sampled_from(["matched", "sent", "acknowledged", "dropped", "nonsense"]))),
)
waits = st.builds(lambda seconds: ("wait", seconds), st.floats(0.0, 70.0))
steps = st.lists(st.one_of(some_reports, some_alerts, some_deliveries, waits, st.just(("diff",))), max_size=40)


@given(steps, st.integers(1, 8))
def test_a_scene_and_all_later_diffs_produce_the_current_scene(taken: list[Any], vehicles_max: int) -> None:
    scene, now = scene_of(WEST, vehicles_max=vehicles_max), START
    mirror = Mirror().take(frame_of(scene.whole(now)))
    scene.take_diff(now)
    for step in taken:
        match step:
            case ("reports", edge, rows):
                scene.take("north", reports(edge, *rows, at=now), now, now)
            case ("alert", number, incident, phase, valid_s):
                scene.take("north", alert(number, incident=incident, phase=phase, at=now, valid_s=valid_s), now, now)
            case ("deliveries", number, rows):
                scene.take("north", deliveries(number, *rows, at=now, reason=3), now, now)
            case ("wait", seconds):
                now = later(seconds, now)
                scene.tick(now)
            case _:
                mirror.take(frame_of(scene.take_diff(now)))
    scene.tick(now)
    mirror.take(frame_of(scene.take_diff(now)))
    assert mirror.shown == shown(scene, now).shown
    assert len(mirror.names) <= vehicles_max


def test_a_vehicle_with_an_alert_is_warned_until_its_validity_ends() -> None:
    scene = scene_of(reports("north/west", ("in", 0, 0), ("out", 0.1, 0)), alert(1), deliveries(1, ("in", "matched")))
    assert flags(scene, "in") == VehicleFlag.UNCONFIRMED
    advance(scene, later(1), deliveries(1, ("in", "sent")))
    assert flags(scene, "in") == VehicleFlag.WARNED
    assert flags(scene, "out") == VehicleFlag(0)
    advance(scene, later(61), reports("north/west", ("in", 0, 0), at=later(61)))
    assert flags(scene, "in") == VehicleFlag(0)


def test_a_vehicle_stays_warned_across_the_alerts_of_an_incident_until_the_all_clear() -> None:
    scene = scene_of(reports("north/west", ("in", 0, 0)), alert(1, incident="one"), deliveries(1, ("in", "acknowledged")))
    advance(scene, later(1), alert(2, incident="one", phase="grown", at=later(1)))
    assert flags(scene, "in") == VehicleFlag.WARNED
    states = {key: row["state"] for key, row in shown(scene).tables["alerts"].items()}
    assert states == {"@service/incidents:1": "replaced", "@service/incidents:2": "active"}
    advance(
        scene,
        later(50),
        reports("north/west", ("in", 0, 0), at=later(50)),
        alert(3, incident="one", phase="lasting", at=later(50)),
    )
    advance(scene, later(70), reports("north/west", ("in", 0, 0), at=later(70)))
    assert flags(scene, "in") == VehicleFlag.WARNED, "the last alert is still valid"
    advance(scene, later(71), alert(4, incident="one", phase="cleared", at=later(71)))
    assert flags(scene, "in") == VehicleFlag(0)


def test_a_vehicle_that_stays_inside_without_a_delivery_is_missed_and_one_that_left_is_not() -> None:
    scene = scene_of(reports("north/west", ("stays", 0, 0), ("leaves", 0.001, 0)), alert(1))
    advance(scene, later(0.5), reports("north/west", ("leaves", 0.1, 0), at=later(0.5)))
    advance(scene, later(1.5))
    proof = scene.alerts.find_proof("@service/incidents:1")
    assert proof is not None
    assert [(row["endpoint"], row["inside"], row["state"]) for row in proof["endpoints"]] == [("stays", True, "missed")]
    assert flags(scene, "stays") == VehicleFlag.UNCONFIRMED


def test_an_alert_read_late_does_not_use_current_positions() -> None:
    scene = scene_of(reports("north/west", ("in", 0, 0)))
    scene.take("north", alert(1), START, later(30))
    scene.tick(later(32))
    proof = scene.alerts.find_proof("@service/incidents:1")
    assert proof is not None
    assert proof["endpoints"] == []


def test_a_vehicle_that_changes_its_edge_is_flagged_as_roamed_for_a_while() -> None:
    scene = scene_of(reports("north/west", ("car", 0, 0)))
    advance(scene, later(1), reports("north/east", ("car", 0, 0.01), at=later(1)))
    assert flags(scene, "car") == VehicleFlag.ROAMED
    (move,) = shown(scene).tables["moves"].values()
    assert (move["endpoint"], move["from"], move["to"]) == ("car", "north/west", "north/east")
    advance(scene, later(1 + ROAMED_S + 1))
    assert flags(scene, "car") == VehicleFlag(0)


def test_refused_reports_are_counted_and_not_shown() -> None:
    scene = scene_of(reports("north/west", ("implausible", 0, 0), verdict=100))
    assert shown(scene).tables["edges"]["north/west"]["refused_per_s"] == 1
    assert len(scene.vehicles) == 0


def test_a_vehicle_without_recent_reports_is_removed() -> None:
    scene = scene_of(reports("north/west", ("car", 0, 0)))
    advance(scene, later(FORGET_S - 1))
    assert len(scene.vehicles) == 1
    advance(scene, later(FORGET_S + 1))
    assert len(scene.vehicles) == 0


def test_an_edge_with_vehicles_but_without_reports_is_silent_and_a_removed_edge_has_no_coverage() -> None:
    scene = scene_of(WEST, reports("north/west", ("car", 0, 0)))
    edges = shown(scene).tables["edges"]
    assert edges["north/west"]["coverage"]["radius_m"] == 1_000
    assert not edges["north/west"]["is_silent"]
    assert scene.site_at(HOME) == "north"
    advance(scene, later(OFFLINE_S + 1), EdgeRemoved(edge_key(WEST.edge)))
    gone = shown(scene).tables["edges"]["north/west"]
    assert gone["is_silent"]
    assert "coverage" not in gone
    assert scene.site_at(HOME) is None


def test_a_central_hub_without_recent_records_is_offline() -> None:
    scene = scene_of(HubInfo("hub-1", ("north",), START))
    assert shown(scene).tables["sites"]["north"]["is_hub_up"]
    advance(scene, later(OFFLINE_S + 1))
    assert not shown(scene).tables["sites"]["north"]["is_hub_up"]


def test_an_event_is_shown_as_a_hazard_at_its_place_or_at_its_source() -> None:
    def forwarded(number: int, topic: str, source: str = "car", **more: Any) -> ForwardedMessage:
        return ForwardedMessage(
            EdgeRef("north", "west"), number, Message(MessageId(number), EndpointId(source), topic, START, **more)
        )

    scene = scene_of(
        reports("north/west", ("car", 0.01, 0)),
        forwarded(1, "Collision", place=HOME),
        forwarded(2, "Collision"),
        forwarded(3, "Collision", source="unknown"),
        forwarded(4, "chat", place=HOME),
    )
    hazards = shown(scene).tables["hazards"]
    assert {key: row["place"][1] for key, row in hazards.items()} == {"north/west:1": 40.76, "north/west:2": 40.77}
    advance(scene, later(61))
    assert not shown(scene).tables["hazards"]
