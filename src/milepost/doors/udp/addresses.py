"""Addresses as the kernel has them: a raw sockaddr of either family, with zeros up to one length.

IPv4:  family 2 | port 2 | address 4 | zeros 20
IPv6:  family 2 | port 2 | flow 4 | address 16 | scope 4      (the family in the machine's order, the port big-endian)
"""

import socket
import struct
import sys
from typing import Final

ADDRESS_BYTES: Final = 28
"""A sockaddr_in6; a sockaddr_in is 16 bytes, and the kernel takes it with zeros after it."""

_IPV4: Final = struct.Struct("=H2s4s20x")  # family, port, address
_IPV6: Final = struct.Struct("=H2sI16sI")  # family, port, flow, address, scope
assert _IPV4.size == _IPV6.size == ADDRESS_BYTES


def sockaddr_of(host: str, port: int) -> bytes:
    """The address of a numeric host, such as 192.0.2.7, 2001:db8::7 or fe80::7%2."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    family, _, _, _, (name, *rest) = found[0]
    port_bytes = port.to_bytes(2)
    if family == socket.AF_INET:
        return _IPV4.pack(family, port_bytes, socket.inet_pton(family, str(name)))
    _, flow, scope = rest
    return _IPV6.pack(family, port_bytes, flow, socket.inet_pton(family, str(name).partition("%")[0]), scope)


def host_and_port_of(raw: bytes) -> tuple[str, int]:
    """The numeric host and the port of an address."""
    family = int.from_bytes(raw[:2], sys.byteorder)
    if family == socket.AF_INET:
        _, port, host = _IPV4.unpack(raw)
        return socket.inet_ntop(family, host), int.from_bytes(port)
    assert family == socket.AF_INET6
    _, port, _, host, scope = _IPV6.unpack(raw)
    return socket.inet_ntop(family, host) + (f"%{scope}" if scope else ""), int.from_bytes(port)
