"""The ledger finds every fault that is injected into a correct run, and none in a correct one."""

from collections.abc import Callable

import pytest

from ledger import Ledger


def good(qos: int = 1) -> Ledger:
    """Return the ledger of five acknowledged messages of one sender, all received by one receiver."""
    ledger = Ledger()
    ledger.open("car", qos)
    ledger.subscribe("phone", "car")
    for _ in range(5):
        number = ledger.send("car")
        ledger.acknowledge("car", number)
        ledger.receive("phone", "car", number, connection=1, is_duplicate=False)
    return ledger


def receive(ledger: Ledger, number: int, *, connection: int = 1, is_duplicate: bool = False, receiver: str = "phone") -> None:
    ledger.receive(receiver, "car", number, connection=connection, is_duplicate=is_duplicate)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_correct_run_has_no_faults(qos: int) -> None:
    assert good(qos).faults() == []
    assert good(qos).is_complete()


def test_an_unacknowledged_message_may_or_may_not_be_received() -> None:
    ledger = good()
    seen, _ = ledger.send("car"), ledger.send("car")
    receive(ledger, seen)
    assert ledger.faults() == []
    assert ledger.is_complete()


def test_messages_sent_before_a_subscription_are_not_missed() -> None:
    ledger = good()
    ledger.subscribe("radio", "car")
    assert ledger.faults() == []
    number = ledger.send("car")
    ledger.acknowledge("car", number)
    receive(ledger, number)
    assert ledger.faults() == ["radio of car: lost 5"]
    assert not ledger.is_complete()


def test_messages_received_before_a_subscription_are_ignored() -> None:
    ledger = good()
    receive(ledger, 1, receiver="radio")
    assert ledger.faults() == ["radio of car: got 1 that it did not subscribe to"]
    ledger.subscribe("radio", "car")
    receive(ledger, 1, receiver="radio")
    assert ledger.faults() == []


def test_a_qos_1_duplicate_with_the_dup_flag_on_a_later_connection_is_no_fault() -> None:
    ledger = good()
    receive(ledger, 3, connection=2, is_duplicate=True)
    receive(ledger, 4, connection=2, is_duplicate=True)
    receive(ledger, 4, connection=3, is_duplicate=True)
    assert ledger.faults() == []


@pytest.mark.parametrize(("qos", "faults"), [(1, []), (2, ["phone of car: duplicated 5, 2 times"])])
def test_a_resent_message_may_be_received_again_unless_it_has_qos_2(qos: int, faults: list[str]) -> None:
    ledger = good(qos)
    number = ledger.send("car")
    receive(ledger, number)
    ledger.send_again("car", number)
    receive(ledger, number)
    assert ledger.faults() == faults


def test_qos_0_may_be_lost() -> None:
    ledger = good(0)
    ledger.acknowledge("car", ledger.send("car"))
    assert ledger.faults() == []


def lose(ledger: Ledger) -> None:
    for _ in range(2):
        ledger.acknowledge("car", ledger.send("car"))
    receive(ledger, ledger.send("car"))
    ledger.acknowledge("car", ledger.send("car"))


def invent(ledger: Ledger) -> None:
    receive(ledger, 9)


def deliver_a_refused_message(ledger: Ledger) -> None:
    number = ledger.send("car")
    ledger.refuse("car", number)
    receive(ledger, number)


def deliver_to_another_receiver(ledger: Ledger) -> None:
    receive(ledger, 0, receiver="stranger")


def overtake(ledger: Ledger) -> None:
    first, second = ledger.send("car"), ledger.send("car")
    receive(ledger, second)
    receive(ledger, first)


@pytest.mark.parametrize(
    ("inject", "fault"),
    [
        (lose, "phone of car: lost 5-6, 8"),
        (lambda ledger: receive(ledger, 4), "phone of car: duplicated 4, 2 times"),
        (lambda ledger: receive(ledger, 4, connection=2), "phone of car: duplicated 4, 2 times"),
        (lambda ledger: receive(ledger, 4, is_duplicate=True), "phone of car: duplicated 4, 2 times"),
        (invent, "phone of car: got 9, which was never sent"),
        (deliver_a_refused_message, "phone of car: got 5, which was refused"),
        (deliver_to_another_receiver, "stranger of car: got 1 that it did not subscribe to"),
        (overtake, "phone of car: 5 came after 6"),
    ],
)
def test_each_fault_is_found_and_no_other(inject: Callable[[Ledger], None], fault: str) -> None:
    ledger = good()
    inject(ledger)
    assert ledger.faults() == [fault]


def test_an_open_qos_2_exchange_may_be_repeated_once() -> None:
    ledger = good(2)
    ledger.leave_open("phone", "car", 4)
    receive(ledger, 4, connection=2)
    assert ledger.faults() == []
    receive(ledger, 4, connection=2)
    receive(ledger, 3, connection=2)
    assert ledger.faults() == ["phone of car: duplicated 3, 2 times", "phone of car: duplicated 4, 2 times"]


def test_qos_2_is_never_repeated() -> None:
    ledger = good(2)
    receive(ledger, 4, connection=2, is_duplicate=True)
    assert ledger.faults() == ["phone of car: duplicated 4, 2 times"]


def test_order_is_not_checked_for_endpoints_that_did_not_wait_for_their_session() -> None:
    ledger = good()
    ledger.allow_any_order("phone")
    overtake(ledger)
    assert ledger.faults() == []
    receive(ledger, 5)
    ledger.acknowledge("car", ledger.send("car"))
    assert ledger.faults() == ["phone of car: lost 7", "phone of car: duplicated 5, 2 times"]
