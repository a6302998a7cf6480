"""Residencies: the documented state machine, their storage, and the records that cursors show as missing."""

import re
from pathlib import Path

import pytest

from milepost.federation.handover import collect_missed
from milepost.federation.residency import (
    EVERY,
    OFFSET,
    OFFSET_MAX,
    TRANSITIONS,
    CatchingUp,
    OutgoingHandover,
    Part,
    Residency,
    ResidencyEvent,
    ResidencyState,
    advance,
    outgoing_from_bytes,
    outgoing_to_bytes,
    residency_from_bytes,
    residency_to_bytes,
)
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.queries import OnTopic
from milepost.model.site_records import DIRECT, HUB, MAIN, EdgeRef, Epoch, HeldSubscription, MissedMessages, Position
from milepost.model.subscriptions import Subscription

CAR = EndpointId("car")


def at(origin: str, number: int) -> Position:
    return Position(origin, MAIN, number)


def part(offset: int | None = 5, floor: int = 0) -> Part:
    since = {"t/#": {EVERY: 50, "north/b": 10, OFFSET: 3}, "u": {EVERY: 0, OFFSET: OFFSET_MAX}}
    return Part("north", ["t/#", "u"], since, {"north/a": 100}, offset, Instant(7), floor, [("north/a", 101)], {"south/a": 30})


def documented_transitions() -> dict[tuple[str, str], str]:
    """Read the table of docs/reference/roaming.md: state, event, next state, action."""
    text = (Path(__file__).parents[3] / "docs/reference/roaming.md").read_text()
    section = text.partition("## The states of a residency\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    return {(state, event): re.sub(r"\*", "", after) for state, event, after, _ in rows[2:]}


def test_the_documented_state_table_equals_the_one_in_the_code() -> None:
    assert documented_transitions() == {(state.value, event.value): after.value for (state, event), after in TRANSITIONS.items()}


def test_every_state_but_the_first_is_reached_and_every_state_but_the_last_is_left() -> None:
    assert set(TRANSITIONS.values()) == set(ResidencyState) - {ResidencyState.ABSENT}
    assert {state for state, _ in TRANSITIONS} == set(ResidencyState) - {ResidencyState.ENDED}
    assert {event for _, event in TRANSITIONS} == set(ResidencyEvent)


def test_an_event_without_a_transition_raises() -> None:
    residency = Residency(CAR, Epoch(1))
    advance(residency, ResidencyEvent.ARRIVES)
    with pytest.raises(AssertionError, match="car is awaited: the session ends"):
        advance(residency, ResidencyEvent.SESSION_ENDED)
    assert residency.state is ResidencyState.AWAITED


def test_a_live_residency_has_no_catch_up_data() -> None:
    residency = Residency(CAR, Epoch(1), catching_up=CatchingUp(0))
    with pytest.raises(AssertionError, match="change together"):
        advance(residency, ResidencyEvent.OPENED)


def test_a_residency_survives_encoding_and_decoding() -> None:
    residency = Residency(CAR, Epoch(9), Epoch(8), Epoch(7), ResidencyState.CATCHING_UP, is_complete=False)
    residency.catching_up = CatchingUp(
        4, [part(), part(None, 60)], {EVERY}, {"south": ["north/a 9"]}, ['{"type":"forwarded"}'], "south/a", 3
    )
    residency.received_elsewhere, residency.offsets, residency.ended_subscriptions = {"south/a": 12}, {"south": 44}, ["gone"]
    residency.since = {"t/#": {EVERY: 1, OFFSET: 2}}
    residency.opened_offset, residency.opened_own_number, residency.opened_highest_number = 3, 4, 5
    assert residency_from_bytes(CAR, residency_to_bytes(residency)) == residency


def test_an_outgoing_handover_survives_encoding_and_decoding() -> None:
    held = (HeldSubscription("t/#", Subscription(CAR, OnTopic("t/#"), qos=1), no_local=True),)
    outgoing = OutgoingHandover(CAR, Epoch(9), held, [(EdgeRef("north", "a"), Epoch(3))], 2)
    assert outgoing_from_bytes(CAR, outgoing_to_bytes(outgoing)) == outgoing


def test_a_part_lacks_records_above_its_cursors_and_not_before_its_offset() -> None:
    assert part().lacks(at("north/a", 101))
    assert not part().lacks(at("north/a", 100))
    assert not part().lacks(at("north/a", 101), offset=4)
    assert part().lacks(at("north/a", 101), offset=5)


def test_of_unknown_edges_only_records_above_the_floor_are_lacking() -> None:
    assert part(None, 60).lacks(at("north/x", 61))
    assert not part(None, 60).lacks(at("north/x", 60))


def test_a_part_is_conclusive_for_its_own_site_and_for_streams_served_here() -> None:
    assert part().is_conclusive_for(at("north/x", 1))
    assert part().is_conclusive_for(at("south/a", 30))
    assert not part().is_conclusive_for(at("south/a", 29))
    assert not part().is_conclusive_for(at("south/x", 99))


def test_a_subscription_began_before_records_with_a_higher_number_or_offset() -> None:
    assert part().began_before("t/#", at("north/b", 11), None)
    assert not part().began_before("t/#", at("north/b", 10), None)
    assert not part().began_before("t/#", at("north/x", 50), None)
    assert part().began_before("t/#", at("north/x", 50), 3)
    assert not part().began_before("t/#", at("north/x", 50), 2)


def test_records_of_a_site_wait_while_it_is_reread_or_the_hub_has_more() -> None:
    catching_up = CatchingUp(0, [], {"south"}, {"west": ["north/a 9"]})
    assert [site for site in ("north", "south", "west") if catching_up.is_served(site)] == ["north"]
    catching_up.sites_to_reread = {EVERY}
    assert not catching_up.is_served("north")


def test_each_stream_of_an_origin_has_a_cursor_of_its_own() -> None:
    cursors = {"north/a": 5, "north/a direct": 9}
    assert Position("north/a", MAIN, 6).is_after(cursors)
    assert not Position("north/a", DIRECT, 6).is_after(cursors)
    assert Position("north/b", MAIN, 6).is_after(cursors)
    assert not Position("north/b", MAIN, 6).is_after(cursors, 6)


def missed(site: str, handover: str, *, is_last: bool = True) -> MissedMessages:
    return MissedMessages(CAR, Epoch(7), EdgeRef(site, HUB), EdgeRef("south", "a"), 1, handover, is_last=is_last)


def test_a_site_is_awaited_until_every_handover_to_one_claim_is_answered() -> None:
    catching_up = CatchingUp(0)
    for handover in ("north/a 1", "north/a 2", "north/a 1"):
        catching_up.await_missed("north", handover)
    assert not collect_missed(
        catching_up, [missed("north", "north/a 1"), missed("north", "north/a 3"), missed("east", "north/a 2")]
    )
    assert not catching_up.is_served("north")
    assert not collect_missed(catching_up, [missed("north", "north/a 2", is_last=False)])
    assert not catching_up.is_served("north")
    assert collect_missed(catching_up, [missed("north", "north/a 2")])
    assert catching_up.awaits == {}
    assert catching_up.sites_to_reread == {"north"}
