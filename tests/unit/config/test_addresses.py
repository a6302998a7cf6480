import pytest

from milepost.config.addresses import host_and_port


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
