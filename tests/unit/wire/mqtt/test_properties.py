"""Properties: the table against another implementation, ranges, repetition, order, and forwarding."""

from dataclasses import fields

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import NO_PROPERTIES, PacketType, Properties, forwarded, parse_forwarded
from milepost.wire.mqtt.properties import FORWARDED, TABLE, WILL, properties_block, read_properties, write_properties

WRONG, BAD = Reason.PROTOCOL_ERROR, Reason.PACKET_MALFORMED

EXAMPLES: dict[str, object] = {
    "payload_format": 1,
    "message_expiry_s": 0x01020304,
    "content_type": "text/plain",
    "response_topic": "answers/7",
    "correlation_data": b"\0\xff",
    "subscription_ids": (300,),
    "session_expiry_s": 0xFFFF_FFFF,
    "assigned_client_id": "c",
    "server_keep_alive_s": 0x0102,
    "authentication_method": "m",
    "authentication_data": b"",
    "request_problem_information": False,
    "will_delay_s": 5,
    "request_response_information": True,
    "response_information": "ü",
    "server_reference": "s",
    "reason_string": "",
    "receive_maximum": 0xFFFF,
    "topic_alias_maximum": 0,
    "topic_alias": 1,
    "maximum_qos": 0,
    "retain_available": True,
    "user": (("k", "v"), ("k", "v"), ("", "語")),
    "maximum_packet_size": 268_435_455,
    "wildcard_available": True,
    "subscription_ids_available": False,
    "shared_available": True,
}
EACH = [(one.name, carrier) for one in TABLE for carrier in sorted(one.carriers) if carrier != FORWARDED]

RANGES = [
    (PacketType.CONNECT, "21 0000", WRONG),
    (PacketType.CONNECT, "27 00000000", WRONG),
    (PacketType.CONNECT, "17 02", WRONG),
    (PacketType.CONNECT, "19 FF", WRONG),
    (PacketType.CONNACK, "24 02", WRONG),
    *[(PacketType.CONNACK, f"{number} 02", WRONG) for number in ("25", "28", "29", "2A")],
    (PacketType.PUBLISH, "01 02", WRONG),
    (PacketType.PUBLISH, "23 0000", Reason.TOPIC_ALIAS),
    (PacketType.PUBLISH, "0B 00", WRONG),
    (PacketType.PUBLISH, "0B 8000", BAD),
    (PacketType.PUBLISH, "0B 8080808001", BAD),
    (PacketType.PUBLISH, "08 0000", Reason.TOPIC_EMPTY),
    (PacketType.PUBLISH, "08 0001 2B", Reason.TOPIC_CHARACTER),
    (PacketType.PUBLISH, "08 0003 612F23", Reason.TOPIC_CHARACTER),
    (WILL, "08 0001 23", Reason.TOPIC_CHARACTER),
    (PacketType.PUBLISH, "03 0001 00", BAD),
    (PacketType.PUBLISH, "03 0003 EDA080", BAD),
    (PacketType.PUBLISH, "26 0001 00 0000", BAD),
    (PacketType.PUBLISH, "26 0000 0001 FF", BAD),
]

UNWRITABLE = [
    (PacketType.CONNECT, Properties(receive_maximum=0), WRONG),
    (PacketType.CONNECT, Properties(receive_maximum=0x1_0000), Reason.FIELD_RANGE),
    (PacketType.CONNECT, Properties(session_expiry_s=-1), Reason.FIELD_RANGE),
    (PacketType.CONNACK, Properties(maximum_qos=2), WRONG),
    (PacketType.PUBLISH, Properties(topic_alias=0), Reason.TOPIC_ALIAS),
    (PacketType.PUBLISH, Properties(payload_format=2), WRONG),
    (PacketType.PUBLISH, Properties(response_topic="a/+"), Reason.TOPIC_CHARACTER),
    (PacketType.PUBLISH, Properties(content_type="\ud800"), Reason.FIELD_RANGE),
    (PacketType.PUBLISH, Properties(content_type="\0"), Reason.FIELD_RANGE),
    (PacketType.PUBLISH, Properties(content_type="x" * 65_536), Reason.FIELD_RANGE),
    (PacketType.PUBLISH, Properties(correlation_data=b"x" * 65_536), Reason.FIELD_RANGE),
    (PacketType.PUBLISH, Properties(subscription_ids=(1, 0)), WRONG),
    (PacketType.PUBLISH, Properties(subscription_ids=(268_435_456,)), Reason.FIELD_RANGE),
    (PacketType.SUBSCRIBE, Properties(subscription_ids=(1, 2)), WRONG),
    (PacketType.PUBLISH, Properties(session_expiry_s=1), WRONG),
    (WILL, Properties(topic_alias=1), WRONG),
]


def only(name: str) -> Properties:
    return Properties(**{name: EXAMPLES[name]})  # type: ignore[arg-type]


def parse(text: str, carrier: int) -> Properties:
    block = bytes.fromhex(text)
    found, end = read_properties(bytes([len(block)]) + block, 0, carrier)
    assert end == len(block) + 1
    return found


def refused(text: str, carrier: int) -> Reason:
    with pytest.raises(Malformed) as found:
        parse(text, carrier)
    return found.value.reason


def paho(carrier: int) -> PahoProperties:
    return PahoProperties(carrier if carrier != WILL else PacketTypes.WILLMESSAGE)  # type: ignore[no-untyped-call]


def paho_name(number: int) -> str:
    return next(name.replace(" ", "") for name, theirs in paho(WILL).names.items() if theirs == number)


def test_the_table_has_every_field_once() -> None:
    names = [one.name for one in TABLE]
    assert sorted(names) == sorted(field.name for field in fields(Properties))
    assert set(names) == set(EXAMPLES)


def test_the_table_agrees_with_paho_on_the_packets_of_each_property() -> None:
    theirs = {number: set(carriers) for number, (_, carriers) in paho(WILL).properties.items()}
    wills = {PacketTypes.WILLMESSAGE if carrier == WILL else carrier: carrier for carrier in (WILL, *PacketType)}
    ours = {one.number: {their for their, our in wills.items() if our in one.carriers} for one in TABLE}
    assert ours == theirs


@pytest.mark.parametrize(("name", "carrier"), EACH)
def test_a_property_has_the_bytes_that_paho_gives_it(name: str, carrier: int) -> None:
    number = next(one.number for one in TABLE if one.name == name)
    foreign, value = paho(carrier), EXAMPLES[name]
    setattr(foreign, paho_name(number), list(value) if isinstance(value, tuple) else value)
    data = write_properties(only(name), carrier)
    assert data == foreign.pack()  # type: ignore[no-untyped-call]
    assert read_properties(data, 0, carrier) == (only(name), len(data))


@pytest.mark.parametrize("carrier", [WILL, *PacketType])
def test_paho_reads_all_properties_of_a_packet_written_together(carrier: int) -> None:
    here = [one for one in TABLE if carrier in one.carriers]
    data = write_properties(Properties(**{one.name: EXAMPLES[one.name] for one in here}), carrier)  # type: ignore[arg-type]
    found, size = paho(carrier).unpack(data)  # type: ignore[no-untyped-call]
    assert size == len(data)
    for one in here:
        value = EXAMPLES[one.name]
        assert getattr(found, paho_name(one.number)) == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize("carrier", [WILL, FORWARDED, *PacketType])
def test_a_property_that_does_not_belong_there_is_refused_in_both_directions(carrier: int) -> None:
    for one in TABLE:
        if carrier in one.carriers:
            continue
        block = properties_block(only(one.name), next(iter(one.carriers)))
        assert refused(block.hex(), carrier) is BAD
        with pytest.raises(Malformed) as found:
            write_properties(only(one.name), carrier)
        assert found.value.reason is WRONG


@pytest.mark.parametrize(("name", "carrier"), EACH)
def test_a_property_may_be_repeated_only_where_the_specification_says_so(name: str, carrier: int) -> None:
    block = properties_block(only(name), carrier).hex()
    may_repeat = name == "user" or (name == "subscription_ids" and carrier == PacketType.PUBLISH)
    if may_repeat:
        value = EXAMPLES[name]
        assert isinstance(value, tuple)
        assert getattr(parse(block + block, carrier), name) == value + value
    else:
        assert refused(block + block, carrier) is WRONG


@pytest.mark.parametrize("number", sorted(set(range(256)) - {one.number for one in TABLE}))
def test_an_unknown_property_is_refused(number: int) -> None:
    assert refused(f"{number:02X} 00000000", PacketType.CONNECT) is BAD


@pytest.mark.parametrize(("carrier", "text", "reason"), RANGES)
def test_a_value_out_of_its_range_is_refused(carrier: int, text: str, reason: Reason) -> None:
    assert refused(text, carrier) is reason


@pytest.mark.parametrize(("carrier", "value", "reason"), UNWRITABLE)
def test_values_that_cannot_be_encoded_are_refused(carrier: int, value: Properties, reason: Reason) -> None:
    with pytest.raises(Malformed) as found:
        write_properties(value, carrier)
    assert found.value.reason is reason


@pytest.mark.parametrize(("name", "carrier"), EACH)
def test_a_property_truncated_anywhere_is_refused(name: str, carrier: int) -> None:
    block = properties_block(only(name) if name != "user" else Properties(user=(("k", "v"),)), carrier)
    for size in range(1, len(block)):
        assert refused(block[:size].hex(), carrier) is BAD
    for size in range(len(block) + 1):
        with pytest.raises(Malformed):
            read_properties((bytes([len(block)]) + block)[:size], 0, carrier)


def test_limits_for_the_peer_are_encoded_first_in_a_fixed_order() -> None:
    found = Properties(receive_maximum=1, topic_alias_maximum=2, maximum_packet_size=3, session_expiry_s=4, user=(("", ""),))
    assert (
        write_properties(found, PacketType.CONNECT).hex(" ")
        == "15 22 00 02 27 00 00 00 03 21 00 01 11 00 00 00 04 26 00 00 00 00"
    )


def test_no_properties_are_a_length_of_zero() -> None:
    assert write_properties(NO_PROPERTIES, PacketType.CONNECT) == write_properties(Properties(), PacketType.CONNECT) == b"\0"
    assert read_properties(b"\0", 0, PacketType.CONNECT)[0] is NO_PROPERTIES


def test_exactly_the_properties_that_a_server_must_forward_are_forwarded() -> None:
    forwarded_values = {
        name: EXAMPLES[name] for name in ("payload_format", "content_type", "response_topic", "correlation_data", "user")
    }
    own = {name: EXAMPLES[name] for name in ("topic_alias", "subscription_ids", "message_expiry_s")}
    data = forwarded(Properties(**forwarded_values, **own))  # type: ignore[arg-type]
    assert parse_forwarded(data) == Properties(**forwarded_values)  # type: ignore[arg-type]
    assert data == properties_block(Properties(**forwarded_values), PacketType.PUBLISH)  # type: ignore[arg-type]
    assert forwarded(NO_PROPERTIES) == forwarded(Properties(**own)) == b""  # type: ignore[arg-type]
    assert parse_forwarded(b"") is NO_PROPERTIES


def test_a_decoded_value_is_frozen_and_equal_to_the_original() -> None:
    found = parse("03 0001 78", PacketType.PUBLISH)
    assert found == Properties(content_type="x")
    assert hash(found) == hash(Properties(content_type="x"))
    with pytest.raises(AttributeError):
        found.content_type = "y"  # type: ignore[misc]
