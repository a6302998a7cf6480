"""Parser of listener addresses: `127.0.0.1:1883`, `[::1]:1883`, `edge.example:8883`."""

from ipaddress import ip_address
from typing import Final

_PORT_MAX: Final = 65_535


def host_and_port(address: str) -> tuple[str, int]:
    """Split an address into host and port; port 0 lets the system choose. Raise a ValueError if it is invalid."""
    host, colon, port = address.rpartition(":")
    if not colon or not host:
        raise ValueError(f"address {address!r} is not HOST:PORT, such as 127.0.0.1:1883 or [::1]:1883")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"address {address!r}: write an IPv6 address in brackets, such as [::1]:1883")
    if not (port.isascii() and port.isdecimal() and int(port) <= _PORT_MAX):
        raise ValueError(f"address {address!r}: {port!r} is not a port from 0 to {_PORT_MAX}")
    return host, int(port)


def is_loopback(address: str) -> bool:
    """Return whether only processes of this machine can reach a valid HOST:PORT.

    A host name other than localhost may resolve to any address, and counts as reachable from elsewhere.
    """
    host, _ = host_and_port(address)
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
