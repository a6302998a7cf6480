"""MQTT 3.1.1 and 5: strict encoder and decoder of packets; `frame_at` finds a packet, `decode` and `encode` convert it."""

from milepost.wire.mqtt.connect import maybe_version
from milepost.wire.mqtt.decoder import decode
from milepost.wire.mqtt.encoder import encode, publish_head
from milepost.wire.mqtt.fields import Kind, Version, check_first, encode_length, frame_at
from milepost.wire.mqtt.packets import (
    Acknowledge,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Ping,
    Pong,
    Publish,
    Request,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from milepost.wire.mqtt.properties import NO_PROPERTIES, Properties, forwarded, parse_forwarded
from milepost.wire.mqtt.reason_codes import Code, code_of, fitting, of_return_code, return_code_of

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
