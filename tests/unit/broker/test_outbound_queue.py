"""The outbound queue sends by class, then by deadline, and within a topic in the order of arrival (M29)."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.broker.outbound_queue import OutboundQueue
from milepost.broker.publication import Delivery
from milepost.model.priorities import Priority
from publications import delivery

EMERGENCY, SAFETY, TRAFFIC, CONVENIENCE = Priority


def drained(queue: OutboundQueue, *, has_window: bool = True) -> list[bytes]:
    found = []
    while (taken := queue.take(has_window=has_window)) is not None:
        found.append(taken[1].publication.body)
    return found


def evicted(queue: OutboundQueue) -> list[bytes]:
    return [queue.evict()[1].publication.body for _ in range(len(queue))]


def filled(*entries: tuple[int, Delivery]) -> OutboundQueue:
    queue = OutboundQueue()
    for number, one in entries:
        queue.put(number, one)
    return queue


def test_a_more_urgent_class_is_sent_first_whenever_it_arrived() -> None:
    # M29
    queue = filled(*((0, delivery(one.name.encode(), priority=one)) for one in reversed(Priority)))
    assert drained(queue) == [b"EMERGENCY", b"SAFETY", b"TRAFFIC", b"CONVENIENCE"]


def test_the_earlier_deadline_is_sent_first_within_a_class() -> None:
    late, soon, sooner = delivery(b"late", "a"), delivery(b"soon", "b", valid_s=5), delivery(b"sooner", "c", valid_s=2)
    assert drained(filled((0, late), (0, soon), (0, sooner))) == [b"sooner", b"soon", b"late"]


def test_messages_of_one_topic_are_sent_in_order_even_if_a_later_one_has_an_earlier_deadline() -> None:
    first, second, other = delivery(b"1", "a"), delivery(b"2", "a", valid_s=1), delivery(b"3", "b", valid_s=5)
    assert drained(filled((0, first), (0, second), (0, other))) == [b"3", b"1", b"2"]


def test_order_in_a_topic_is_preserved_after_many_other_topics_came_and_went() -> None:
    queue = filled((0, delivery(b"first", "a", priority=CONVENIENCE)))
    for number in range(300):
        queue.put(0, delivery(b"", f"other/{number}", priority=EMERGENCY))
        assert queue.take(has_window=True) is not None
    queue.put(0, delivery(b"second", "a", valid_s=1))
    assert drained(queue) == [b"first", b"second"]


def test_only_messages_without_packet_id_are_sent_while_the_window_is_full() -> None:
    queue = filled((1, delivery(b"1", priority=EMERGENCY)), (0, delivery(b"0")), (2, delivery(b"2")))
    assert drained(queue, has_window=False) == [b"0"]
    assert (queue.has_plain, queue.has_numbered, len(queue)) == (False, True, 2)
    assert drained(queue) == [b"1", b"2"]
    assert not queue.has_numbered


def test_messages_of_one_class_with_and_without_packet_id_are_sent_by_deadline_then_by_arrival() -> None:
    queue = filled(
        (7, delivery(b"a", "a", seen_s=1)), (0, delivery(b"b", "b")), (8, delivery(b"c", "c")), (0, delivery(b"d", "d"))
    )
    assert drained(queue) == [b"b", b"c", b"d", b"a"]


def test_the_oldest_message_of_the_lowest_class_is_evicted_first_with_or_without_packet_id() -> None:
    queue = filled(
        (0, delivery(b"urgent", "a", priority=EMERGENCY)),
        (3, delivery(b"old", "b")),
        (0, delivery(b"young", "c", seen_s=1)),
        (0, delivery(b"traffic", "d", priority=TRAFFIC)),
        (4, delivery(b"youngest", "e", seen_s=2)),
    )
    assert evicted(queue) == [b"old", b"young", b"youngest", b"traffic", b"urgent"]
    assert (len(queue), queue.size) == (0, 0)


def test_a_packet_id_is_in_the_queue_only_while_its_message_waits() -> None:
    queue = filled((5, delivery()), (6, delivery()))
    assert 5 in queue
    queue.take(has_window=True)
    queue.evict()
    assert 5 not in queue
    assert 6 not in queue


entries = st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from(list(Priority)), st.sampled_from([None, 1, 3, 20]))


@given(st.lists(st.none() | entries, max_size=60))
def test_the_outbound_queue_equals_a_sorted_list(steps: list[tuple[bool, str, Priority, int | None] | None]) -> None:
    """None takes one message out; the list holds class, deadline (never before that of the topic's last message) and sequence."""
    queue, model = OutboundQueue(), list[tuple[int, int, int]]()
    latest: dict[tuple[bool, Priority, str], int] = {}
    for sequence, step in enumerate(steps, 1):
        if step is None:
            taken = queue.take(has_window=True)
            model.sort()
            assert (None if taken is None else int(taken[1].publication.body)) == (model.pop(0)[2] if model else None)
        else:
            is_numbered, topic, priority, valid_s = step
            one = delivery(str(sequence).encode(), topic, priority=priority, seen_s=sequence / 10, valid_s=valid_s)
            deadline = max(one.publication.deadline, latest.get((is_numbered, priority, topic), 0))
            latest[is_numbered, priority, topic] = deadline
            queue.put(sequence * is_numbered, one)
            model.append((priority, deadline, sequence))
        assert len(queue) == len(model)
    assert [int(one.publication.body) for _, one in queue.all()] == [sequence for _, _, sequence in sorted(model)]
    assert queue.size == sum(one.publication.size for _, one in queue.all())
