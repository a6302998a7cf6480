"""The head of a message's record agrees with the whole record; other records and spellings have none."""

from dataclasses import replace
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from milepost.model.addresses import ToContent
from milepost.model.endpoints import EndpointId, maybe_endpoint
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.priorities import Priority
from milepost.model.site_records import SERVICE_MARK, EdgeRef, ForwardedMessage, HubInfo, source_of_sender
from milepost.wire.records import from_record, head_of, to_record
from strategies import endpoint_ids, messages, topics

names = st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True)
numbers = st.integers(0, 10**19 - 1)
plain_messages = st.builds(
    Message,
    st.builds(MessageId, numbers.map(lambda number: number or 1)),
    endpoint_ids,
    topics,
    st.builds(Instant, st.integers(0, 2**63 - 2)),
    reliable=st.booleans(),
    body=st.binary(max_size=60),
)


def forwarded_by(sender: EdgeRef, number: int, message: Message, *rest: Any) -> ForwardedMessage:
    """Return a record whose source fits its sender."""
    is_own = maybe_endpoint(message.source) is not None and not sender.edge.startswith(SERVICE_MARK)
    return ForwardedMessage(sender, number, message if is_own else replace(message, source=source_of_sender(sender)), *rest)


forwarded = st.builds(
    forwarded_by,
    st.builds(EdgeRef, names, names),
    numbers,
    plain_messages | messages(),
    st.integers(0, 2),
    st.booleans(),
    st.none() | st.binary(max_size=9),
    st.just(()) | st.lists(names, max_size=2).map(tuple),
)


@given(forwarded)
def test_a_head_has_the_origin_of_its_message(one: ForwardedMessage) -> None:
    head = head_of(to_record(one))
    assert head is not None
    assert (head.site, head.sender, head.number) == (one.sender.site, str(one.sender), one.number)


@given(forwarded)
def test_a_head_has_a_topic_only_if_the_topic_alone_determines_the_audience(one: ForwardedMessage) -> None:
    value = to_record(one)
    head = head_of(value)
    assert head is not None
    if head.topic is not None:
        message = one.message
        only = Message(message.id, message.source, message.topic, message.seen_at, reliable=message.reliable, body=message.body)
        assert from_record(value) == replace(one, message=only, is_retained=False, direct=())
        assert head.topic == message.topic
        assert message.address == ToContent()


@given(
    st.builds(
        ForwardedMessage,
        st.builds(EdgeRef, names, names),
        numbers,
        plain_messages,
        st.integers(0, 2),
        extras=st.binary(max_size=9),
    )
)
def test_a_plain_message_with_names_of_usual_characters_has_a_topic(one: ForwardedMessage) -> None:
    is_usual = all(text.isascii() and not set(text) & set('"\\') for text in (one.message.source, one.message.topic))
    head = head_of(to_record(one))
    assert head is not None
    assert head.topic == (one.message.topic if is_usual else None)


@given(forwarded, st.integers(0, 2_000), st.sampled_from([b"", b"}", b'"', b"\\", b"\n", b"x", b'"qos":1,']))
def test_a_record_whose_head_has_a_topic_is_structurally_valid(one: ForwardedMessage, at: int, strange: bytes) -> None:
    value = to_record(one)
    changed = value[: at % len(value)] + strange + value[at % len(value) + 1 :]
    head = head_of(changed)
    if head is not None and head.topic is not None:
        members = orjson.loads(changed)
        assert members["message"]["topic"] == head.topic
        assert members["from"] == head.sender
        assert not {"retained", "direct"} & members.keys()
        assert not {"address", "tags", "place", "valid_until", "priority", "fields"} & members["message"].keys()


@given(forwarded)
def test_a_record_in_another_spelling_has_no_head(one: ForwardedMessage) -> None:
    assert head_of(orjson.dumps(orjson.loads(to_record(one)), option=orjson.OPT_INDENT_2)) is None


def test_other_records_have_no_head() -> None:
    assert head_of(to_record(HubInfo("centre", ("north",), Instant(5)))) is None
    assert head_of(b"") is None


def test_a_message_that_is_retained_or_was_sent_directly_is_not_plain() -> None:
    plain = ForwardedMessage(EdgeRef("north", "1"), 7, Message(MessageId(1), EndpointId("car"), "t/a", Instant(5)))
    heads = [head_of(to_record(one)) for one in (plain, replace(plain, is_retained=True), replace(plain, direct=("south",)))]
    assert [head.topic for head in heads if head is not None] == ["t/a", None, None]


def test_a_message_of_another_priority_or_with_an_expiry_is_not_plain() -> None:
    plain = Message(MessageId(1), EndpointId("car"), "t/a", Instant(5), body=b"x")
    heads = [
        head_of(to_record(ForwardedMessage(EdgeRef("north", "1"), 7, message)))
        for message in (plain, replace(plain, priority=Priority.EMERGENCY), replace(plain, valid_until=Instant(9)))
    ]
    assert [head.topic for head in heads if head is not None] == ["t/a", None, None]
