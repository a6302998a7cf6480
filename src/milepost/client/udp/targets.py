"""Where a URL leads: to an edge at an address, to those that DNS names, or to whichever edge answers nearby.

udp://HOST[:PORT]
udp+srv://DOMAIN                                      DNS: SRV records of _milepost._udp.DOMAIN
udp+find://[?group=ADDRESS&port=PORT&interface=ADDRESS]   multicast
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

PORT: Final = 4242
FINDING_GROUP: Final = "239.192.76.80"
FINDING_PORT: Final = 4244

FIXED, BY_DNS, BY_MULTICAST = "udp", "udp+srv", "udp+find"
SCHEMES: Final = (FIXED, BY_DNS, BY_MULTICAST)


@dataclass(frozen=True, slots=True)
class UdpTarget:
    """What a URL says."""

    scheme: str
    host: str
    """An edge's, a domain, or a multicast group."""
    port: int
    interface: str = ""
    """The address of the network to look for an edge in; empty: the system's choice."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.scheme == BY_DNS else f":{self.port}")


def is_udp(url: str) -> bool:
    """Whether a URL is one of these."""
    return url.partition("://")[0] in SCHEMES


def udp_target_of(url: str) -> UdpTarget:
    """Where a URL leads; `ValueError` with what is wrong with it."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"the URL {url!r} has a port that is not in 1..65535") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"the URL {url!r} has a user, which udp has not: who asks is shown by a certificate")
    if parts.path not in ("", "/") or parts.fragment or (parts.query and parts.scheme != BY_MULTICAST):
        raise ValueError(f"the URL {url!r} is not {parts.scheme}://HOST[:PORT]")
    if parts.scheme == BY_MULTICAST:
        return _by_multicast(url, parts.query, is_bare=parts.hostname is None)
    if not parts.hostname or port == 0 or (port is not None and parts.scheme == BY_DNS):
        raise ValueError(f"the URL {url!r} is not udp://HOST[:PORT] or udp+srv://DOMAIN")
    return UdpTarget(parts.scheme, parts.hostname, port or PORT)


def _by_multicast(url: str, query: str, *, is_bare: bool) -> UdpTarget:
    said = dict(parse_qsl(query))
    if not is_bare or not set(said) <= {"group", "port", "interface"}:
        raise ValueError(f"the URL {url!r} is not udp+find://[?group=ADDRESS&port=PORT&interface=ADDRESS]")
    port = said.get("port", str(FINDING_PORT))
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"the URL {url!r} has a port that is not in 1..65535")
    return UdpTarget(BY_MULTICAST, said.get("group", FINDING_GROUP), int(port), said.get("interface", ""))
