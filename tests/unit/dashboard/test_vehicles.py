from milepost.dashboard.vehicles import Mark, Sighting, Vehicles
from milepost.model.areas import Circle
from milepost.model.places import Place


def seen(name: str, at_us: int, *, edge: int = 0, latitude: float = 1.0) -> Sighting:
    return Sighting(name, latitude, 2.0, None, None, edge, at_us)


def test_an_older_report_changes_nothing() -> None:
    vehicles = Vehicles(10)
    vehicles.see(seen("car", 20, latitude=1.0))
    assert vehicles.see(seen("car", 10, latitude=9.0, edge=5)) is None
    assert vehicles.maybe_place("car") == (1.0, 2.0)
    assert vehicles.count_by_edge() == {0: 1}


def test_the_number_of_one_that_is_gone_is_given_away_only_after_that_was_told() -> None:
    vehicles = Vehicles(1)
    vehicles.see(seen("old", 10))
    vehicles.take_changes()
    vehicles.forget(20)
    vehicles.see(seen("new", 30))
    assert vehicles.hidden == 1
    assert vehicles.take_changes().gone == [0]
    vehicles.see(seen("new", 40))
    assert vehicles.take_changes().names == {0: "new"}


def test_there_is_room_for_many_and_no_more_than_the_limit() -> None:
    vehicles = Vehicles(3_000)
    for number in range(3_100):
        vehicles.see(seen(f"car-{number}", 1, latitude=number / 100))
    assert len(vehicles) == 3_000
    assert vehicles.hidden == 100
    assert vehicles.maybe_place("car-2999") == (29.99, 2.0)


def test_a_mark_stays_when_the_vehicle_moves_and_is_not_inherited() -> None:
    vehicles = Vehicles(1)
    vehicles.see(seen("car", 1))
    vehicles.mark("car", Mark.WARNED, is_so=True)
    vehicles.see(seen("car", 2))
    assert vehicles.count_marked(Mark.WARNED) == 1
    vehicles.forget(10)
    vehicles.take_changes()
    vehicles.see(seen("other", 20))
    assert vehicles.count_marked(Mark.WARNED) == 0


def test_who_is_inside_an_area_is_found() -> None:
    vehicles = Vehicles(10)
    assert vehicles.inside(Circle(Place(1.0, 2.0), 100)) == set()
    vehicles.see(seen("in", 1))
    vehicles.see(seen("out", 1, latitude=5.0))
    assert vehicles.inside(Circle(Place(1.0, 2.0), 100)) == {"in"}
    assert vehicles.inside(Circle(Place(1.0, 2.0), 100), 1 << 62) == set(), "nobody was seen since"
