"""The outbox: one order for what is kept and what is not, one round at a time, and nothing twice but after a failure."""

from milepost.edge.keeping import Changes
from milepost.edge.site.limits import SiteLimits
from milepost.edge.site.outbox import SAID, UNDECIDED, Append, Outbox

CROSS = "reserved.cross-hub"


def message(number: int) -> Append:
    return Append(number, CROSS, "", f"message {number}".encode())


def numbers(appends: list[Append]) -> list[int]:
    return [one.number for one in appends]


def test_what_is_kept_and_what_passes_leave_in_the_order_of_their_numbers() -> None:
    outbox, changes = Outbox(SiteLimits()), Changes()
    outbox.spool(message(1), changes)
    outbox.let_pass(message(2))
    outbox.spool(message(3), changes)
    assert numbers(outbox.take()) == [1, 2, 3]


def test_only_one_round_at_a_time_is_with_the_log() -> None:
    outbox, changes = Outbox(SiteLimits()), Changes()
    outbox.spool(message(1), changes)
    first = outbox.take()
    outbox.spool(message(2), changes)
    assert outbox.take() == []
    outbox.taken(first, changes)
    assert numbers(outbox.take()) == [2]


def test_a_round_that_failed_goes_again_before_what_came_since() -> None:
    outbox, changes = Outbox(SiteLimits()), Changes()
    outbox.let_pass(message(1))
    outbox.spool(message(2), changes)
    failed = outbox.take()
    outbox.spool(message(3), changes)
    outbox.put_back(failed)
    assert numbers(outbox.take()) == [1, 2, 3]
    assert outbox.waiting == 2


def test_what_the_log_has_is_kept_no_longer_and_leaves_room() -> None:
    outbox, changes = Outbox(SiteLimits(spool_messages_max=1)), Changes()
    outbox.spool(message(1), changes)
    assert outbox.is_full()
    outbox.taken(outbox.take(), changes)
    assert not outbox.is_full()
    assert changes.outbox == {1: None}
    assert outbox.waiting_bytes == 0


def test_of_one_key_only_the_last_word_is_said_also_after_a_round_failed() -> None:
    outbox = Outbox(SiteLimits())
    outbox.say("info", "k", b"old")
    outbox.say("info", "other", b"x")
    failed = outbox.take()
    outbox.say("info", "k", b"new")
    outbox.put_back(failed)
    assert outbox.take() == [Append(SAID, "info", "other", b"x"), Append(SAID, "info", "k", b"new")]


def test_what_was_said_has_arrived_when_all_of_it_has_and_not_before() -> None:
    outbox, changes = Outbox(SiteLimits()), Changes()
    outbox.say("info", "a", b"1")
    turn = outbox.last_said
    assert outbox.said_up_to < turn
    first = outbox.take()
    outbox.say("info", "b", b"2")
    assert outbox.said_up_to < turn
    outbox.put_back(first)
    assert outbox.said_up_to < turn
    outbox.taken(outbox.take(1), changes)
    assert outbox.said_up_to == turn
    outbox.taken(outbox.take(), changes)
    assert outbox.said_up_to == outbox.last_said


def test_what_is_undecided_waits_with_all_after_it_until_it_is_decided() -> None:
    outbox, changes = Outbox(SiteLimits()), Changes()
    outbox.spool(message(1), changes)
    outbox.spool(Append(2, UNDECIDED, "", b"two"), changes)
    outbox.let_pass(Append(3, UNDECIDED, "", b"three"))
    outbox.spool(message(4), changes)
    assert numbers(outbox.take()) == [1]
    outbox.put_back([message(1)])

    def choose(append: Append) -> list[Append]:
        return [append._replace(topic=CROSS), append._replace(number=9, topic="handler")] if append.number == 2 else []

    outbox.decide(choose, changes)
    assert [(one.number, one.topic) for one in outbox.take()] == [(1, CROSS), (2, CROSS), (9, "handler"), (4, CROSS)]
    assert outbox.waiting == 4


def test_what_is_undecided_is_there_again_after_a_restart() -> None:
    outbox, changes = Outbox(SiteLimits()), Changes()
    outbox.spool(Append(2, UNDECIDED, "", b"two"), changes)
    again = Outbox(SiteLimits())
    again.restore({number: data for number, data in changes.outbox.items() if data is not None}, last=7)
    assert again.take() == []
    again.decide(lambda append: [append._replace(topic=CROSS)], Changes())
    assert numbers(again.take()) == [2]
    assert again.last_number == 7
