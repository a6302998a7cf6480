"""The server of the next attempt after redirects."""

from milepost.client.mqtt.redirects import FAILURES_MAX, REDIRECTS_MAX, Redirects
from milepost.client.mqtt.streams import MqttTarget

HOME = MqttTarget("mqtt", "home", 1883)


def test_the_first_valid_server_reference_is_followed() -> None:
    redirects = Redirects(HOME)
    assert redirects.is_home
    assert redirects.follow("other:0 other:7 third")
    assert (redirects.target, redirects.is_home) == (MqttTarget("mqtt", "other", 7), False)


def test_an_invalid_server_reference_changes_nothing() -> None:
    redirects = Redirects(HOME)
    redirects.follow("other")
    assert not redirects.follow("mqtt://third")
    assert not redirects.follow(" ")
    assert redirects.target.host == "other"


def test_after_three_failed_attempts_the_client_returns_to_its_original_server() -> None:
    redirects = Redirects(HOME)
    redirects.on_failure()
    redirects.follow("other")
    for _ in range(FAILURES_MAX - 1):
        redirects.on_failure()
        assert redirects.target.host == "other"
    redirects.on_failure()
    assert redirects.is_home


def test_a_successful_connection_resets_the_failure_count() -> None:
    redirects = Redirects(HOME)
    redirects.follow("other")
    redirects.on_failure()
    redirects.on_connected()
    for _ in range(FAILURES_MAX - 1):
        redirects.on_failure()
    assert redirects.target.host == "other"


def test_a_client_at_its_original_server_has_nowhere_to_return_to() -> None:
    redirects = Redirects(HOME)
    assert not redirects.return_home()
    redirects.follow("other")
    assert redirects.return_home()
    assert redirects.is_home


def test_a_redirect_loop_ends_at_the_original_server_until_a_connection_is_stable() -> None:
    redirects = Redirects(HOME)
    for number in range(REDIRECTS_MAX):
        assert redirects.follow(f"other-{number}")
        assert redirects.target.host == f"other-{number}"
    for _ in range(3):
        assert redirects.follow("other")
        assert redirects.is_home
    redirects.on_stable()
    assert redirects.follow("other")
    assert redirects.target.host == "other"
