"""Active alerts to an area and their all-clear, seed by seed, while endpoints move and edges fail (M14, D8)."""

import pytest

from effort import seeds
from simulation.roaming.alert_scenario import AlertScenario

FAILED_ONCE_BETWEEN_SITES = [51]


@pytest.mark.parametrize("seed", seeds(range(30), [], block=30))
def test_endpoints_inside_are_notified_once_and_get_the_all_clear_within_a_site(seed: int) -> None:
    assert AlertScenario(seed).run() == []


@pytest.mark.parametrize("seed", seeds(range(6), FAILED_ONCE_BETWEEN_SITES, block=6))
def test_endpoints_inside_are_notified_once_and_get_the_all_clear_between_sites(seed: int) -> None:
    assert AlertScenario(seed, sites=2, hubs=1).run() == []
