"""The outbox: one order for spooled and transient records, one batch at a time, and a retry only after a failure."""

from milepost.broker.effects import StateChanges
from milepost.federation.limits import SiteLimits
from milepost.federation.outbox import ANNOUNCED, UNDECIDED, Append, Outbox

CROSS = "reserved.cross-hub"


def an_outbox(limits: SiteLimits) -> tuple[Outbox, StateChanges]:
    changes = StateChanges()
    return Outbox(limits, changes.outbox.__setitem__), changes


def message(number: int) -> Append:
    return Append(number, CROSS, "", f"message {number}".encode())


def numbers(appends: list[Append]) -> list[int]:
    return [one.number for one in appends]


def test_spooled_and_transient_records_leave_in_the_order_of_their_numbers() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.spool(message(1))
    outbox.add_transient(message(2))
    outbox.spool(message(3))
    assert numbers(outbox.take_batch()) == [1, 2, 3]


def test_the_log_has_one_batch_at_a_time() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.spool(message(1))
    first = outbox.take_batch()
    outbox.spool(message(2))
    assert outbox.take_batch() == []
    outbox.confirm(first)
    assert numbers(outbox.take_batch()) == [2]


def test_a_failed_batch_is_retried_before_later_records() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.add_transient(message(1))
    outbox.spool(message(2))
    failed = outbox.take_batch()
    outbox.spool(message(3))
    outbox.put_back(failed)
    assert numbers(outbox.take_batch()) == [1, 2, 3]
    assert outbox.waiting == 2


def test_confirmed_records_are_deleted_and_leave_room() -> None:
    outbox, changes = an_outbox(SiteLimits(spool_messages_max=1))
    outbox.spool(message(1))
    assert outbox.is_full()
    outbox.confirm(outbox.take_batch())
    assert not outbox.is_full()
    assert changes.outbox == {1: None}
    assert outbox.waiting_bytes == 0


def test_only_the_last_announcement_of_a_key_is_sent_also_after_a_failed_batch() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.announce("info", "k", b"old")
    outbox.announce("info", "other", b"x")
    failed = outbox.take_batch()
    outbox.announce("info", "k", b"new")
    outbox.put_back(failed)
    assert outbox.take_batch() == [Append(ANNOUNCED, "info", "other", b"x"), Append(ANNOUNCED, "info", "k", b"new")]


def test_announced_up_to_advances_only_when_all_earlier_announcements_are_confirmed() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.announce("info", "a", b"1")
    last = outbox.last_announced
    assert outbox.announced_up_to < last
    first = outbox.take_batch()
    outbox.announce("info", "b", b"2")
    assert outbox.announced_up_to < last
    outbox.put_back(first)
    assert outbox.announced_up_to < last
    outbox.confirm(outbox.take_batch(1))
    assert outbox.announced_up_to == last
    outbox.confirm(outbox.take_batch())
    assert outbox.announced_up_to == outbox.last_announced


def test_an_undecided_record_holds_back_all_later_ones_until_it_is_resolved() -> None:
    outbox, _ = an_outbox(SiteLimits())
    outbox.spool(message(1))
    outbox.spool(Append(2, UNDECIDED, "", b"two"))
    outbox.add_transient(Append(3, UNDECIDED, "", b"three"))
    outbox.spool(message(4))
    assert numbers(outbox.take_batch()) == [1]
    outbox.put_back([message(1)])

    def choose(append: Append) -> list[Append]:
        return [append._replace(topic=CROSS), append._replace(number=9, topic="handler")] if append.number == 2 else []

    outbox.resolve_undecided(choose)
    assert [(one.number, one.topic) for one in outbox.take_batch()] == [(1, CROSS), (2, CROSS), (9, "handler"), (4, CROSS)]
    assert outbox.waiting == 4


def test_undecided_records_survive_a_restart() -> None:
    outbox, changes = an_outbox(SiteLimits())
    outbox.spool(Append(2, UNDECIDED, "", b"two"))
    again, _ = an_outbox(SiteLimits())
    again.restore({number: data for number, data in changes.outbox.items() if data is not None}, last=7)
    assert again.take_batch() == []
    again.resolve_undecided(lambda append: [append._replace(topic=CROSS)])
    assert numbers(again.take_batch()) == [2]
    assert again.last_number == 7
