from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from milepost.dashboard.records import EdgeGone, Fact
from milepost.dashboard.scene import AWAY_S, FORGET_S, ROAMED_S, Scene
from milepost.dashboard.server import frame_of
from milepost.dashboard.vehicles import Mark
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EVENT_KINDS
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.sites import EdgeInfo, EdgeRef, ForwardedMessage, HubInfo, edge_key
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


def marks(scene: Scene, name: str) -> Mark:
    vehicles: dict[str, Any] = shown(scene).shown[1]
    return Mark(vehicles[name][-1])


def go_on(scene: Scene, to: Instant, *facts: Fact) -> Scene:
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
def test_a_scene_and_all_diffs_since_make_the_scene_of_now(taken: list[Any], vehicles_max: int) -> None:
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


def test_who_has_an_alert_is_warned_until_it_is_no_longer_valid() -> None:
    scene = scene_of(reports("north/west", ("in", 0, 0), ("out", 0.1, 0)), alert(1), deliveries(1, ("in", "matched")))
    assert marks(scene, "in") == Mark.CONCERNED
    go_on(scene, later(1), deliveries(1, ("in", "sent")))
    assert marks(scene, "in") == Mark.WARNED
    assert marks(scene, "out") == Mark(0)
    go_on(scene, later(61), reports("north/west", ("in", 0, 0), at=later(61)))
    assert marks(scene, "in") == Mark(0)


def test_who_is_warned_stays_so_from_one_alert_of_an_incident_to_the_next_until_the_all_clear() -> None:
    scene = scene_of(reports("north/west", ("in", 0, 0)), alert(1, incident="one"), deliveries(1, ("in", "acknowledged")))
    go_on(scene, later(1), alert(2, incident="one", phase="grown", at=later(1)))
    assert marks(scene, "in") == Mark.WARNED
    states = {key: row["state"] for key, row in shown(scene).tables["alerts"].items()}
    assert states == {"desk:1": "replaced", "desk:2": "live"}
    go_on(
        scene,
        later(50),
        reports("north/west", ("in", 0, 0), at=later(50)),
        alert(3, incident="one", phase="lasting", at=later(50)),
    )
    go_on(scene, later(70), reports("north/west", ("in", 0, 0), at=later(70)))
    assert marks(scene, "in") == Mark.WARNED, "the last alert is valid"
    go_on(scene, later(71), alert(4, incident="one", phase="cleared", at=later(71)))
    assert marks(scene, "in") == Mark(0)


def test_who_was_inside_and_still_is_and_got_nothing_is_missed_and_who_left_is_not() -> None:
    scene = scene_of(reports("north/west", ("stays", 0, 0), ("leaves", 0.001, 0)), alert(1))
    go_on(scene, later(0.5), reports("north/west", ("leaves", 0.1, 0), at=later(0.5)))
    go_on(scene, later(1.5))
    proof = scene.alerts.maybe_proof("desk:1")
    assert proof is not None
    assert [(row["endpoint"], row["inside"], row["state"]) for row in proof["endpoints"]] == [("stays", True, "missed")]
    assert marks(scene, "stays") == Mark.CONCERNED


def test_an_alert_that_is_read_late_asks_nobody_where_they_are_now() -> None:
    scene = scene_of(reports("north/west", ("in", 0, 0)))
    scene.take("north", alert(1), START, later(30))
    scene.tick(later(32))
    proof = scene.alerts.maybe_proof("desk:1")
    assert proof is not None
    assert proof["endpoints"] == []


def test_a_vehicle_that_reports_to_another_edge_has_roamed_for_a_while() -> None:
    scene = scene_of(reports("north/west", ("car", 0, 0)))
    go_on(scene, later(1), reports("north/east", ("car", 0, 0.01), at=later(1)))
    assert marks(scene, "car") == Mark.ROAMED
    (move,) = shown(scene).tables["moves"].values()
    assert (move["endpoint"], move["from"], move["to"]) == ("car", "north/west", "north/east")
    go_on(scene, later(1 + ROAMED_S + 1))
    assert marks(scene, "car") == Mark(0)


def test_reports_that_were_refused_are_counted_and_not_shown() -> None:
    scene = scene_of(reports("north/west", ("liar", 0, 0), verdict=100))
    assert shown(scene).tables["edges"]["north/west"]["refused_per_s"] == 1
    assert len(scene.vehicles) == 0


def test_a_vehicle_that_says_nothing_for_long_is_gone() -> None:
    scene = scene_of(reports("north/west", ("car", 0, 0)))
    go_on(scene, later(FORGET_S - 1))
    assert len(scene.vehicles) == 1
    go_on(scene, later(FORGET_S + 1))
    assert len(scene.vehicles) == 0


def test_an_edge_that_has_vehicles_and_says_nothing_is_silent_and_one_that_was_taken_out_covers_nothing() -> None:
    scene = scene_of(WEST, reports("north/west", ("car", 0, 0)))
    edges = shown(scene).tables["edges"]
    assert edges["north/west"]["coverage"]["radius_m"] == 1_000
    assert not edges["north/west"]["is_silent"]
    assert scene.site_at(HOME) == "north"
    go_on(scene, later(AWAY_S + 1), EdgeGone(edge_key(WEST.edge)))
    gone = shown(scene).tables["edges"]["north/west"]
    assert gone["is_silent"]
    assert "coverage" not in gone
    assert scene.site_at(HOME) is None


def test_a_centre_that_gives_no_sign_of_life_is_away() -> None:
    scene = scene_of(HubInfo("centre-1", ("north",), START))
    assert shown(scene).tables["sites"]["north"]["is_centre_there"]
    go_on(scene, later(AWAY_S + 1))
    assert not shown(scene).tables["sites"]["north"]["is_centre_there"]


def test_a_report_of_an_event_is_a_hazard_where_it_was_seen_or_where_its_source_is() -> None:
    def said(number: int, topic: str, source: str = "car", **more: Any) -> ForwardedMessage:
        return ForwardedMessage(
            EdgeRef("north", "west"), number, Message(MessageId(number), EndpointId(source), topic, START, **more)
        )

    scene = scene_of(
        reports("north/west", ("car", 0.01, 0)),
        said(1, "Collision", place=HOME),
        said(2, "Collision"),
        said(3, "Collision", source="nobody"),
        said(4, "chat", place=HOME),
    )
    hazards = shown(scene).tables["hazards"]
    assert {key: row["place"][1] for key, row in hazards.items()} == {"north/west:1": 40.76, "north/west:2": 40.77}
    go_on(scene, later(61))
    assert not shown(scene).tables["hazards"]
