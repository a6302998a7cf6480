"""Receivers: errors of metres, reproducible by seed, and a random heading for a standing vehicle."""

import numpy as np

from milepost.model.places import Place, distance_m
from milepost_experiments.simulator.traffic import ERROR_SIGMA_M, Cars, Receivers

COUNT = 400


def cars(*, speed_mps: float = 10.0, since: int = 0) -> Cars:
    names = tuple(f"car-{number}" for number in range(since, since + COUNT))
    latitudes, longitudes, headings, speeds = (np.full(COUNT, value) for value in (52.43, 13.53, 90.0, speed_mps))
    return Cars(names, latitudes, longitudes, headings, speeds, ("road",) * COUNT)


def errors_m(true: Cars, seen: Cars) -> list[float]:
    places = [zip(one.latitudes.tolist(), one.longitudes.tolist(), strict=True) for one in (true, seen)]
    return [distance_m(Place(*one), Place(*other)) for one, other in zip(*places, strict=True)]


def test_position_errors_are_some_metres_and_drift() -> None:
    receivers, true = Receivers(1), cars()
    first, second = receivers.observe(true), receivers.observe(true)
    for seen in (first, second):
        assert ERROR_SIGMA_M < np.sqrt(np.mean(np.square(errors_m(true, seen)))) < 2 * ERROR_SIGMA_M
    assert 0 < max(errors_m(first, second)) < 8 * ERROR_SIGMA_M
    assert np.mean(errors_m(first, second)) < 0.5 * np.mean(errors_m(true, first))


def test_equal_seeds_give_equal_errors_and_others_do_not() -> None:
    true = cars()
    assert np.array_equal(Receivers(1).observe(true).latitudes, Receivers(1).observe(true).latitudes)
    assert not np.array_equal(Receivers(1).observe(true).latitudes, Receivers(2).observe(true).latitudes)


def test_a_standing_vehicle_knows_its_speed_but_not_its_heading() -> None:
    seen = Receivers(1).observe(cars(speed_mps=0.0))
    assert not seen.speeds_mps.any()
    assert np.ptp(seen.headings_deg) > 300
    driving = Receivers(1).observe(cars())
    assert np.ptp(driving.headings_deg) < 60


def test_a_departed_vehicle_is_forgotten_and_a_new_one_gets_new_errors() -> None:
    receivers = Receivers(1)
    receivers.observe(cars())
    seen = receivers.observe(cars(since=COUNT))
    assert np.std(errors_m(cars(), seen)) > 0
