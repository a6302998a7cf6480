"""URLs."""

import pytest

from milepost.client.mqtt.streams import Target, target_of


@pytest.mark.parametrize(
    ("url", "target", "shown"),
    [
        ("mqtt://h", Target("mqtt", "h", 1883), "mqtt://h:1883"),
        ("mqtts://h/", Target("mqtts", "h", 8883), "mqtts://h:8883"),
        ("mqtt://[::1]:99", Target("mqtt", "::1", 99), "mqtt://[::1]:99"),
        ("ws://h:8083", Target("ws", "h", 8083, "/mqtt"), "ws://h:8083/mqtt"),
        ("wss://h/x", Target("wss", "h", 443, "/x"), "wss://h:443/x"),
        ("mqtt://ada:p%40ss@h", Target("mqtt", "h", 1883, "", "ada", "p@ss"), "mqtt://h:1883"),
    ],
)
def test_a_url_says_where(url: str, target: Target, shown: str) -> None:
    assert target_of(url) == target
    assert str(target) == shown
    assert target.is_encrypted is (target.scheme in ("mqtts", "wss"))


@pytest.mark.parametrize("url", ["", "h", "http://h", "mqtt://", "mqtt://h:0", "mqtt://h:99999", "mqtt://h/path", "ws://h?x=1"])
def test_what_is_no_url_of_an_edge_is_told(url: str) -> None:
    with pytest.raises(ValueError, match="the URL"):
        target_of(url)
