"""Kinds of control packet and versions of the protocol: the two numbers that everything else here depends on."""

from enum import IntEnum
from typing import Final


class Kind(IntEnum):
    """The type of a control packet, the upper half of its first byte."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class Version(IntEnum):
    """The protocol level, as CONNECT says it: 4 is MQTT 3.1.1, 5 is MQTT 5."""

    V3 = 4
    V5 = 5


ACKNOWLEDGES: Final = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)
"""The kinds that answer a PUBLISH or each other, all of one form."""
