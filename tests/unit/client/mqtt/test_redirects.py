"""Where the next attempt goes when servers name others."""

from milepost.client.mqtt.redirects import FAILURES_MAX, FOLLOWED_MAX, Redirects
from milepost.client.mqtt.streams import Target

HOME = Target("mqtt", "home", 1883)


def test_the_first_server_that_can_be_read_is_followed() -> None:
    course = Redirects(HOME)
    assert course.is_home
    assert course.follow("other:0 other:7 third")
    assert (course.target, course.is_home) == (Target("mqtt", "other", 7), False)


def test_a_reference_that_cannot_be_read_changes_nothing() -> None:
    course = Redirects(HOME)
    course.follow("other")
    assert not course.follow("mqtt://third")
    assert not course.follow(" ")
    assert course.target.host == "other"


def test_a_server_that_lets_nobody_in_is_tried_some_times_and_then_home_again() -> None:
    course = Redirects(HOME)
    course.failed()
    course.follow("other")
    for _ in range(FAILURES_MAX - 1):
        course.failed()
        assert course.target.host == "other"
    course.failed()
    assert course.is_home


def test_who_was_let_in_is_tried_as_often_again() -> None:
    course = Redirects(HOME)
    course.follow("other")
    course.failed()
    course.opened()
    for _ in range(FAILURES_MAX - 1):
        course.failed()
    assert course.target.host == "other"


def test_there_is_no_turning_back_at_home() -> None:
    course = Redirects(HOME)
    assert not course.turn_back()
    course.follow("other")
    assert course.turn_back()
    assert course.is_home


def test_circles_are_left_after_some_rounds_until_a_connection_lasts() -> None:
    course = Redirects(HOME)
    for number in range(FOLLOWED_MAX):
        assert course.follow(f"other-{number}")
        assert course.target.host == f"other-{number}"
    for _ in range(3):
        assert course.follow("other")
        assert course.is_home
    course.settled()
    assert course.follow("other")
    assert course.target.host == "other"
