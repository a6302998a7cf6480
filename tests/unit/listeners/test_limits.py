import pytest

from milepost.listeners.limits import MqttLimits


@pytest.mark.parametrize(
    "name", ["connections_max", "handshakes_max", "unsent_bytes_max", "messages_burst", "bytes_burst", "subscribes_burst"]
)
def test_a_limit_that_would_refuse_everything_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is 0"):
        MqttLimits(**{name: 0})


def test_a_rate_of_0_means_unlimited() -> None:
    assert MqttLimits(messages_per_s=0, messages_burst=0, connections_per_address_max=0).messages_per_s == 0
