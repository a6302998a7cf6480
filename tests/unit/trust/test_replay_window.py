import pytest

from milepost.trust.replay_window import WIDTH, ReplayWindow


def taken(*counters: int) -> ReplayWindow:
    window = ReplayWindow()
    for counter in counters:
        window.take(counter)
    return window


def test_the_first_counter_is_new_once() -> None:
    assert ReplayWindow().is_new(0)
    assert not taken(0).is_new(0)


def test_counters_may_arrive_in_any_order_within_the_window() -> None:
    window = taken(10, 8, 9)
    assert [window.is_new(counter) for counter in (7, 8, 9, 10, 11)] == [True, False, False, False, True]


def test_the_oldest_counter_of_the_window_is_known_the_one_before_it_is_not() -> None:
    window = taken(1000)
    assert window.is_new(1000 - WIDTH + 1)
    assert not window.is_new(1000 - WIDTH)


def test_a_received_counter_is_still_known_after_the_window_moved_by_its_width_less_one() -> None:
    assert not taken(0, WIDTH - 1).is_new(0)


@pytest.mark.parametrize("far", [WIDTH, 2**64 - 1])
def test_a_large_jump_forgets_older_counters_and_takes_no_memory(far: int) -> None:
    window = taken(0, 1, far)
    assert not window.is_new(0)
    assert window.seen < 1 << WIDTH
    assert window.is_new(far - 1)


def test_taking_a_counter_twice_fails_an_assertion() -> None:
    with pytest.raises(AssertionError):
        taken(3, 3)
