"""Appends of the incident engine: alerts at once, a state only after the log has confirmed the alerts that it records."""

from collections.abc import Sequence

from milepost.eventlog.log import Entry
from milepost.incidents.engine import STATE, EngineAppend
from milepost.model.site_records import CROSS_HUB
from milepost.runtime.incidents import STATES_WAITING_MAX, AlertAppends


class Appended:
    """A log that confirms nothing by itself."""

    def __init__(self) -> None:
        self.appended: list[tuple[list[bytes | None], int]] = []
        self.order = AlertAppends(self.append)

    def append(self, entries: Sequence[Entry], number: int) -> None:
        self.appended.append(([entry.value for entry in entries], number))

    @property
    def states(self) -> list[bytes | None]:
        return [values[0] for values, number in self.appended if number == 0]


def alert(name: bytes) -> EngineAppend:
    return EngineAppend(CROSS_HUB, "", name)


def state(name: bytes) -> EngineAppend:
    return EngineAppend(STATE, "state", name)


def test_a_state_without_unconfirmed_alerts_is_appended_at_once() -> None:
    log = Appended()
    log.order.add([state(b"s")])
    assert log.appended == [([b"s"], 0)]


def test_a_state_waits_for_all_alerts_before_it_and_for_no_later_one() -> None:
    log = Appended()
    log.order.add([alert(b"a1"), alert(b"a2"), state(b"s")])
    log.order.add([alert(b"a3")])
    assert log.appended == [([b"a1", b"a2"], 1), ([b"a3"], 2)]
    log.order.confirmed(1)
    assert log.states == [b"s"]
    log.order.confirmed(2)
    assert log.states == [b"s"]


def test_no_state_is_appended_after_an_append_that_failed() -> None:
    log = Appended()
    log.order.add([alert(b"a1")])
    log.order.add([alert(b"a2"), state(b"s")])
    log.order.end()  # the first append has failed
    log.order.confirmed(2)
    assert log.states == []


def test_of_several_states_that_wait_the_first_and_the_last_are_appended() -> None:
    log = Appended()
    for number in range(2 * STATES_WAITING_MAX):
        log.order.add([alert(b"a%d" % number), state(b"s%d" % number)])
    log.order.confirmed(1)
    assert log.states == [b"s0"], "the first is not replaced, or a busy log would never get one"
    log.order.confirmed(2 * STATES_WAITING_MAX)
    assert log.states == [b"s0", b"s%d" % (2 * STATES_WAITING_MAX - 1)]


def test_the_last_of_several_states_of_one_call_is_appended() -> None:
    log = Appended()
    log.order.add([state(b"s1"), state(b"s2")])
    assert log.states == [b"s2"]
