"""Cells that are published repeatedly: the valid versions do not depend on the order of arrival."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.incidents import EVENT_KINDS, EventKind
from milepost.pipelines.hazards import kind_ids
from unit.incidents.events import HOME, after, away
from unit.pipelines.hazards_oracle import Sighting, expected_cells, last_of

KIND = EventKind("Collision", "Collision", "weight >= 3 and mean_speed_mps < 4", "Alert/Collision")

sightings = st.builds(
    lambda number, north_m, seconds, speed_mps: Sighting(
        "Collision", f"car-{number}", away(north_m), after(seconds), {} if speed_mps is None else {"speed_mps": speed_mps}
    ),
    st.integers(0, 80),
    st.sampled_from([0.0, 100.0, 400.0]),
    st.floats(0, 25),
    st.none() | st.floats(-2e6, 2e6),
)


@given(st.lists(sightings, min_size=1, max_size=60), st.data())
def test_cells_published_in_any_order_and_repeatedly_yield_the_cells_of_all_reports(
    found: list[Sighting], data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(1, len(found)), max_size=6))
    versions = [cell for cut in (*cuts, len(found)) for cell in expected_cells([KIND], found[:cut]).values()]
    again = data.draw(st.permutations([*versions, *versions]))
    assert last_of(again) == expected_cells([KIND], found)


def test_without_matching_reports_the_oracle_has_no_cells() -> None:
    assert expected_cells([KIND], [Sighting("Blocked", "car-1", HOME, after(1))]) == {}


def test_the_number_of_a_kind_does_not_depend_on_the_other_kinds() -> None:
    assert list(kind_ids([KIND])) == [one for one, name in kind_ids(EVENT_KINDS).items() if name == KIND.name]


def test_kinds_with_the_same_number_are_refused() -> None:
    with pytest.raises(ValueError, match="plumless and buckeroo"):
        kind_ids([replace(KIND, name="plumless"), replace(KIND, name="buckeroo")])
