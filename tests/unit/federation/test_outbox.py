"""The outbox: one order for what is kept and what is not, one round at a time, and nothing twice but after a failure."""

from milepost.broker.effects import Changes
from milepost.federation.limits import SiteLimits
from milepost.federation.outbox import ANNOUNCED, UNDECIDED, Append, Outbox

CROSS = "reserved.cross-hub"


def an_outbox(limits: SiteLimits) -> tuple[Outbox, Changes]:
    changes = Changes()
    return Outbox(limits, changes.outbox.__setitem__), changes


def message(number: int) -> Append:
    return Append(number, CROSS, "", f"message {number}".encode())


def numbers(appends: list[Append]) -> list[int]:
    return [one.number for one in appends]


def test_what_is_kept_and_what_passes_leave_in_the_order_of_their_numbers() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.spool(message(1))
    outbox.let_pass(message(2))
    outbox.spool(message(3))
    assert numbers(outbox.take()) == [1, 2, 3]


def test_only_one_round_at_a_time_is_with_the_log() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.spool(message(1))
    first = outbox.take()
    outbox.spool(message(2))
    assert outbox.take() == []
    outbox.taken(first)
    assert numbers(outbox.take()) == [2]


def test_a_round_that_failed_goes_again_before_what_came_since() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.let_pass(message(1))
    outbox.spool(message(2))
    failed = outbox.take()
    outbox.spool(message(3))
    outbox.put_back(failed)
    assert numbers(outbox.take()) == [1, 2, 3]
    assert outbox.waiting == 2


def test_what_the_log_has_is_kept_no_longer_and_leaves_room() -> None:
    outbox, changes = an_outbox(SiteLimits(spool_messages_max=1))
    outbox.spool(message(1))
    assert outbox.is_full()
    outbox.taken(outbox.take())
    assert not outbox.is_full()
    assert changes.outbox == {1: None}
    assert outbox.waiting_bytes == 0


def test_of_one_key_only_the_last_word_is_said_also_after_a_round_failed() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.announce("info", "k", b"old")
    outbox.announce("info", "other", b"x")
    failed = outbox.take()
    outbox.announce("info", "k", b"new")
    outbox.put_back(failed)
    assert outbox.take() == [Append(ANNOUNCED, "info", "other", b"x"), Append(ANNOUNCED, "info", "k", b"new")]


def test_what_was_said_has_arrived_when_all_of_it_has_and_not_before() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.announce("info", "a", b"1")
    turn = outbox.last_announced
    assert outbox.announced_up_to < turn
    first = outbox.take()
    outbox.announce("info", "b", b"2")
    assert outbox.announced_up_to < turn
    outbox.put_back(first)
    assert outbox.announced_up_to < turn
    outbox.taken(outbox.take(1))
    assert outbox.announced_up_to == turn
    outbox.taken(outbox.take())
    assert outbox.announced_up_to == outbox.last_announced


def test_what_is_undecided_waits_with_all_after_it_until_it_is_decided() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.spool(message(1))
    outbox.spool(Append(2, UNDECIDED, "", b"two"))
    outbox.let_pass(Append(3, UNDECIDED, "", b"three"))
    outbox.spool(message(4))
    assert numbers(outbox.take()) == [1]
    outbox.put_back([message(1)])

    def choose(append: Append) -> list[Append]:
        return [append._replace(topic=CROSS), append._replace(number=9, topic="handler")] if append.number == 2 else []

    outbox.decide(choose)
    assert [(one.number, one.topic) for one in outbox.take()] == [(1, CROSS), (2, CROSS), (9, "handler"), (4, CROSS)]
    assert outbox.waiting == 4


def test_what_is_undecided_is_there_again_after_a_restart() -> None:
    outbox, changes = an_outbox(SiteLimits())
    outbox.spool(Append(2, UNDECIDED, "", b"two"))
    again, _ = an_outbox(SiteLimits())
    again.restore({number: data for number, data in changes.outbox.items() if data is not None}, last=7)
    assert again.take() == []
    again.decide(lambda append: [append._replace(topic=CROSS)])
    assert numbers(again.take()) == [2]
    assert again.last_number == 7
