from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.handlers.answers import AnswerStatus, answer_to, answer_topic_of, may_be_answered, next_number
from milepost.handlers.calls import CALL_RETRY
from milepost.handlers.names import is_own, partition_of, sender_name_of
from milepost.model.addresses import ToContent
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.priorities import Priority
from milepost.model.reasons import Malformed, Reason
from milepost.model.retry import Retry
from milepost.model.sites import EdgeRef, ForwardedMessage
from milepost.wire.mqtt import Properties, forwarded, parse_forwarded

NOW = Instant(1_900_000_000_000_000_000)
NORTH = EdgeRef("north", "edge-1")
VOICE = EdgeRef("north", "@parking")
REQUEST = Message(MessageId(1), EndpointId("truck-7"), "service/parking/find", NOW, priority=Priority.TRAFFIC, body=b"{}")
SAID = ForwardedMessage(NORTH, 5, REQUEST, qos=1)


def answer(
    said: ForwardedMessage, status: AnswerStatus = AnswerStatus.ACCEPT, body: bytes = b"{}", *, is_json: bool = True
) -> ForwardedMessage:
    return answer_to(said, status, body, sender=VOICE, number=17, now=NOW, is_json=is_json)


def asking(**properties: object) -> ForwardedMessage:
    return replace(SAID, extras=forwarded(Properties(**properties)))  # type: ignore[arg-type]


def test_a_failing_call_is_made_three_times_and_then_no_more() -> None:
    retry = Retry(CALL_RETRY)
    assert [retry.next_wait_s() for _ in range(4)] == [0.1, 1.0, None, None]


def test_an_answer_is_said_on_the_topic_of_the_request() -> None:
    # D10
    assert answer(SAID).message.topic == "service/parking/find/accept"
    assert answer(SAID, AnswerStatus.REJECT).message.topic == "service/parking/find/reject"


def test_an_answer_is_an_ordinary_message_of_the_handler_with_the_request_s_urgency_and_quality() -> None:
    said = answer(SAID, body=b'{"a":1}')
    assert (said.sender, said.number, said.qos) == (VOICE, 17, 1)
    message = said.message
    assert (message.source, message.address, message.priority) == ("@parking", ToContent(), Priority.TRAFFIC)
    assert (message.body, message.reliable, message.seen_at) == (b'{"a":1}', True, NOW)


def test_an_answer_goes_where_the_request_says_and_keeps_its_correlation() -> None:
    asked = asking(response_topic="reply/truck-7", correlation_data=b"\x01\x02")
    for status in AnswerStatus:
        said = answer(asked, status)
        properties = parse_forwarded(said.extras or b"")
        assert said.message.topic == "reply/truck-7"
        assert properties.correlation_data == b"\x01\x02"
        assert ("status", status.value) in properties.user
        assert said.message.fields == {"status": status.value}


def test_a_topic_of_the_system_is_no_place_for_an_answer() -> None:
    assert answer(asking(response_topic="$reserved/cross-hub")).message.topic == "service/parking/find/accept"


def test_only_json_is_called_json() -> None:
    assert parse_forwarded(answer(SAID).extras or b"").content_type == "application/json"
    plain = parse_forwarded(answer(SAID, is_json=False).extras or b"")
    assert (plain.content_type, plain.payload_format) == (None, None)


def test_a_topic_too_deep_for_an_answer_is_refused() -> None:
    deep = replace(SAID, message=replace(REQUEST, topic="/".join("a" * 32)))
    with pytest.raises(Malformed) as fault:
        answer(deep)
    assert fault.value.reason is Reason.TOPIC_TOO_DEEP


def test_an_answer_goes_back_to_the_edge_of_the_request_or_to_all_hubs() -> None:
    assert answer_topic_of(SAID, "north") == "reserved.subscription-north-edge-1"
    assert answer_topic_of(SAID, "south") == "reserved.cross-hub"


@pytest.mark.parametrize("sender", [EdgeRef("north", "a b"), EdgeRef("no/rth", "edge-1"), EdgeRef("north", "@other")])
def test_no_answer_goes_to_what_is_no_edge(sender: EdgeRef) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        answer_topic_of(replace(SAID, sender=sender), "north")


def test_each_part_and_way_has_a_voice_of_its_own() -> None:
    voices = [sender_name_of("a", partition, is_far=is_far) for partition in (0, 1, 2) for is_far in (False, True)]
    assert voices[0] == "@a"
    assert len(set(voices)) == len(voices)
    assert all(is_own(voice, "a") for voice in voices)
    assert not any(is_own(voice, "b") for voice in voices)
    assert not is_own("@ab", "a")


def test_a_handler_s_word_is_not_answered() -> None:
    assert may_be_answered(REQUEST)
    assert not may_be_answered(replace(REQUEST, source=EndpointId("@other")))


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_numbers_rise_whatever_the_clock_does(clock: list[int]) -> None:
    numbers = [0]
    for now in clock:
        numbers.append(next_number(numbers[-1], Instant(now)))
    assert all(later > earlier for earlier, later in pairwise(numbers))


@given(st.text(), st.integers(1, 64))
def test_a_source_has_one_part(key: str, partitions: int) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    assert partition_of(key, partitions) == partition_of(key, partitions) < partitions


def test_sources_are_spread_over_all_parts() -> None:
    spread = Counter(partition_of(f"truck-{number}", 4) for number in range(1_000))
    assert set(spread) == {0, 1, 2, 3}
    assert min(spread.values()) > 150
