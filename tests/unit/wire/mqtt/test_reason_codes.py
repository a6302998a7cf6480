"""Reason codes: the list against another implementation, and the mapping from MQTT 3.1.1 and from our reasons."""

import pytest
from paho.mqtt.reasoncodes import ReasonCode

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import Code, PacketType, code_of, from_return_code, nearest_legal, to_return_code
from milepost.wire.mqtt.reason_codes import LEGAL_CODES


def test_every_code_is_carried_by_the_packets_that_paho_lists() -> None:
    theirs = {(number, kind) for number, uses in ReasonCode.names.items() for kinds in uses.values() for kind in kinds}
    ours = {(number, int(kind)) for kind, codes in LEGAL_CODES.items() for number in codes}
    missed_by_paho = {(Code.PAYLOAD_FORMAT_INVALID, PacketType.CONNACK)}  # it is in the specification's tables 2-6 and 3-1
    assert ours == theirs | missed_by_paho
    assert {number for number, _ in ours} == set(Code)


@pytest.mark.parametrize("number", range(6))
def test_a_return_code_of_mqtt_3_survives_mapping_in_both_directions(number: int) -> None:
    assert to_return_code(from_return_code(number)) == number


@pytest.mark.parametrize("number", [6, 128, 255])
def test_a_reserved_return_code_is_refused(number: int) -> None:
    with pytest.raises(Malformed) as found:
        from_return_code(number)
    assert found.value.reason is Reason.PACKET_MALFORMED


@pytest.mark.parametrize("code", Code)
def test_a_failure_stays_a_failure_in_mqtt_3(code: Code) -> None:
    assert (to_return_code(code) > 0) == (code >= 0x80)
    assert to_return_code(code) <= 5


@pytest.mark.parametrize(
    ("code", "number"),
    [
        (Code.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (Code.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (Code.SERVER_BUSY, 3),
        (Code.QUOTA_EXCEEDED, 3),
        (Code.BAD_USER_NAME_OR_PASSWORD, 4),
        (Code.BANNED, 5),
        (Code.BAD_AUTHENTICATION_METHOD, 5),
    ],
)
def test_a_failure_becomes_the_nearest_return_code(code: Code, number: int) -> None:
    assert to_return_code(code) == number


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.PACKET_MALFORMED, Code.MALFORMED_PACKET),
        (Reason.PROTOCOL_ERROR, Code.PROTOCOL_ERROR),
        (Reason.PROTOCOL_UNSUPPORTED, Code.UNSUPPORTED_PROTOCOL_VERSION),
        (Reason.PACKET_TOO_LARGE, Code.PACKET_TOO_LARGE),
        (Reason.MESSAGE_TOO_LARGE, Code.PACKET_TOO_LARGE),
        (Reason.TOPIC_ALIAS, Code.TOPIC_ALIAS_INVALID),
        (Reason.CLIENT_ID, Code.CLIENT_IDENTIFIER_NOT_VALID),
        (Reason.TOPIC_CHARACTER, Code.TOPIC_NAME_INVALID),
        (Reason.TOPIC_TOO_DEEP, Code.TOPIC_NAME_INVALID),
        (Reason.SHARE_NAME, Code.TOPIC_FILTER_INVALID),
        (Reason.NOT_ALLOWED, Code.NOT_AUTHORIZED),
        (Reason.KEEP_ALIVE_TIMEOUT, Code.KEEP_ALIVE_TIMEOUT),
        (Reason.RECEIVE_MAXIMUM_EXCEEDED, Code.RECEIVE_MAXIMUM_EXCEEDED),
        (Reason.QUERY_SYNTAX, Code.IMPLEMENTATION_SPECIFIC_ERROR),
    ],
)
def test_a_reason_is_mapped_to_its_code(reason: Reason, code: Code) -> None:
    assert code_of(reason) is code


def test_every_full_table_is_a_quota() -> None:
    full = [reason for reason in Reason if reason.name.endswith("_FULL")]
    assert full
    assert {code_of(reason) for reason in full} == {Code.QUOTA_EXCEEDED}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_legal_code_in_every_packet_that_can_fail(reason: Reason) -> None:
    for kind in (
        PacketType.CONNACK,
        PacketType.PUBACK,
        PacketType.PUBREC,
        PacketType.SUBACK,
        PacketType.UNSUBACK,
        PacketType.DISCONNECT,
    ):
        code = nearest_legal(code_of(reason), kind)
        assert code in LEGAL_CODES[kind]
        assert code >= 0x80


def test_a_code_that_a_packet_may_carry_is_unchanged() -> None:
    assert nearest_legal(Code.TOPIC_NAME_INVALID, PacketType.PUBACK) is Code.TOPIC_NAME_INVALID
    assert nearest_legal(Code.PACKET_TOO_LARGE, PacketType.DISCONNECT) is Code.PACKET_TOO_LARGE


@pytest.mark.parametrize(
    ("code", "kind", "nearest"),
    [
        (Code.PACKET_TOO_LARGE, PacketType.PUBACK, Code.IMPLEMENTATION_SPECIFIC_ERROR),
        (Code.MESSAGE_RATE_TOO_HIGH, PacketType.PUBACK, Code.QUOTA_EXCEEDED),
        (Code.MESSAGE_RATE_TOO_HIGH, PacketType.UNSUBACK, Code.IMPLEMENTATION_SPECIFIC_ERROR),
        (Code.BAD_USER_NAME_OR_PASSWORD, PacketType.DISCONNECT, Code.NOT_AUTHORIZED),
        (Code.SERVER_SHUTTING_DOWN, PacketType.CONNACK, Code.SERVER_UNAVAILABLE),
        (Code.SERVER_UNAVAILABLE, PacketType.DISCONNECT, Code.SERVER_BUSY),
    ],
)
def test_a_code_that_a_packet_may_not_carry_becomes_the_nearest(code: Code, kind: PacketType, nearest: Code) -> None:
    assert nearest_legal(code, kind) is nearest
