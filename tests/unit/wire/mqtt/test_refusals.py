"""MQTT packets that are refused: each with its reason, which determines the code for the peer."""

import pytest

from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import PacketType, Version, decode
from milepost.wire.mqtt.fields import LEGAL_FIRST

V3, V5 = Version.V3, Version.V5
BAD, WRONG = Reason.PACKET_MALFORMED, Reason.PROTOCOL_ERROR
HEAD3, HEAD5 = "0004 4D515454 04", "0004 4D515454 05"

Case = tuple[str, str, Version, Reason]

CONNECT: list[Case] = [
    ("10", "", V5, BAD),
    ("10", "0004 4D5154", V5, BAD),
    ("10", "0004 4D515454", V5, BAD),
    ("10", "0004 4D515455 05 02 0000 00 0000", V5, Reason.PROTOCOL_UNSUPPORTED),
    ("10", "0006 4D5149736470 03 02 0000 0000", V5, Reason.PROTOCOL_UNSUPPORTED),
    ("10", "0004 4D515454 03 02 0000 0000", V5, Reason.PROTOCOL_UNSUPPORTED),
    ("10", "0004 4D515454 84 02 0000 0000", V5, Reason.PROTOCOL_UNSUPPORTED),
    ("10", f"{HEAD3}", V3, BAD),
    ("10", f"{HEAD3} 02 00", V3, BAD),
    ("10", f"{HEAD3} 02 0000", V3, BAD),
    ("10", f"{HEAD3} 02 0000 0002 41", V3, BAD),
    ("10", f"{HEAD3} 02 0000 0001 41 00", V3, BAD),
    ("10", f"{HEAD3} 03 0000 0001 41", V3, BAD),  # reserved flag
    ("10", f"{HEAD3} 0A 0000 0001 41", V3, BAD),  # will QoS without a will
    ("10", f"{HEAD3} 12 0000 0001 41", V3, BAD),
    ("10", f"{HEAD3} 22 0000 0001 41", V3, BAD),  # will retain without a will
    ("10", f"{HEAD3} 1E 0000 0001 41 0001 77 0000", V3, BAD),  # will QoS 3
    ("10", f"{HEAD3} 06 0000 0001 41", V3, BAD),  # will announced, not there
    ("10", f"{HEAD3} 06 0000 0001 41 0001 77", V3, BAD),
    ("10", f"{HEAD3} 06 0000 0001 41 0000 0000", V3, Reason.TOPIC_EMPTY),
    ("10", f"{HEAD3} 06 0000 0001 41 0001 2B 0000", V3, Reason.TOPIC_CHARACTER),
    ("10", f"{HEAD3} 06 0000 0001 41 0001 23 0000", V3, Reason.TOPIC_CHARACTER),
    ("10", f"{HEAD3} 42 0000 0001 41 0001 70", V3, BAD),  # password without user name
    ("10", f"{HEAD3} 82 0000 0001 41", V3, BAD),  # user name announced, not there
    ("10", f"{HEAD3} C2 0000 0001 41 0001 75", V3, BAD),  # password announced, not there
    ("10", f"{HEAD3} 02 0000 0001 41 0001 75", V3, BAD),  # user name there, not announced
    ("10", f"{HEAD3} 82 0000 0001 41 0001 FF", V3, BAD),
    ("10", f"{HEAD3} 02 0000 0001 00", V3, BAD),
    ("10", f"{HEAD3} 00 0000 0000", V3, Reason.CLIENT_ID),
    ("10", f"{HEAD5} 02 0000 0001 41", V5, BAD),  # properties missing
    ("10", f"{HEAD5} 02 0000 05 0001 41", V5, BAD),
    ("10", f"{HEAD5} 02 0000 04 16 0001 41 0001 41", V5, WRONG),  # authentication data without a method
    ("10", f"{HEAD5} 06 0000 00 0001 41 05 11 00000000 0001 77 0000", V5, BAD),  # session expiry in a will
    ("10", f"{HEAD5} 02 0000 05 18 00000000 0001 41", V5, BAD),  # will delay outside a will
]

PUBLISH: list[Case] = [
    ("30", "", V5, BAD),
    ("30", "00", V5, BAD),
    ("30", "0002 61", V5, BAD),
    ("30", "0001 61", V5, BAD),  # properties missing
    ("30", "0001 61 01", V5, BAD),
    ("30", "0001 61 8000", V5, BAD),  # a length in too many bytes
    ("30", "0001 61 8080808001", V5, BAD),
    ("32", "0001 61", V3, BAD),
    ("32", "0001 61 00", V3, BAD),
    ("32", "0001 61 0000", V3, WRONG),
    ("34", "0001 61 0000 00", V5, WRONG),
    ("30", "0001 2B 00", V5, Reason.TOPIC_CHARACTER),
    ("30", "0003 612F23", V3, Reason.TOPIC_CHARACTER),
    ("30", "0000", V3, Reason.TOPIC_EMPTY),
    ("30", "0000 00", V5, WRONG),
    ("30", "0000 02 01 00", V5, WRONG),
    ("30", "0001 00 00", V5, BAD),  # U+0000
    ("30", "0003 EDA080 00", V5, BAD),  # half a surrogate pair
    ("30", "0002 C080 00", V5, BAD),  # U+0000 in two bytes
    ("30", "0001 80 00", V5, BAD),
    ("30", "0004 F4908080", V3, BAD),  # beyond U+10FFFF
]

ACKNOWLEDGES: list[Case] = [
    case
    for first in ("40", "50", "62", "70")
    for case in [
        (first, "", V5, BAD),
        (first, "00", V3, BAD),
        (first, "0000", V3, WRONG),
        (first, "0000", V5, WRONG),
        (first, "0001 00", V3, BAD),
        (first, "0001 01", V5, BAD),
        (first, "0001 81", V5, BAD),
        (first, "0001 00 00 00", V5, BAD),
        (first, "0001 00 01", V5, BAD),
        (first, "0001 00 03 23 0001", V5, BAD),
    ]
] + [("40", "0001 92", V5, BAD), ("50", "0001 92", V5, BAD), ("62", "0001 10", V5, BAD), ("70", "0001 10", V5, BAD)]

SUBSCRIPTIONS: list[Case] = [
    ("82", "", V5, BAD),
    ("82", "0001", V3, WRONG),
    ("82", "0001 00", V5, WRONG),
    ("82", "0000 0001 61 00", V3, WRONG),
    ("82", "0000 00 0001 61 00", V5, WRONG),
    ("82", "0001 0001 61", V3, BAD),
    ("82", "0001 0002 61 00", V3, BAD),
    ("82", "0001 0001 61 03", V3, WRONG),
    *[("82", f"0001 0001 61 {1 << bit:02X}", V3, BAD) for bit in range(2, 8)],
    *[("82", f"0001 00 0001 61 {1 << bit:02X}", V5, BAD) for bit in (6, 7)],
    ("82", "0001 00 0001 61 03", V5, WRONG),
    ("82", "0001 00 0001 61 30", V5, WRONG),
    ("82", "0001 00 000A 2473686172652F672F61 04", V5, WRONG),  # no local on $share/g/a
    ("82", "0001 00 0001 FF 00", V5, BAD),
    ("82", "0001 00 0001 00 00", V5, BAD),
    ("82", "0001 02 0B00 0001 61 00", V5, WRONG),  # subscription identifier 0
    ("82", "0001 04 0B01 0B02 0001 61 00", V5, WRONG),  # two of them
    ("90", "0001", V3, WRONG),
    ("90", "0001 00", V5, WRONG),
    ("90", "0000 00", V3, WRONG),
    ("90", "0001 03", V3, BAD),
    ("90", "0001 97", V3, BAD),
    ("90", "0001 00 03", V5, BAD),
    ("90", "0001 00 11", V5, BAD),
    ("A2", "0001", V3, WRONG),
    ("A2", "0001 00", V5, WRONG),
    ("A2", "0000 0001 61", V3, WRONG),
    ("A2", "0001 0001", V3, BAD),
    ("A2", "0001 00 0001 00", V5, BAD),
    ("A2", "0001 02 0B01 0001 61", V5, BAD),
    ("B0", "00", V3, BAD),
    ("B0", "0000", V3, WRONG),
    ("B0", "0001 00", V3, BAD),
    ("B0", "0001 00", V5, WRONG),
    ("B0", "0001 00 01", V5, BAD),
]

OTHERS: list[Case] = [
    ("20", "", V5, BAD),
    ("20", "00", V3, BAD),
    ("20", "00 00", V5, BAD),
    ("20", "00 00 00", V3, BAD),
    ("20", "00 00 00 00", V5, BAD),
    ("20", "00 06", V3, BAD),
    ("20", "00 80", V3, BAD),
    ("20", "00 01 00", V5, BAD),
    ("20", "00 8B 00", V5, BAD),
    ("20", "01 05", V3, WRONG),
    ("20", "01 87 00", V5, WRONG),
    *[("20", f"{1 << bit:02X} 00", V3, BAD) for bit in range(1, 8)],
    ("C0", "00", V3, BAD),
    ("D0", "00", V5, BAD),
    ("E0", "00", V3, BAD),
    ("E0", "01", V5, BAD),
    ("E0", "92", V5, BAD),
    ("E0", "00 01", V5, BAD),
    ("E0", "00 00 00", V5, BAD),
    ("F0", "", V3, BAD),
    ("F0", "18", V5, BAD),
    ("F0", "01 04 15 0001 6D", V5, BAD),
    ("F0", "18 00", V5, WRONG),
    ("F0", "18 04 16 0001 6D", V5, WRONG),
    ("F0", "18 04 15 0001 6D 00", V5, BAD),
]


@pytest.mark.parametrize(("first", "body", "version", "reason"), CONNECT + PUBLISH + ACKNOWLEDGES + SUBSCRIPTIONS + OTHERS)
def test_a_fault_is_refused_with_its_reason(first: str, body: str, version: Version, reason: Reason) -> None:
    with pytest.raises(Malformed) as found:
        decode(int(first, 16), bytes.fromhex(body), version)
    assert found.value.reason is reason


@pytest.mark.parametrize("version", Version)
def test_a_packet_with_an_illegal_first_byte_is_refused_whatever_follows(version: Version) -> None:
    for first in set(range(256)) - LEGAL_FIRST:
        for body in (b"", b"\0\1", b"\0\1a\0\1\0"):
            with pytest.raises(Malformed) as found:
                decode(first, body, version)
            assert found.value.reason is BAD


def test_the_detail_names_the_packet_and_what_it_has() -> None:
    with pytest.raises(Malformed, match="PUBACK with the reason code 0x01"):
        decode(0x40, bytes.fromhex("000101"), V5)
    with pytest.raises(Malformed, match="SUBSCRIBE with will_delay_s"):
        decode(PacketType.SUBSCRIBE << 4 | 2, bytes.fromhex("0001 01 18"), V5)
