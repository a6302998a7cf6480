from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.handlers.answers import AnswerStatus, answer_to, answer_topic_of, may_be_answered, next_number
from milepost.handlers.calls import CALL_RETRY
from milepost.handlers.topic_names import is_own_message, partition_of, sender_name_of
from milepost.model.addresses import ToContent
from milepost.model.endpoints import EndpointId, service_source
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason
from milepost.model.retry import Retry
from milepost.model.site_records import EdgeRef, ForwardedMessage, source_of_sender
from milepost.wire.mqtt import Properties, forwarded, parse_forwarded

NOW = Instant(1_900_000_000_000_000_000)
NORTH = EdgeRef("north", "edge-1")
SENDER = EdgeRef("north", "@parking")
REQUEST = Message(MessageId(1), EndpointId("truck-7"), "service/parking/find", NOW, priority=Priority.TRAFFIC, body=b"{}")
FORWARDED = ForwardedMessage(NORTH, 5, REQUEST, qos=1)


def answer(
    request: ForwardedMessage, status: AnswerStatus = AnswerStatus.ACCEPT, body: bytes = b"{}", *, is_json: bool = True
) -> ForwardedMessage:
    return answer_to(request, status, body, sender=SENDER, number=17, now=NOW, is_json=is_json)


def request_with(**properties: object) -> ForwardedMessage:
    return replace(FORWARDED, extras=forwarded(Properties(**properties)))  # type: ignore[arg-type]


def test_a_failing_call_is_attempted_three_times() -> None:
    retry = Retry(CALL_RETRY)
    assert [retry.next_wait_s() for _ in range(4)] == [0.1, 1.0, None, None]


def test_an_answer_is_published_below_the_topic_of_the_request() -> None:
    # D10
    assert answer(FORWARDED).message.topic == "service/parking/find/accept"
    assert answer(FORWARDED, AnswerStatus.REJECT).message.topic == "service/parking/find/reject"


def test_an_answer_is_an_ordinary_message_with_the_priority_and_qos_of_the_request() -> None:
    found = answer(FORWARDED, body=b'{"a":1}')
    assert (found.sender, found.number, found.qos) == (SENDER, 17, 1)
    message = found.message
    assert (message.source, message.address, message.priority) == ("@service/parking", ToContent(), Priority.TRAFFIC)
    assert (message.body, message.reliable, message.seen_at) == (b'{"a":1}', True, NOW)


def test_an_answer_goes_to_the_response_topic_with_the_correlation_data() -> None:
    request = request_with(response_topic="reply/truck-7", correlation_data=b"\x01\x02")
    for status in AnswerStatus:
        found = answer(request, status)
        properties = parse_forwarded(found.extras or b"")
        assert found.message.topic == "reply/truck-7"
        assert properties.correlation_data == b"\x01\x02"
        assert ("status", status.value) in properties.user
        assert found.message.fields == {"status": status.value}


def test_a_system_topic_is_not_used_as_response_topic() -> None:
    assert answer(request_with(response_topic="$reserved/cross-hub")).message.topic == "service/parking/find/accept"


def test_only_json_answers_have_a_json_content_type() -> None:
    assert parse_forwarded(answer(FORWARDED).extras or b"").content_type == "application/json"
    plain = parse_forwarded(answer(FORWARDED, is_json=False).extras or b"")
    assert (plain.content_type, plain.payload_format) == (None, None)


def test_a_topic_too_deep_for_an_answer_is_refused() -> None:
    deep = replace(FORWARDED, message=replace(REQUEST, topic="/".join("a" * 32)))
    with pytest.raises(Malformed) as fault:
        answer(deep)
    assert fault.value.reason is Reason.TOPIC_TOO_DEEP


def test_an_answer_goes_back_to_the_edge_of_the_request_or_to_all_hubs() -> None:
    assert answer_topic_of(FORWARDED, "north") == "reserved.subscription-north-edge-1"
    assert answer_topic_of(FORWARDED, "south") == "reserved.cross-hub"


@pytest.mark.parametrize("sender", [EdgeRef("north", "a b"), EdgeRef("no/rth", "edge-1"), EdgeRef("north", "@other")])
def test_an_invalid_edge_name_gets_no_answer(sender: EdgeRef) -> None:
    request = replace(FORWARDED, sender=sender, message=replace(REQUEST, source=service_source("other")))
    with pytest.raises(ValueError, match="letters, digits"):
        answer_topic_of(request, "north")


def test_each_partition_and_direction_has_its_own_sender_name() -> None:
    senders = [sender_name_of("a", partition, is_remote=is_remote) for partition in (0, 1, 2) for is_remote in (False, True)]
    assert senders[0] == "@a"
    assert len(set(senders)) == len(senders)
    sources = [source_of_sender(EdgeRef("north", sender)) for sender in senders]
    assert all(is_own_message(source, "a") for source in sources)
    assert not any(is_own_message(source, "b") for source in sources)
    assert not is_own_message("@service/ab", "a")
    assert not is_own_message("a", "a")


def test_a_message_of_a_handler_is_not_answered() -> None:
    assert may_be_answered(REQUEST)
    assert not may_be_answered(replace(REQUEST, source=service_source("other")))


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_answer_numbers_increase_whatever_the_clock_does(clock: list[int]) -> None:
    numbers = [0]
    for now in clock:
        numbers.append(next_number(numbers[-1], Instant(now)))
    assert all(later > earlier for earlier, later in pairwise(numbers))


@given(st.text(), st.integers(1, 64))
def test_a_source_has_one_partition(key: str, partitions: int) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    assert partition_of(key, partitions) == partition_of(key, partitions) < partitions


def test_sources_are_spread_over_all_partitions() -> None:
    spread = Counter(partition_of(f"truck-{number}", 4) for number in range(1_000))
    assert set(spread) == {0, 1, 2, 3}
    assert min(spread.values()) > 150
