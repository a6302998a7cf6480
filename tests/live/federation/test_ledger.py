"""The ledger finds every fault that is put into a good run, and none in a good one."""

from collections.abc import Callable

import pytest

from ledger import Ledger


def good(qos: int = 1) -> Ledger:
    """A sender of five, all acknowledged, all seen by one taker."""
    ledger = Ledger()
    ledger.open("car", qos)
    ledger.ask("phone", "car")
    for _ in range(5):
        number = ledger.send("car")
        ledger.acknowledge("car", number)
        ledger.see("phone", "car", number, connection=1, is_repetition=False)
    return ledger


def see(ledger: Ledger, number: int, *, connection: int = 1, is_repetition: bool = False, taker: str = "phone") -> None:
    ledger.see(taker, "car", number, connection=connection, is_repetition=is_repetition)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_nothing_is_wrong_with_a_good_run(qos: int) -> None:
    assert good(qos).faults() == []
    assert good(qos).is_complete()


def test_what_was_sent_and_not_acknowledged_may_be_seen_or_not() -> None:
    ledger = good()
    seen, _ = ledger.send("car"), ledger.send("car")
    see(ledger, seen)
    assert ledger.faults() == []
    assert ledger.is_complete()


def test_what_was_sent_before_a_taker_asked_is_not_missed() -> None:
    ledger = good()
    ledger.ask("radio", "car")
    assert ledger.faults() == []
    number = ledger.send("car")
    ledger.acknowledge("car", number)
    see(ledger, number)
    assert ledger.faults() == ["radio of car: lost 5"]
    assert not ledger.is_complete()


def test_what_a_taker_saw_before_it_asked_does_not_count() -> None:
    ledger = good()
    see(ledger, 1, taker="radio")
    assert ledger.faults() == ["radio of car: got 1 that it did not ask for"]
    ledger.ask("radio", "car")
    see(ledger, 1, taker="radio")
    assert ledger.faults() == []


def test_a_marked_repetition_of_quality_1_on_a_later_connection_is_no_fault() -> None:
    ledger = good()
    see(ledger, 3, connection=2, is_repetition=True)
    see(ledger, 4, connection=2, is_repetition=True)
    see(ledger, 4, connection=3, is_repetition=True)
    assert ledger.faults() == []


@pytest.mark.parametrize(("qos", "faults"), [(1, []), (2, ["phone of car: doubled 5, 2 times"])])
def test_what_was_sent_again_may_come_again_unless_it_is_of_quality_2(qos: int, faults: list[str]) -> None:
    ledger = good(qos)
    number = ledger.send("car")
    see(ledger, number)
    ledger.send_again("car", number)
    see(ledger, number)
    assert ledger.faults() == faults


def test_quality_0_may_be_lost() -> None:
    ledger = good(0)
    ledger.acknowledge("car", ledger.send("car"))
    assert ledger.faults() == []


def lose(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.acknowledge("car", ledger.send("car"))
    see(ledger, ledger.send("car"))
    ledger.acknowledge("car", ledger.send("car"))


def invent(ledger: Ledger) -> None:
    see(ledger, 9)


def let_a_refused_one_through(ledger: Ledger) -> None:
    number = ledger.send("car")
    ledger.refuse("car", number)
    see(ledger, number)


def bring_it_to_somebody_else(ledger: Ledger) -> None:
    see(ledger, 0, taker="stranger")


def overtake(ledger: Ledger) -> None:
    first, second = ledger.send("car"), ledger.send("car")
    see(ledger, second)
    see(ledger, first)


@pytest.mark.parametrize(
    ("inject", "fault"),
    [
        (lose, "phone of car: lost 5-6, 8"),
        (lambda ledger: see(ledger, 4), "phone of car: doubled 4, 2 times"),
        (lambda ledger: see(ledger, 4, connection=2), "phone of car: doubled 4, 2 times"),
        (lambda ledger: see(ledger, 4, is_repetition=True), "phone of car: doubled 4, 2 times"),
        (invent, "phone of car: got 9, which was never sent"),
        (let_a_refused_one_through, "phone of car: got 5, which was refused"),
        (bring_it_to_somebody_else, "stranger of car: got 1 that it did not ask for"),
        (overtake, "phone of car: 5 came after 6"),
    ],
)
def test_each_fault_is_found_and_nothing_else(inject: Callable[[Ledger], None], fault: str) -> None:
    ledger = good()
    inject(ledger)
    assert ledger.faults() == [fault]


def test_an_exchange_of_quality_2_that_was_left_open_may_be_repeated_once() -> None:
    ledger = good(2)
    ledger.leave_open("phone", "car", 4)
    see(ledger, 4, connection=2)
    assert ledger.faults() == []
    see(ledger, 4, connection=2)
    see(ledger, 3, connection=2)
    assert ledger.faults() == ["phone of car: doubled 3, 2 times", "phone of car: doubled 4, 2 times"]


def test_quality_2_is_never_repeated() -> None:
    ledger = good(2)
    see(ledger, 4, connection=2, is_repetition=True)
    assert ledger.faults() == ["phone of car: doubled 4, 2 times"]


def test_who_did_not_wait_for_its_session_is_asked_about_all_but_order() -> None:
    ledger = good()
    ledger.expect_any_order("phone")
    overtake(ledger)
    assert ledger.faults() == []
    see(ledger, 5)
    ledger.acknowledge("car", ledger.send("car"))
    assert ledger.faults() == ["phone of car: lost 7", "phone of car: doubled 5, 2 times"]
