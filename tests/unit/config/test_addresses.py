import pytest

from milepost.config.addresses import host_and_port, is_loopback


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:1883", ("127.0.0.1", 1883)),
        ("[::1]:0", ("::1", 0)),
        ("edge.example:65535", ("edge.example", 65535)),
    ],
)
def test_an_address_has_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert host_and_port(address) == parts


@pytest.mark.parametrize(
    "address", ["", "1883", ":1883", "host:", "host:x", "host:65536", "host:-1", "::1:1883", "host:²", "host:1 "]
)
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        host_and_port(address)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "[::1]", "localhost", "LOCALHOST"])
def test_loopback_is_this_machine_only(host: str) -> None:
    assert is_loopback(f"{host}:1883")


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.7", "[fe80::1]", "edge.example", "128.0.0.1", "localhost.example"])
def test_any_other_host_is_reachable_from_elsewhere(host: str) -> None:
    assert not is_loopback(f"{host}:1883")
