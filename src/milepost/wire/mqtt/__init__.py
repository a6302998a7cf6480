"""MQTT 3.1.1 and 5: packets ↔ bytes, strictly, both ways; `frame_at` finds a packet, `decode` and `encode` do the rest."""

from milepost.wire.mqtt.codes import Code, code_of, fitting, of_return_code, return_code_of
from milepost.wire.mqtt.connecting import maybe_version
from milepost.wire.mqtt.decoding import decode
from milepost.wire.mqtt.encoding import encode, publish_head
from milepost.wire.mqtt.framing import check_first, encode_length, frame_at
from milepost.wire.mqtt.packets import (
    Acknowledge,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    Ping,
    Pong,
    Publish,
    Request,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from milepost.wire.mqtt.properties import NO_PROPERTIES, Properties, forwarded, parse_forwarded

__all__ = [
    "NO_PROPERTIES",
    "Acknowledge",
    "Auth",
    "Code",
    "Connack",
    "Connect",
    "Disconnect",
    "Kind",
    "Packet",
    "Ping",
    "Pong",
    "Properties",
    "Publish",
    "Request",
    "Suback",
    "Subscribe",
    "Unsuback",
    "Unsubscribe",
    "Version",
    "Will",
    "check_first",
    "code_of",
    "decode",
    "encode",
    "encode_length",
    "fitting",
    "forwarded",
    "frame_at",
    "maybe_version",
    "of_return_code",
    "parse_forwarded",
    "publish_head",
    "return_code_of",
]
