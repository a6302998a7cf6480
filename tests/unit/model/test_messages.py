"""Messages: required parts, identity and deadline (M6, M29, T2)."""

from math import inf, nan
from typing import Any

import pytest

from milepost.model.addresses import ToContent
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import (
    BODY_BYTES_MAX,
    FIELD_NAME_CHARACTERS_MAX,
    FIELDS_MAX,
    Message,
    MessageId,
    Scalar,
    check_message_id,
)
from milepost.model.priorities import DEADLINE_NS, Priority
from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import TAGS_MAX, Tag

NOON = Instant(1_893_499_200 * SECOND_NS)
USUAL: dict[str, Any] = {"id": MessageId(7), "source": EndpointId("truck-7"), "topic": "Collision", "seen_at": NOON}


def message(**changes: Any) -> Message:
    return Message(**(USUAL | changes))


def refused(**changes: Any) -> Malformed:
    with pytest.raises(Malformed) as caught:
        message(**changes)
    return caught.value


def test_the_defaults_of_a_message() -> None:
    plain = message()
    assert (plain.address, plain.valid_until, plain.priority) == (ToContent(), FOREVER, Priority.CONVENIENCE)
    assert (plain.tags, plain.place, plain.reliable, dict(plain.fields), plain.body) == (frozenset(), None, False, {}, b"")


def test_a_message_is_identified_by_source_and_id_so_that_ids_of_two_sources_never_clash() -> None:
    """T2: (owner, id) is the name."""
    assert message().key == ("truck-7", 7)
    assert message().key == message(topic="Other", body=b"x").key
    assert len({message().key, message(id=MessageId(8)).key, message(source=EndpointId("truck-8")).key}) == 3


@pytest.mark.parametrize("number", [1, 2**53, 2**64 - 2, 2**64 - 1])
def test_a_positive_64_bit_integer_is_a_message_id(number: int) -> None:
    check_message_id(number)
    assert message(id=number).id == number


@pytest.mark.parametrize("number", [0, -1, 2**64, 10**400, 1.0, True, "1", None])
def test_other_values_are_not_message_ids(number: Any) -> None:
    assert refused(id=number).reason is Reason.FIELD_RANGE
    with pytest.raises(Malformed, match=r"not in 1\.\.2\^64-1"):
        check_message_id(number)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"source": ""}, Reason.ENDPOINT_ID),
        ({"topic": ""}, Reason.TOPIC_EMPTY),
        ({"topic": "city/+"}, Reason.TOPIC_CHARACTER),
        ({"tags": frozenset([Tag("a b")])}, Reason.TAG_CHARACTER),
        ({"tags": frozenset(Tag(f"t{number}") for number in range(TAGS_MAX + 1))}, Reason.TOO_MANY_TAGS),
        ({"seen_at": -1}, Reason.TIME_RANGE),
        ({"seen_at": FOREVER}, Reason.TIME_RANGE),
        ({"seen_at": 1.5}, Reason.TIME_RANGE),
        ({"valid_until": FOREVER + 1}, Reason.TIME_RANGE),
        ({"valid_until": NOON - 1}, Reason.VALIDITY_BACKWARDS),
        ({"body": bytes(BODY_BYTES_MAX + 1)}, Reason.MESSAGE_TOO_LARGE),
    ],
)
def test_a_message_with_an_invalid_part_is_refused(changes: dict[str, Any], reason: Reason) -> None:
    assert refused(**changes).reason is reason


def test_a_body_may_be_as_large_as_listeners_without_datagrams_allow() -> None:
    assert len(message(body=bytes(BODY_BYTES_MAX)).body) == BODY_BYTES_MAX


@pytest.mark.parametrize(
    "value", ["", "text", "\0", 0, -(2**63), 2**63 - 1, 0.0, -1.5, 1e300, True, False, b"", b"\xff"], ids=repr
)
def test_a_field_is_a_string_number_boolean_or_bytes(value: Scalar) -> None:
    """M6: the payload is keys and values."""
    found = message(fields={"key": value}).fields["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, ("a",), object()])
def test_a_field_of_another_type_is_refused(value: Any) -> None:
    fault = refused(fields={"key": value})
    assert fault.reason is Reason.FIELD_TYPE
    assert type(value).__name__ in fault.detail


@pytest.mark.parametrize("value", [nan, inf, -inf, 2**63, -(2**63) - 1, 10**400])
def test_a_number_that_cannot_be_encoded_is_refused(value: Scalar) -> None:
    assert refused(fields={"key": value}).reason is Reason.FIELD_RANGE


@pytest.mark.parametrize("name", ["", "x" * (FIELD_NAME_CHARACTERS_MAX + 1), "a\n", "\ud800", 7])
def test_a_field_has_a_name_of_printable_characters(name: Any) -> None:
    assert refused(fields={name: 1}).reason is Reason.FIELD_RANGE
    assert message(fields={"x" * FIELD_NAME_CHARACTERS_MAX: 1}).fields


def test_as_many_fields_as_allowed_are_let_in_and_one_more_is_refused() -> None:
    fields = {f"f{number}": number for number in range(FIELDS_MAX)}
    assert len(message(fields=fields).fields) == FIELDS_MAX
    assert refused(fields=fields | {"more": 1}).reason is Reason.TOO_MANY_FIELDS


def test_messages_without_fields_do_not_share_mutable_state() -> None:
    with pytest.raises(TypeError):
        message().fields["key"] = 1  # type: ignore[index]
    assert not message().fields


def test_a_message_is_expired_only_after_its_last_instant() -> None:
    """M29: validity windows."""
    short = message(valid_until=Instant(NOON + 5))
    assert [short.is_expired(Instant(NOON + step)) for step in (0, 5, 6)] == [False, False, True]
    assert not message().is_expired(FOREVER)


def test_a_message_may_be_valid_for_the_instant_it_was_seen_alone() -> None:
    assert message(valid_until=NOON).is_expired(Instant(NOON + 1))


@pytest.mark.parametrize("priority", Priority)
def test_the_deadline_follows_from_the_class(priority: Priority) -> None:
    """M29: deadlines."""
    assert message(priority=priority).deadline == NOON + DEADLINE_NS[priority]


def test_the_deadline_is_never_after_the_validity() -> None:
    assert message(valid_until=Instant(NOON + 3)).deadline == NOON + 3
    assert message(priority=Priority.EMERGENCY, valid_until=Instant(NOON + SECOND_NS)).deadline == NOON + 50_000_000
