"""Reason codes: the list against another implementation, what MQTT 3.1.1 makes of them, and what our reasons become."""

import pytest
from paho.mqtt.reasoncodes import ReasonCode

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import Code, Kind, code_of, fitting, of_return_code, return_code_of
from milepost.wire.mqtt.reason_codes import LEGAL_CODES


def test_every_code_is_carried_by_the_packets_that_paho_lists() -> None:
    theirs = {(number, kind) for number, uses in ReasonCode.names.items() for kinds in uses.values() for kind in kinds}
    ours = {(number, int(kind)) for kind, codes in LEGAL_CODES.items() for number in codes}
    missed_by_paho = {(Code.PAYLOAD_FORMAT_INVALID, Kind.CONNACK)}  # it is in the specification's tables 2-6 and 3-1
    assert ours == theirs | missed_by_paho
    assert {number for number, _ in ours} == set(Code)


@pytest.mark.parametrize("number", range(6))
def test_a_return_code_of_mqtt_3_comes_back_as_it_was(number: int) -> None:
    assert return_code_of(of_return_code(number)) == number


@pytest.mark.parametrize("number", [6, 128, 255])
def test_a_reserved_return_code_is_refused(number: int) -> None:
    with pytest.raises(Malformed) as found:
        of_return_code(number)
    assert found.value.reason is Reason.PACKET_MALFORMED


@pytest.mark.parametrize("code", Code)
def test_a_failure_stays_a_failure_in_mqtt_3(code: Code) -> None:
    assert (return_code_of(code) > 0) == (code >= 0x80)
    assert return_code_of(code) <= 5


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
    assert return_code_of(code) == number


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
        (Reason.WINDOW_EXCEEDED, Code.RECEIVE_MAXIMUM_EXCEEDED),
        (Reason.QUERY_SYNTAX, Code.IMPLEMENTATION_SPECIFIC_ERROR),
    ],
)
def test_a_reason_becomes_the_code_that_says_it(reason: Reason, code: Code) -> None:
    assert code_of(reason) is code


def test_every_full_table_is_a_quota() -> None:
    full = [reason for reason in Reason if reason.name.endswith("_FULL")]
    assert full
    assert {code_of(reason) for reason in full} == {Code.QUOTA_EXCEEDED}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_can_be_told_in_every_answer_that_can_fail(reason: Reason) -> None:
    for kind in (Kind.CONNACK, Kind.PUBACK, Kind.PUBREC, Kind.SUBACK, Kind.UNSUBACK, Kind.DISCONNECT):
        code = fitting(code_of(reason), kind)
        assert code in LEGAL_CODES[kind]
        assert code >= 0x80


def test_a_code_that_a_packet_may_carry_stays_itself() -> None:
    assert fitting(Code.TOPIC_NAME_INVALID, Kind.PUBACK) is Code.TOPIC_NAME_INVALID
    assert fitting(Code.PACKET_TOO_LARGE, Kind.DISCONNECT) is Code.PACKET_TOO_LARGE


@pytest.mark.parametrize(
    ("code", "kind", "nearest"),
    [
        (Code.PACKET_TOO_LARGE, Kind.PUBACK, Code.IMPLEMENTATION_SPECIFIC_ERROR),
        (Code.MESSAGE_RATE_TOO_HIGH, Kind.PUBACK, Code.QUOTA_EXCEEDED),
        (Code.MESSAGE_RATE_TOO_HIGH, Kind.UNSUBACK, Code.IMPLEMENTATION_SPECIFIC_ERROR),
        (Code.BAD_USER_NAME_OR_PASSWORD, Kind.DISCONNECT, Code.NOT_AUTHORIZED),
        (Code.SERVER_SHUTTING_DOWN, Kind.CONNACK, Code.SERVER_UNAVAILABLE),
        (Code.SERVER_UNAVAILABLE, Kind.DISCONNECT, Code.SERVER_BUSY),
    ],
)
def test_a_code_that_a_packet_may_not_carry_becomes_the_nearest(code: Code, kind: Kind, nearest: Code) -> None:
    assert fitting(code, kind) is nearest
