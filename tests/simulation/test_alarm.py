"""Messages to an area that stand, and the last word on them, seed by seed, while endpoints move and edges fail (M14, D8)."""

import pytest

from effort import seeds
from simulation.roaming.alarm import Alarm

FAILED_ONCE_BETWEEN_SITES = [51]


@pytest.mark.parametrize("seed", seeds(range(30), [], block=30))
def test_who_is_inside_is_told_once_and_who_was_told_hears_the_last_word_in_a_site(seed: int) -> None:
    assert Alarm(seed).play() == []


@pytest.mark.parametrize("seed", seeds(range(6), FAILED_ONCE_BETWEEN_SITES, block=6))
def test_who_is_inside_is_told_once_and_who_was_told_hears_the_last_word_between_sites(seed: int) -> None:
    assert Alarm(seed, sites=2, centres=1).play() == []
