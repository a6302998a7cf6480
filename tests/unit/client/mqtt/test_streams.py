"""URLs."""

import pytest

from milepost.client.mqtt.streams import Target, referred, target_of


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


@pytest.mark.parametrize(
    ("reference", "host", "port"),
    [("other", "other", 8883), ("other:99", "other", 99), ("10.0.0.7:1", "10.0.0.7", 1), ("[fe80::1]:7", "fe80::1", 7)],
)
def test_a_reference_leads_elsewhere_in_the_same_way(reference: str, host: str, port: int) -> None:
    assert referred(Target("mqtts", "h", 1, "", "ada", "secret"), reference) == Target("mqtts", host, port, "", "ada", "secret")
    assert referred(Target("wss", "h", 1, "/x"), "other") == Target("wss", "other", 443, "/x")


@pytest.mark.parametrize("reference", ["", "other:0", "other:x", "mqtt://other", "other/path", "bob@other", "[fe80::1"])
def test_what_is_no_reference_leads_nowhere(reference: str) -> None:
    for scheme in ("mqtt", "ws"):
        assert referred(Target(scheme, "h", 1), reference) is None
