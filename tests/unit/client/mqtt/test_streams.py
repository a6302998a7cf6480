"""URLs and server references."""

import pytest

from milepost.client.mqtt.streams import MqttTarget, resolve_reference, target_of


@pytest.mark.parametrize(
    ("url", "target", "shown"),
    [
        ("mqtt://h", MqttTarget("mqtt", "h", 1883), "mqtt://h:1883"),
        ("mqtts://h/", MqttTarget("mqtts", "h", 8883), "mqtts://h:8883"),
        ("mqtt://[::1]:99", MqttTarget("mqtt", "::1", 99), "mqtt://[::1]:99"),
        ("ws://h:8083", MqttTarget("ws", "h", 8083, "/mqtt"), "ws://h:8083/mqtt"),
        ("wss://h/x", MqttTarget("wss", "h", 443, "/x"), "wss://h:443/x"),
        ("mqtt://ada:p%40ss@h", MqttTarget("mqtt", "h", 1883, "", "ada", "p@ss"), "mqtt://h:1883"),
    ],
)
def test_a_url_is_decoded(url: str, target: MqttTarget, shown: str) -> None:
    assert target_of(url) == target
    assert str(target) == shown
    assert target.is_encrypted is (target.scheme in ("mqtts", "wss"))


@pytest.mark.parametrize("url", ["", "h", "http://h", "mqtt://", "mqtt://h:0", "mqtt://h:99999", "mqtt://h/path", "ws://h?x=1"])
def test_an_invalid_url_is_refused_with_the_reason(url: str) -> None:
    with pytest.raises(ValueError, match="the URL"):
        target_of(url)


@pytest.mark.parametrize(
    ("reference", "host", "port"),
    [("other", "other", 8883), ("other:99", "other", 99), ("10.0.0.7:1", "10.0.0.7", 1), ("[fe80::1]:7", "fe80::1", 7)],
)
def test_a_server_reference_keeps_the_scheme(reference: str, host: str, port: int) -> None:
    assert resolve_reference(MqttTarget("mqtts", "h", 1, "", "ada", "secret"), reference) == MqttTarget(
        "mqtts", host, port, "", "ada", "secret"
    )
    assert resolve_reference(MqttTarget("wss", "h", 1, "/x"), "other") == MqttTarget("wss", "other", 443, "/x")


@pytest.mark.parametrize("reference", ["", "other:0", "other:x", "mqtt://other", "other/path", "bob@other", "[fe80::1"])
def test_an_invalid_server_reference_is_ignored(reference: str) -> None:
    for scheme in ("mqtt", "ws"):
        assert resolve_reference(MqttTarget(scheme, "h", 1), reference) is None
