"""Receivers: metres off, the same for the same seed, and who stands faces anywhere."""

import numpy as np

from milepost.model.places import Place, distance_m
from milepost_experiments.simulator.traffic import SPREAD_M, Cars, Receivers

COUNT = 400


def cars(*, speed_mps: float = 10.0, since: int = 0) -> Cars:
    names = tuple(f"car-{number}" for number in range(since, since + COUNT))
    up, over, heading, speed = (np.full(COUNT, value) for value in (52.43, 13.53, 90.0, speed_mps))
    return Cars(names, up, over, heading, speed, ("road",) * COUNT)


def off_m(true: Cars, seen: Cars) -> list[float]:
    places = [zip(one.latitudes.tolist(), one.longitudes.tolist(), strict=True) for one in (true, seen)]
    return [distance_m(Place(*one), Place(*other)) for one, other in zip(*places, strict=True)]


def test_places_are_off_by_metres_and_wander() -> None:
    receivers, true = Receivers(1), cars()
    first, second = receivers.seen(true), receivers.seen(true)
    for seen in (first, second):
        assert SPREAD_M < np.sqrt(np.mean(np.square(off_m(true, seen)))) < 2 * SPREAD_M
    assert 0 < max(off_m(first, second)) < 8 * SPREAD_M
    assert np.mean(off_m(first, second)) < 0.5 * np.mean(off_m(true, first))


def test_the_same_seed_gives_the_same_errors_and_another_one_others() -> None:
    true = cars()
    assert np.array_equal(Receivers(1).seen(true).latitudes, Receivers(1).seen(true).latitudes)
    assert not np.array_equal(Receivers(1).seen(true).latitudes, Receivers(2).seen(true).latitudes)


def test_who_stands_knows_that_it_stands_but_not_which_way_it_faces() -> None:
    seen = Receivers(1).seen(cars(speed_mps=0.0))
    assert not seen.speeds_mps.any()
    assert np.ptp(seen.headings_deg) > 300
    driving = Receivers(1).seen(cars())
    assert np.ptp(driving.headings_deg) < 60


def test_who_has_gone_is_forgotten_and_who_comes_is_off_anew() -> None:
    receivers = Receivers(1)
    receivers.seen(cars())
    seen = receivers.seen(cars(since=COUNT))
    assert np.std(off_m(cars(), seen)) > 0
