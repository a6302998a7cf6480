"""MQTT 3.1.1 and 5: strict encoder and decoder of packets; `frame_at` finds a packet, `decode` and `encode` convert it."""

from milepost.wire.mqtt.connect import maybe_version
from milepost.wire.mqtt.decoder import decode
from milepost.wire.mqtt.encoder import encode, publish_head
from milepost.wire.mqtt.fields import PacketType, Version, check_first, encode_length, frame_at
from milepost.wire.mqtt.packets import (
    Acknowledge,
    Auth,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    Ping,
    Pong,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from milepost.wire.mqtt.properties import NO_PROPERTIES, Properties, forwarded, parse_forwarded
from milepost.wire.mqtt.reason_codes import Code, code_of, from_return_code, nearest_legal, to_return_code

__all__ = [
    "NO_PROPERTIES",
    "Acknowledge",
    "Auth",
    "Code",
    "Connack",
    "Connect",
    "Disconnect",
    "FilterRequest",
    "Packet",
    "PacketType",
    "Ping",
    "Pong",
    "Properties",
    "Publish",
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
    "forwarded",
    "frame_at",
    "from_return_code",
    "maybe_version",
    "nearest_legal",
    "parse_forwarded",
    "publish_head",
    "to_return_code",
]
