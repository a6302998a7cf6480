from milepost.dashboard.vehicles import Sighting, VehicleFlag, Vehicles
from milepost.model.areas import Circle
from milepost.model.places import Place


def sighting(name: str, at_us: int, *, edge: int = 0, latitude: float = 1.0) -> Sighting:
    return Sighting(name, latitude, 2.0, None, None, edge, at_us)


def test_an_older_report_changes_nothing() -> None:
    vehicles = Vehicles(10)
    vehicles.update(sighting("car", 20, latitude=1.0))
    assert vehicles.update(sighting("car", 10, latitude=9.0, edge=5)) is None
    assert vehicles.find_place("car") == (1.0, 2.0)
    assert vehicles.count_by_edge() == {0: 1}


def test_the_number_of_a_removed_vehicle_is_reused_only_after_a_diff_reported_the_removal() -> None:
    vehicles = Vehicles(1)
    vehicles.update(sighting("old", 10))
    vehicles.take_changes()
    vehicles.forget(20)
    vehicles.update(sighting("new", 30))
    assert vehicles.hidden == 1
    assert vehicles.take_changes().removed == [0]
    vehicles.update(sighting("new", 40))
    assert vehicles.take_changes().names == {0: "new"}


def test_vehicles_beyond_the_limit_are_counted_as_hidden() -> None:
    vehicles = Vehicles(3_000)
    for number in range(3_100):
        vehicles.update(sighting(f"car-{number}", 1, latitude=number / 100))
    assert len(vehicles) == 3_000
    assert vehicles.hidden == 100
    assert vehicles.find_place("car-2999") == (29.99, 2.0)


def test_a_flag_stays_when_the_vehicle_moves_and_is_not_inherited() -> None:
    vehicles = Vehicles(1)
    vehicles.update(sighting("car", 1))
    vehicles.set_flag("car", VehicleFlag.WARNED, is_set=True)
    vehicles.update(sighting("car", 2))
    assert vehicles.count_flagged(VehicleFlag.WARNED) == 1
    vehicles.forget(10)
    vehicles.take_changes()
    vehicles.update(sighting("other", 20))
    assert vehicles.count_flagged(VehicleFlag.WARNED) == 0


def test_vehicles_inside_an_area_are_found() -> None:
    vehicles = Vehicles(10)
    assert vehicles.inside(Circle(Place(1.0, 2.0), 100)) == set()
    vehicles.update(sighting("in", 1))
    vehicles.update(sighting("out", 1, latitude=5.0))
    assert vehicles.inside(Circle(Place(1.0, 2.0), 100)) == {"in"}
    assert vehicles.inside(Circle(Place(1.0, 2.0), 100), 1 << 62) == set(), "no vehicle was seen since"
