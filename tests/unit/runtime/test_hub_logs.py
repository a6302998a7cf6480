"""What the centre appends: in order, whatever a log does meanwhile, and what is dealt with by that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from milepost.eventlog.log import Done, Entry, Log, LogRefused, LogUnavailable
from milepost.federation.central_hub import HEARTBEAT_KEY
from milepost.federation.hub_actions import HubAppend
from milepost.model.instants import Instant
from milepost.model.sites import SUBSCRIPTION_INFO
from milepost.runtime.hub_logs import BATCH_BYTES, WAITING_MAX, Outgoing


@dataclass
class MoodyLog:
    """Takes, refuses or is away as a test says; answers when a test says."""

    kept: list[str] = field(default_factory=list)
    open: list[tuple[Sequence[Entry], Done | None]] = field(default_factory=list)
    is_away: bool = False

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self.is_away:
            raise LogUnavailable("away")
        if any(entry.key == "bad" for entry in entries):
            raise LogRefused("too large")
        self.open.append((entries, done))

    def answer(self, fault: Exception | None = None) -> None:
        entries, done = self.open.pop(0)
        if fault is None:
            self.kept += [entry.key for entry in entries]
        assert done is not None
        done(fault)


class Bench:
    """Two logs, and calls that are made at once."""

    def __init__(self) -> None:
        self.north, self.south = MoodyLog(), MoodyLog()
        self.told: list[str] = []
        logs = {"north": cast("Log", self.north), "south": cast("Log", self.south)}
        self.outgoing = Outgoing(logs, _at_once, lambda event, site, reason: self.told.append(event))

    def put(self, site: str, *keys: str, stream: str = "") -> None:
        self.outgoing.put([HubAppend(site, "t", key, b"x", stream) for key in keys])
        self.outgoing.push()


def _at_once(call: Callable[[Instant], None]) -> None:
    call(Instant(0))


def test_one_batch_at_a_time_is_with_a_log_and_the_next_has_all_that_came_meanwhile() -> None:
    bench = Bench()
    bench.put("south", "a")
    bench.put("south", "b", "c")
    assert len(bench.south.open) == 1
    bench.south.answer()
    assert [entry.key for entry in bench.south.open[0][0]] == ["b", "c"]
    bench.south.answer()
    assert bench.south.kept == ["a", "b", "c"]
    assert bench.outgoing.waiting == 0


def test_what_failed_goes_again_before_what_came_after() -> None:
    bench = Bench()
    bench.put("south", "a")
    bench.put("south", "b")
    bench.south.answer(LogUnavailable("gone"))
    assert bench.south.open == []
    bench.outgoing.try_again()
    bench.south.answer()
    assert bench.south.kept == ["a", "b"]


def test_a_log_that_is_away_holds_up_only_what_is_for_it() -> None:
    bench = Bench()
    bench.south.is_away = True
    bench.put("south", "a")
    bench.put("north", "b")
    bench.north.answer()
    assert bench.north.kept == ["b"]
    assert bench.told == ["log takes nothing"]
    bench.south.is_away = False
    bench.outgoing.push()
    assert bench.south.open == []
    bench.outgoing.try_again()
    bench.south.answer()
    assert bench.south.kept == ["a"]


def test_what_a_log_will_never_take_is_left_out_alone() -> None:
    bench = Bench()
    bench.put("south", "first")
    bench.put("south", "a", "bad", "b", "c")
    while bench.south.open:
        bench.south.answer()
        bench.outgoing.push()
    assert bench.south.kept == ["first", "a", "b", "c"]
    assert bench.outgoing.refused == 1
    assert "record refused by the log" in bench.told


def test_a_refusal_that_is_told_later_costs_that_record_alone() -> None:
    bench = Bench()
    bench.put("south", "first")
    bench.put("south", "a", "b")
    bench.south.answer()
    bench.south.answer(LogRefused("not allowed"))
    bench.south.answer()
    bench.south.answer(LogRefused("not allowed"))
    assert bench.south.kept == ["first", "a"]
    assert bench.outgoing.refused == 1
    assert bench.outgoing.waiting == 0


def test_a_stream_is_dealt_with_up_to_where_all_its_records_are_safe() -> None:
    bench = Bench()
    bench.put("south", "a", stream="north")
    bench.outgoing.mark("north", 5)
    bench.put("south", "b", stream="north")
    bench.outgoing.mark("north", 9)
    assert bench.outgoing.settled("north") is None
    bench.south.answer()
    assert bench.outgoing.settled("north") == 5
    assert bench.outgoing.settled("north") is None
    bench.south.answer()
    assert bench.outgoing.settled("north") == 9
    bench.outgoing.mark("north", 9)
    assert bench.outgoing.settled("north") is None


def test_a_stream_without_anything_to_append_is_dealt_with_at_once() -> None:
    bench = Bench()
    bench.put("south", "of nobody's stream")
    bench.outgoing.mark("north", 5)
    assert bench.outgoing.settled("north") == 5


def test_what_somebody_else_deals_with_is_not_told() -> None:
    bench = Bench()
    bench.outgoing.mark("north", 5)
    bench.outgoing.forget("north")
    assert bench.outgoing.settled("north") is None


def test_only_one_sign_of_life_waits_for_a_log() -> None:
    bench = Bench()
    bench.south.is_away = True
    beat = HubAppend("south", SUBSCRIPTION_INFO, HEARTBEAT_KEY, b"{}")
    bench.outgoing.put([beat, beat])
    bench.outgoing.put([beat])
    assert bench.outgoing.waiting == 1
    bench.south.is_away = False
    bench.outgoing.push()
    bench.south.answer()
    bench.outgoing.put([beat])
    assert bench.outgoing.waiting == 1


def test_batches_are_limited_and_too_much_is_told() -> None:
    bench = Bench()
    large = HubAppend("south", "t", "k", bytes(BATCH_BYTES // 2 + 1))
    bench.outgoing.put([large, large])
    bench.outgoing.push()
    assert len(bench.south.open[0][0]) == 1
    assert not bench.outgoing.is_full
    bench.outgoing.put([HubAppend("north", "t", "k", b"")] * WAITING_MAX)
    assert bench.outgoing.is_full


def test_whoever_runs_it_can_tell_whether_a_log_was_given_something() -> None:
    bench = Bench()
    bench.outgoing.push()
    assert bench.outgoing.handed_over == 0
    bench.put("south", "a", "b")
    assert bench.outgoing.handed_over == 1
    bench.put("south", "c")  # it waits
    assert bench.outgoing.handed_over == 1
    bench.south.answer()
    assert bench.outgoing.handed_over == 2
