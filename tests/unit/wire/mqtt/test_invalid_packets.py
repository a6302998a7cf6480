"""Invalid packets: the encoder refuses what the decoder would, and `publish_head` gives the same bytes."""

import pytest

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import (
    Acknowledge,
    Auth,
    Code,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PacketType,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
    encode,
    publish_head,
)

V3, V5 = Version.V3, Version.V5
BAD, WRONG = Reason.PACKET_MALFORMED, Reason.PROTOCOL_ERROR

CASES: list[tuple[Packet, Version, Reason]] = [
    (Connect("", V3, False), V3, Reason.CLIENT_ID),
    (Connect("A", V3, password=b"p"), V3, BAD),
    (Connect("A", V5, will=Will("a/#", b"")), V5, Reason.TOPIC_CHARACTER),
    (Connect("A", V5, will=Will("", b"")), V5, Reason.TOPIC_EMPTY),
    (Connect("A", V5, will=Will("a", b"", 3)), V5, BAD),
    (Connect("A", V5, will=Will("a", b"", 4)), V5, BAD),
    (Connect("A", V5, will=Will("a", b"x" * 65_536)), V5, Reason.FIELD_RANGE),
    (Connect("A", V5, keep_alive_s=65_536), V5, Reason.FIELD_RANGE),
    (Connect("A\0", V5), V5, Reason.FIELD_RANGE),
    (Connect("A", V5, properties=Properties(authentication_data=b"")), V5, WRONG),
    (Connack(True, Code.BANNED), V3, WRONG),
    (Connack(True, Code.BANNED), V5, WRONG),
    (Connack(False, Code.SERVER_SHUTTING_DOWN), V5, BAD),
    (Publish("", b""), V3, Reason.TOPIC_EMPTY),
    (Publish("", b""), V5, Reason.TOPIC_EMPTY),
    (Publish("", b"", properties=Properties(topic_alias=1)), V3, Reason.TOPIC_EMPTY),
    (Publish("a/+", b""), V5, Reason.TOPIC_CHARACTER),
    (Publish("x" * 65_536, b""), V5, Reason.TOPIC_TOO_LONG),
    (Publish("\0", b""), V5, Reason.FIELD_RANGE),
    (Publish("\ud800", b""), V5, Reason.FIELD_RANGE),
    (Publish("a", b"", 3, packet_id=1), V5, BAD),
    (Publish("a", b"", -1, packet_id=1), V5, BAD),
    (Publish("a", b"", 0, dup=True), V5, BAD),
    (Publish("a", b"", 0, packet_id=1), V5, WRONG),
    (Publish("a", b"", 1), V5, WRONG),
    (Publish("a", b"", 1, packet_id=0), V5, WRONG),
    (Publish("a", b"", 1, packet_id=65_536), V5, WRONG),
    (Acknowledge(PacketType.PUBACK, 0), V3, WRONG),
    (Acknowledge(PacketType.PUBACK, 65_536), V5, WRONG),
    (Acknowledge(PacketType.PUBREL, 1, Code.NOT_AUTHORIZED), V5, BAD),
    (Acknowledge(PacketType.PUBACK, 1, properties=Properties(topic_alias=1)), V5, WRONG),
    (Subscribe(1, ()), V5, WRONG),
    (Subscribe(0, (FilterRequest("a"),)), V5, WRONG),
    (Subscribe(1, (FilterRequest("a", 3),)), V3, WRONG),
    (Subscribe(1, (FilterRequest("a", -1),)), V3, WRONG),
    (Subscribe(1, (FilterRequest("a", retain_handling=3),)), V5, WRONG),
    (Subscribe(1, (FilterRequest("$share/g/a", no_local=True),)), V5, WRONG),
    (Suback(1, ()), V3, WRONG),
    (Suback(1, (Code.PACKET_TOO_LARGE,)), V5, BAD),
    (Unsubscribe(1, ()), V3, WRONG),
    (Unsuback(1), V5, WRONG),
    (Unsuback(1, (Code.GRANTED_QOS_1,)), V5, BAD),
    (Disconnect(Code.BANNED), V5, BAD),
    (Auth(), V3, BAD),
    (Auth(Code.RE_AUTHENTICATE), V5, WRONG),
    (Auth(Code.NOT_AUTHORIZED, Properties(authentication_method="m")), V5, BAD),
]


@pytest.mark.parametrize(("packet", "version", "reason"), CASES)
def test_an_invalid_packet_is_not_encoded(packet: Packet, version: Version, reason: Reason) -> None:
    with pytest.raises(Malformed) as found:
        encode(packet, version)
    assert found.value.reason is reason


def test_the_head_of_a_publish_is_all_before_its_payload() -> None:
    assert publish_head(b"a/b", 0b0000, V3, b"", 2, None).hex(" ") == "30 07 00 03 61 2f 62"
    assert publish_head(b"a/b", 0b0001, V5, b"", 2, None).hex(" ") == "31 08 00 03 61 2f 62 00"
    assert publish_head(b"a", 0b1010, V3, b"", 0, 0x102).hex(" ") == "3a 05 00 01 61 01 02"
    assert publish_head(b"a", 0b0100, V5, b"\x01\x01", 200, 1).hex(" ") == "34 d0 01 00 01 61 00 01 02 01 01"
    assert publish_head(b"a", 0, V5, b"\x03\x00\x7d" + b"x" * 125, 0, None)[:7].hex(" ") == "30 85 01 00 01 61 80"


def test_a_payload_of_more_than_a_packet_can_hold_is_refused() -> None:
    with pytest.raises(Malformed) as found:
        publish_head(b"a", 0, V3, b"", 268_435_455, None)
    assert found.value.reason is Reason.FIELD_RANGE
