"""MQTT packets byte by byte, written by hand from the specifications: each type in each version."""

import pytest

from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Auth,
    Code,
    Connack,
    Connect,
    Disconnect,
    FilterRequest,
    Packet,
    PacketType,
    Ping,
    Pong,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
    decode,
    encode,
    frame_at,
    maybe_version,
)

V3, V5 = Version.V3, Version.V5

IN_V3: list[tuple[str, Packet]] = [
    ("10 0D  0004 4D515454 04 02 000A  0001 41", Connect("A", V3, True, 10)),
    ("10 0C  0004 4D515454 04 02 0000  0000", Connect("", V3)),
    (
        "10 1A  0004 4D515454 04 F4 003C  0001 41  0001 77  0001 FF  0001 75  0002 7000",
        Connect("A", V3, False, 60, Will("w", b"\xff", 2, True), "u", b"p\0"),
    ),
    ("10 10  0004 4D515454 04 80 003C  0001 41  0001 75", Connect("A", V3, False, 60, None, "u")),
    ("20 02  00 00", Connack(False)),
    ("20 02  01 00", Connack(True)),
    ("20 02  00 05", Connack(False, Code.NOT_AUTHORIZED)),
    ("30 07  0003 612F62  6869", Publish("a/b", b"hi")),
    ("31 03  0001 61", Publish("a", b"", retain=True)),
    ("32 06  0001 61 0102 00", Publish("a", b"\0", 1, packet_id=0x102)),
    ("3D 05  0001 61 FFFF", Publish("a", b"", 2, True, True, 0xFFFF)),
    ("40 02  0007", Acknowledge(PacketType.PUBACK, 7)),
    ("50 02  0007", Acknowledge(PacketType.PUBREC, 7)),
    ("62 02  0007", Acknowledge(PacketType.PUBREL, 7)),
    ("70 02  0100", Acknowledge(PacketType.PUBCOMP, 256)),
    ("82 0E  000A 0003 612F62 01 0003 632F64 02", Subscribe(10, (FilterRequest("a/b", 1), FilterRequest("c/d", 2)))),
    ("90 06  000A 00 01 02 80", Suback(10, (Code.SUCCESS, Code.GRANTED_QOS_1, Code.GRANTED_QOS_2, Code.UNSPECIFIED_ERROR))),
    ("A2 0C  000A 0003 612F62 0003 632F64", Unsubscribe(10, ("a/b", "c/d"))),
    ("B0 02  000A", Unsuback(10)),
    ("C0 00", Ping()),
    ("D0 00", Pong()),
    ("E0 00", Disconnect()),
]

IN_V5: list[tuple[str, Packet]] = [
    ("10 0E  0004 4D515454 05 02 000A 00  0001 41", Connect("A", V5, True, 10)),
    (
        "10 2E 0004 4D515454 05CE 000A 10 220005 2700001000 210014 110000000A 0000 05 1800000003 0001 77 0001 70 0001 75 0000",
        Connect(
            "",
            V5,
            True,
            10,
            Will("w", b"p", 1, False, Properties(will_delay_s=3)),
            "u",
            b"",
            Properties(session_expiry_s=10, receive_maximum=20, maximum_packet_size=4096, topic_alias_maximum=5),
        ),
    ),
    ("10 11  0004 4D515454 05 40 0000 00  0001 41  0001 70", Connect("A", V5, False, password=b"p")),
    ("20 03  00 00 00", Connack(False)),
    (
        "20 0A  01 00 07 22 000A 12 0001 41",
        Connack(True, Code.SUCCESS, Properties(assigned_client_id="A", topic_alias_maximum=10)),
    ),
    ("20 03  00 87 00", Connack(False, Code.NOT_AUTHORIZED)),
    ("30 08  0003 612F62 00 6869", Publish("a/b", b"hi")),
    ("34 06  0001 61 0001 00", Publish("a", b"", 2, packet_id=1)),
    ("3B 07  0001 61 0001 00 78", Publish("a", b"x", 1, True, True, 1)),
    ("30 06  0000 03 23 0005", Publish("", b"", properties=Properties(topic_alias=5))),
    (
        "30 10  0001 61  0B 01 01 0B 80 01 26 0001 6B 0000  01",
        Publish("a", b"\1", properties=Properties(payload_format=1, subscription_ids=(128,), user=(("k", ""),))),
    ),
    ("40 02  0007", Acknowledge(PacketType.PUBACK, 7)),
    ("40 03  0007 10", Acknowledge(PacketType.PUBACK, 7, Code.NO_MATCHING_SUBSCRIBERS)),
    ("50 08  0007 87 04 1F 0001 6E", Acknowledge(PacketType.PUBREC, 7, Code.NOT_AUTHORIZED, Properties(reason_string="n"))),
    ("62 08  0007 00 04 1F 0001 6E", Acknowledge(PacketType.PUBREL, 7, Code.SUCCESS, Properties(reason_string="n"))),
    ("70 03  0007 92", Acknowledge(PacketType.PUBCOMP, 7, Code.PACKET_IDENTIFIER_NOT_FOUND)),
    ("82 07  000A 00 0001 61 2E", Subscribe(10, (FilterRequest("a", 2, True, True, 2),))),
    (
        "82 09  000A 02 0B 7F 0001 61 11",
        Subscribe(10, (FilterRequest("a", 1, False, False, 1),), Properties(subscription_ids=(127,))),
    ),
    ("90 05  000A 00 02 97", Suback(10, (Code.GRANTED_QOS_2, Code.QUOTA_EXCEEDED))),
    ("A2 06  000A 00 0001 61", Unsubscribe(10, ("a",))),
    ("B0 05  000A 00 00 11", Unsuback(10, (Code.SUCCESS, Code.NO_SUBSCRIPTION_EXISTED))),
    ("C0 00", Ping()),
    ("D0 00", Pong()),
    ("E0 00", Disconnect()),
    ("E0 01  04", Disconnect(Code.DISCONNECT_WITH_WILL)),
    ("E0 07  00 05 11 00000000", Disconnect(Code.SUCCESS, Properties(session_expiry_s=0))),
    ("F0 00", Auth()),
    ("F0 06  18 04 15 0001 6D", Auth(Code.CONTINUE_AUTHENTICATION, Properties(authentication_method="m"))),
]

BOTH = [(text, packet, V3) for text, packet in IN_V3] + [(text, packet, V5) for text, packet in IN_V5]

LONG_FORMS: list[tuple[str, Packet]] = [
    ("40 03  0007 00", Acknowledge(PacketType.PUBACK, 7)),
    ("62 04  0007 00 00", Acknowledge(PacketType.PUBREL, 7)),
    ("70 04  0007 92 00", Acknowledge(PacketType.PUBCOMP, 7, Code.PACKET_IDENTIFIER_NOT_FOUND)),
    ("E0 01  00", Disconnect()),
    ("E0 02  00 00", Disconnect()),
]


def read(text: str, version: Version) -> Packet:
    data = bytes.fromhex(text)
    found = frame_at(data, 0, len(data))
    assert found is not None
    assert found[1] == len(data)
    return decode(data[0], data[found[0] :], version)


@pytest.mark.parametrize(("text", "packet", "version"), BOTH)
def test_a_packet_is_decoded_as_in_the_specification(text: str, packet: Packet, version: Version) -> None:
    assert read(text, version) == packet


@pytest.mark.parametrize(("text", "packet", "version"), BOTH)
def test_a_packet_is_encoded_as_in_the_specification(text: str, packet: Packet, version: Version) -> None:
    assert encode(packet, version) == bytes.fromhex(text)


@pytest.mark.parametrize(("text", "packet"), LONG_FORMS)
def test_an_explicit_default_outcome_is_decoded_and_encoded_in_the_short_form(text: str, packet: Packet) -> None:
    assert read(text, V5) == packet
    assert len(encode(packet, V5)) < len(bytes.fromhex(text))


def test_every_kind_of_packet_is_among_the_examples() -> None:
    kinds = {(bytes.fromhex(text)[0] >> 4, version) for text, _, version in BOTH}
    assert kinds == {(kind, version) for kind in PacketType for version in Version} - {(PacketType.AUTH, V3)}


@pytest.mark.parametrize("version", Version)
def test_connect_carries_its_own_version(version: Version) -> None:
    assert read(IN_V3[0][0], version) == IN_V3[0][1]
    assert read(IN_V5[0][0], version) == IN_V5[0][1]
    assert encode(IN_V5[0][1], version) == bytes.fromhex(IN_V5[0][0])


def test_the_version_of_a_connect_is_known_even_if_the_rest_is_malformed() -> None:
    assert maybe_version(bytes.fromhex("0004 4D515454 04")) is V3
    assert maybe_version(bytes.fromhex("0004 4D515454 05 FF FF")) is V5
    assert maybe_version(bytes.fromhex("0004 4D515454 06")) is V5
    assert maybe_version(bytes.fromhex("0004 4D515454 03")) is V3
    for text in ["", "0004 4D515454", "0004 4D515455 05", "0006 4D5149736470 03"]:
        assert maybe_version(bytes.fromhex(text)) is None


def test_features_that_mqtt_3_lacks_are_omitted() -> None:
    why = Properties(reason_string="n")
    assert encode(Connack(False, Code.BANNED, why), V3) == bytes.fromhex("20 02 00 05")
    assert encode(Publish("a", b"x", properties=why), V3) == bytes.fromhex("30 04 0001 61 78")
    assert encode(Acknowledge(PacketType.PUBREC, 7, Code.NOT_AUTHORIZED, why), V3) == bytes.fromhex("50 02 0007")
    assert encode(Subscribe(1, (FilterRequest("a", 1, True, True, 2),), why), V3) == bytes.fromhex("82 06 0001 0001 61 01")
    assert encode(Suback(1, (Code.QUOTA_EXCEEDED, Code.GRANTED_QOS_1), why), V3) == bytes.fromhex("90 04 0001 80 01")
    assert encode(Unsuback(1, (Code.SUCCESS,), why), V3) == bytes.fromhex("B0 02 0001")
    assert encode(Disconnect(Code.SERVER_BUSY, why), V3) == bytes.fromhex("E0 00")


def test_empty_properties_are_as_short_as_none() -> None:
    assert Properties() is not NO_PROPERTIES
    for packet in (Acknowledge(PacketType.PUBACK, 7, properties=Properties()), Disconnect(properties=Properties())):
        assert len(encode(packet, V5)) == len(encode(packet, V3))
    assert encode(Publish("a", b"", properties=Properties()), V5) == encode(Publish("a", b""), V5)


def test_control_characters_and_a_byte_order_mark_are_preserved() -> None:
    topic = "\x01\ufeff\x7f\x9f\uffff"
    raw = topic.encode()
    packet = decode(0x30, len(raw).to_bytes(2, "big") + raw + b"\0", V5)
    assert packet == Publish(topic, b"")
