"""Heads: what the bytes of a message's record tell without the rest; most readers of a log need no more of most records.

    {"type":"said","from":"SITE/EDGE","number":"17" … "topic":"t/a" … }
                          who said it, and when       plain messages only

Only what is written as `to_record` writes it has a head; anything else is to be read whole. Of a plain message nothing but its
topic says where it goes: it is addressed to its content, for no area and no time, and not retained.
"""

import re
from typing import Final, NamedTuple

_DIGITS: Final = rb"(?:0|[1-9][0-9]{0,18})"
_OCTETS: Final = rb"[A-Za-z0-9+/]*+={0,2}"
_PLAIN: Final = (
    rb'(?:,"qos":[12])?(?:,"extras":"%(octets)s")?'
    rb',"message":\{"type":"message","id":"%(digits)s","source":"[ !#-\[\]-~]+"'
    rb',"topic":"([ !$-*,-\[\]-~]+)","seen_at":"[0-9T:.-]+Z"(?:,"reliable":true)?(?:,"body":"%(octets)s")?\}\}\Z'
) % {b"octets": _OCTETS, b"digits": _DIGITS}
_SAID: Final = re.compile(
    rb'\{"type":"said","from":"([A-Za-z0-9_-]+)/([A-Za-z0-9_-]+)","number":"(%b)"(?:%b)?' % (_DIGITS, _PLAIN)
)


class Head(NamedTuple):
    """Who said a message."""

    site: str
    sender: str
    """As SITE/EDGE."""
    number: int
    topic: str | None
    """Of a plain message."""


def head_of(value: bytes) -> Head | None:
    """The head of a message's record; nothing if it is something else, or not written as usual."""
    found = _SAID.match(value)
    if found is None:
        return None
    site, edge, number, topic = found.groups()
    name = site.decode()
    return Head(name, f"{name}/{edge.decode()}", int(number), topic.decode() if topic is not None else None)
