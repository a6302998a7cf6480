"""Appends of the central hub: in order for each log, whatever the log does, and the offsets that may be committed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from milepost.eventlog.log import Done, Entry, Log, LogRefused, LogUnavailable
from milepost.federation.central_hub import HEARTBEAT_KEY
from milepost.federation.hub_actions import HubAppend
from milepost.model.instants import Instant
from milepost.model.site_records import SUBSCRIPTION_INFO
from milepost.runtime.hub_logs import BATCH_BYTES, WAITING_MAX, AppendQueues


@dataclass
class MoodyLog:
    """A log that accepts, refuses or is unavailable, and confirms when the test says so."""

    appended: list[str] = field(default_factory=list)
    open: list[tuple[Sequence[Entry], Done | None]] = field(default_factory=list)
    is_unavailable: bool = False

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self.is_unavailable:
            raise LogUnavailable("away")
        if any(entry.key == "bad" for entry in entries):
            raise LogRefused("too large")
        self.open.append((entries, done))

    def answer(self, fault: Exception | None = None) -> None:
        entries, done = self.open.pop(0)
        if fault is None:
            self.appended += [entry.key for entry in entries]
        assert done is not None
        done(fault)


class Fixture:
    """Two scripted logs, with callbacks that run at once."""

    def __init__(self) -> None:
        self.north, self.south = MoodyLog(), MoodyLog()
        self.events: list[str] = []
        logs = {"north": cast("Log", self.north), "south": cast("Log", self.south)}
        self.outgoing = AppendQueues(logs, _at_once, lambda event, site, reason: self.events.append(event))

    def put(self, site: str, *keys: str, stream: str = "") -> None:
        self.outgoing.put([HubAppend(site, "t", key, b"x", stream) for key in keys])
        self.outgoing.push()


def _at_once(call: Callable[[Instant], None]) -> None:
    call(Instant(0))


def test_a_log_has_one_batch_in_flight_and_the_next_has_all_records_since() -> None:
    fixture = Fixture()
    fixture.put("south", "a")
    fixture.put("south", "b", "c")
    assert len(fixture.south.open) == 1
    fixture.south.answer()
    assert [entry.key for entry in fixture.south.open[0][0]] == ["b", "c"]
    fixture.south.answer()
    assert fixture.south.appended == ["a", "b", "c"]
    assert fixture.outgoing.waiting == 0


def test_a_failed_batch_is_retried_before_later_records() -> None:
    fixture = Fixture()
    fixture.put("south", "a")
    fixture.put("south", "b")
    fixture.south.answer(LogUnavailable("gone"))
    assert fixture.south.open == []
    fixture.outgoing.try_again()
    fixture.south.answer()
    assert fixture.south.appended == ["a", "b"]


def test_an_unavailable_log_delays_only_its_own_records() -> None:
    fixture = Fixture()
    fixture.south.is_unavailable = True
    fixture.put("south", "a")
    fixture.put("north", "b")
    fixture.north.answer()
    assert fixture.north.appended == ["b"]
    assert fixture.events == ["log unavailable"]
    fixture.south.is_unavailable = False
    fixture.outgoing.push()
    assert fixture.south.open == []
    fixture.outgoing.try_again()
    fixture.south.answer()
    assert fixture.south.appended == ["a"]


def test_only_the_record_that_a_log_refuses_is_left_out() -> None:
    fixture = Fixture()
    fixture.put("south", "first")
    fixture.put("south", "a", "bad", "b", "c")
    while fixture.south.open:
        fixture.south.answer()
        fixture.outgoing.push()
    assert fixture.south.appended == ["first", "a", "b", "c"]
    assert fixture.outgoing.refused == 1
    assert "record refused by the log" in fixture.events


def test_a_refusal_reported_later_drops_only_that_record() -> None:
    fixture = Fixture()
    fixture.put("south", "first")
    fixture.put("south", "a", "b")
    fixture.south.answer()
    fixture.south.answer(LogRefused("not allowed"))
    fixture.south.answer()
    fixture.south.answer(LogRefused("not allowed"))
    assert fixture.south.appended == ["first", "a"]
    assert fixture.outgoing.refused == 1
    assert fixture.outgoing.waiting == 0


def test_a_stream_is_committable_up_to_its_confirmed_records() -> None:
    fixture = Fixture()
    fixture.put("south", "a", stream="north")
    fixture.outgoing.note_position("north", 5)
    fixture.put("south", "b", stream="north")
    fixture.outgoing.note_position("north", 9)
    assert fixture.outgoing.take_committable("north") is None
    fixture.south.answer()
    assert fixture.outgoing.take_committable("north") == 5
    assert fixture.outgoing.take_committable("north") is None
    fixture.south.answer()
    assert fixture.outgoing.take_committable("north") == 9
    fixture.outgoing.note_position("north", 9)
    assert fixture.outgoing.take_committable("north") is None


def test_a_stream_without_appends_is_committable_at_once() -> None:
    fixture = Fixture()
    fixture.put("south", "of no stream")
    fixture.outgoing.note_position("north", 5)
    assert fixture.outgoing.take_committable("north") == 5


def test_a_stream_of_another_owner_is_not_committed() -> None:
    fixture = Fixture()
    fixture.outgoing.note_position("north", 5)
    fixture.outgoing.forget("north")
    assert fixture.outgoing.take_committable("north") is None


def test_at_most_one_heartbeat_waits_for_a_log() -> None:
    fixture = Fixture()
    fixture.south.is_unavailable = True
    heartbeat = HubAppend("south", SUBSCRIPTION_INFO, HEARTBEAT_KEY, b"{}")
    fixture.outgoing.put([heartbeat, heartbeat])
    fixture.outgoing.put([heartbeat])
    assert fixture.outgoing.waiting == 1
    fixture.south.is_unavailable = False
    fixture.outgoing.push()
    fixture.south.answer()
    fixture.outgoing.put([heartbeat])
    assert fixture.outgoing.waiting == 1


def test_batches_are_limited_and_a_full_queue_is_reported() -> None:
    fixture = Fixture()
    large = HubAppend("south", "t", "k", bytes(BATCH_BYTES // 2 + 1))
    fixture.outgoing.put([large, large])
    fixture.outgoing.push()
    assert len(fixture.south.open[0][0]) == 1
    assert not fixture.outgoing.is_full
    fixture.outgoing.put([HubAppend("north", "t", "k", b"")] * WAITING_MAX)
    assert fixture.outgoing.is_full


def test_the_number_of_batches_handed_to_logs_is_counted() -> None:
    fixture = Fixture()
    fixture.outgoing.push()
    assert fixture.outgoing.handed_over == 0
    fixture.put("south", "a", "b")
    assert fixture.outgoing.handed_over == 1
    fixture.put("south", "c")  # it waits
    assert fixture.outgoing.handed_over == 1
    fixture.south.answer()
    assert fixture.outgoing.handed_over == 2
