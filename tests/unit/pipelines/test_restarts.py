"""The restart schedule of a failed query."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.pipelines.runner import RESTART_POLICY, Restarts


def waits(restarts: Restarts, failures: int) -> list[float]:
    found = []
    for _ in range(failures):
        restarts.failed("no", 100.0)
        if restarts.starts_at_s is None:
            break
        found.append(restarts.starts_at_s - 100.0)
        restarts.started()
    return found


def test_waits_grow_to_a_minute() -> None:
    assert waits(Restarts(8), 8) == [1, 2, 4, 8, 16, 32, RESTART_POLICY.limit_s, RESTART_POLICY.limit_s]


def test_a_query_that_fails_too_often_in_a_row_is_given_up() -> None:
    restarts = Restarts(3)
    assert len(waits(restarts, 10)) == 3
    assert restarts.is_given_up
    assert restarts.fault == "no"
    assert not restarts.is_due(1e9)


def test_a_finished_batch_resets_the_failures() -> None:
    restarts = Restarts(3)
    for _ in range(5):
        assert waits(restarts, 2) == [1, 2]
        restarts.batch_finished()
    assert not restarts.is_given_up
    assert restarts.total == 10


@given(st.integers(0, 5), st.floats(0, 1e6), st.floats(0, 200))
def test_a_restart_is_due_after_its_wait_and_not_before(most: int, now_s: float, later_s: float) -> None:
    restarts = Restarts(most)
    restarts.failed("no", now_s)
    assert restarts.is_given_up == (most == 0)
    assert restarts.is_due(now_s + later_s) == (most > 0 and now_s + later_s >= now_s + 1.0)
