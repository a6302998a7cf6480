"""Reason codes of MQTT 5, the packets that may carry them, and their mapping from MQTT 3.1.1 return codes and `Reason`."""

from enum import IntEnum
from typing import Final

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt.fields import PacketType


class Code(IntEnum):
    """The outcome of an operation; 0x80 and above is a failure."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


def _only(*numbers: int) -> dict[int, Code]:
    return {number: Code(number) for number in numbers}


_ANSWERS: Final = _only(0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
_RELEASES: Final = _only(0x00, 0x92)

LEGAL_CODES: Final[dict[PacketType, dict[int, Code]]] = {
    PacketType.CONNACK: _only(0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, *range(0x99, 0x9E), 0x9F),  # [MQTT-3.2.2-8]
    PacketType.PUBACK: _ANSWERS,  # [MQTT-3.4.2-1]
    PacketType.PUBREC: _ANSWERS,  # [MQTT-3.5.2-1]
    PacketType.PUBREL: _RELEASES,  # [MQTT-3.6.2-1]
    PacketType.PUBCOMP: _RELEASES,  # [MQTT-3.7.2-1]
    PacketType.SUBACK: _only(0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),  # [MQTT-3.9.3-2]
    PacketType.UNSUBACK: _only(0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),  # [MQTT-3.11.3-2]
    # [MQTT-3.14.2-1]; 0x8C is in the specification's table 2-6 and missing from its section 3.14
    PacketType.DISCONNECT: _only(0x00, 0x04, *range(0x80, 0x84), 0x87, 0x89, *range(0x8B, 0x91), *range(0x93, 0xA3)),
    PacketType.AUTH: _only(0x00, 0x18, 0x19),  # [MQTT-3.15.2-1]
}
"""For each kind of packet that has a reason code, the codes it may carry, by number."""


_NEAREST: Final = {
    Code.MESSAGE_RATE_TOO_HIGH: Code.QUOTA_EXCEEDED,
    Code.BAD_USER_NAME_OR_PASSWORD: Code.NOT_AUTHORIZED,
    Code.SERVER_UNAVAILABLE: Code.SERVER_BUSY,
    Code.SERVER_SHUTTING_DOWN: Code.SERVER_UNAVAILABLE,
}


def nearest_legal(code: Code, kind: PacketType) -> Code:
    """Return the code or, if this kind of packet may not carry it, the nearest allowed one."""
    if code in LEGAL_CODES[kind]:
        return code
    nearest = _NEAREST.get(code, Code.IMPLEMENTATION_SPECIFIC_ERROR)
    return nearest if nearest in LEGAL_CODES[kind] else Code.IMPLEMENTATION_SPECIFIC_ERROR


def check_code(number: int, kind: PacketType) -> Code:
    """Return the code of a number; raises `Malformed` if this kind of packet may not carry it."""
    code = LEGAL_CODES[kind].get(number)
    if code is None:
        raise Malformed(Reason.PACKET_MALFORMED, f"{kind.name} with the reason code 0x{number:02X}")
    return code


_CODES_BY_RETURN_CODE: Final = (
    Code.SUCCESS,
    Code.UNSUPPORTED_PROTOCOL_VERSION,
    Code.CLIENT_IDENTIFIER_NOT_VALID,
    Code.SERVER_UNAVAILABLE,
    Code.BAD_USER_NAME_OR_PASSWORD,
    Code.NOT_AUTHORIZED,
)
_NOT_AUTHORIZED_CODES: Final = (Code.BANNED, Code.BAD_AUTHENTICATION_METHOD, Code.TOPIC_NAME_INVALID)
_RETURN_CODES: Final = {
    **dict.fromkeys(_NOT_AUTHORIZED_CODES, 5),
    **{code: number for number, code in enumerate(_CODES_BY_RETURN_CODE)},
}


def to_return_code(code: Code) -> int:
    """Return the nearest CONNACK return code of MQTT 3.1.1; failures are mapped to failures."""
    return _RETURN_CODES.get(code, 3 if code >= Code.UNSPECIFIED_ERROR else 0)


def from_return_code(number: int) -> Code:
    """Return the code for a CONNACK return code of MQTT 3.1.1."""
    if number >= len(_CODES_BY_RETURN_CODE):  # 6-255 are reserved
        raise Malformed(Reason.PACKET_MALFORMED, f"CONNACK with the return code {number}")
    return _CODES_BY_RETURN_CODE[number]


_CODES_BY_REASON: Final = {
    Reason.MESSAGE_TOO_LARGE: Code.PACKET_TOO_LARGE,
    Reason.TOPIC_EMPTY: Code.TOPIC_NAME_INVALID,
    Reason.TOPIC_TOO_LONG: Code.TOPIC_NAME_INVALID,
    Reason.TOPIC_CHARACTER: Code.TOPIC_NAME_INVALID,
    Reason.TOPIC_TOO_DEEP: Code.TOPIC_NAME_INVALID,
    Reason.TOPIC_WILDCARD: Code.TOPIC_FILTER_INVALID,  # this and the next concern only filters
    Reason.SHARE_NAME: Code.TOPIC_FILTER_INVALID,
    Reason.ENDPOINT_ID: Code.CLIENT_IDENTIFIER_NOT_VALID,
    Reason.PACKET_MALFORMED: Code.MALFORMED_PACKET,
    Reason.PROTOCOL_ERROR: Code.PROTOCOL_ERROR,
    Reason.PROTOCOL_UNSUPPORTED: Code.UNSUPPORTED_PROTOCOL_VERSION,
    Reason.PACKET_TOO_LARGE: Code.PACKET_TOO_LARGE,
    Reason.TOPIC_ALIAS: Code.TOPIC_ALIAS_INVALID,
    Reason.CLIENT_ID: Code.CLIENT_IDENTIFIER_NOT_VALID,
    Reason.NOT_ALLOWED: Code.NOT_AUTHORIZED,
    Reason.SESSION_OF_ANOTHER_OWNER: Code.NOT_AUTHORIZED,
    Reason.TOPIC_RESERVED: Code.NOT_AUTHORIZED,
    Reason.PLACE_NOT_SEEN: Code.NOT_AUTHORIZED,
    Reason.PRIORITY_TOO_HIGH: Code.NOT_AUTHORIZED,
    Reason.VALIDITY_TOO_LONG: Code.NOT_AUTHORIZED,
    Reason.AREA_OVER_LIMIT: Code.NOT_AUTHORIZED,
    Reason.POSITION_TOO_NEW: Code.NOT_AUTHORIZED,
    Reason.IDENTITY_NOT_PROVEN: Code.NOT_AUTHORIZED,
    Reason.RATE_TOO_HIGH: Code.MESSAGE_RATE_TOO_HIGH,
    Reason.PAYLOAD_NOT_JSON: Code.PAYLOAD_FORMAT_INVALID,
    Reason.PAYLOAD_SCHEMA: Code.PAYLOAD_FORMAT_INVALID,
    Reason.BAD_CREDENTIALS: Code.BAD_USER_NAME_OR_PASSWORD,
    Reason.STORAGE_UNAVAILABLE: Code.SERVER_UNAVAILABLE,
    Reason.SESSION_TAKEN_OVER: Code.SESSION_TAKEN_OVER,
    Reason.KEEP_ALIVE_TIMEOUT: Code.KEEP_ALIVE_TIMEOUT,
    Reason.SHUTTING_DOWN: Code.SERVER_SHUTTING_DOWN,
    Reason.RECEIVE_MAXIMUM_EXCEEDED: Code.RECEIVE_MAXIMUM_EXCEEDED,
    Reason.AUTHENTICATION_METHOD: Code.BAD_AUTHENTICATION_METHOD,
    **{reason: Code.QUOTA_EXCEEDED for reason in Reason if reason.name.endswith("_FULL")},
}


def code_of(reason: Reason) -> Code:
    """Return the code of a refusal's reason; pass it to `nearest_legal`, as not every packet may carry it."""
    return _CODES_BY_REASON.get(reason, Code.IMPLEMENTATION_SPECIFIC_ERROR)
