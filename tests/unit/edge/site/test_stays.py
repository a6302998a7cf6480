"""What is kept of a stay is all that a later process needs; and who lacks what."""

from milepost.edge.site.stays import (
    EVERY,
    FAR,
    OFFSET,
    Leaving,
    Part,
    Stay,
    Young,
    leaving_from_bytes,
    leaving_to_bytes,
    stay_from_bytes,
    stay_to_bytes,
)
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.queries import OnTopic
from milepost.model.sites import EdgeRef, Epoch, Held
from milepost.model.subscriptions import Subscription

CAR = EndpointId("car")


def part(offset: int | None = 5, floor: int = 0) -> Part:
    since = {"t/#": {EVERY: 50, "north/b": 10, OFFSET: 3}, "u": {EVERY: 0, OFFSET: FAR}}
    return Part("north", ["t/#", "u"], since, {"north/a": 100}, offset, Instant(7), floor, [("north/a", 101)], {"south/a": 30})


def test_a_stay_comes_back_from_its_bytes() -> None:
    stay = Stay(CAR, Epoch(9), Epoch(8), Epoch(7), is_here=True, is_whole=False)
    stay.young = Young(4, [part(), part(None, 60)], {EVERY}, {"south": 9}, ['{"type":"said"}'])
    stay.had, stay.offsets, stay.ended = {"south/a": 12}, {"south": 44}, ["gone"]
    stay.since = {"t/#": {EVERY: 1, OFFSET: 2}}
    stay.opened_at, stay.opened_after, stay.opened_above = 3, 4, 5
    assert stay_from_bytes(CAR, stay_to_bytes(stay)) == stay


def test_what_leaves_comes_back_from_its_bytes() -> None:
    held = (Held("t/#", Subscription(CAR, OnTopic("t/#"), qos=1), is_not_own=True),)
    leaving = Leaving(CAR, Epoch(9), held, [(EdgeRef("north", "a"), Epoch(3))], 2)
    assert leaving_from_bytes(CAR, leaving_to_bytes(leaving)) == leaving


def test_a_part_lacks_what_is_above_its_marks_and_not_before_its_place_in_the_log() -> None:
    assert part().lacks("north/a", 101)
    assert not part().lacks("north/a", 100)
    assert not part().lacks("north/a", 101, offset=4)
    assert part().lacks("north/a", 101, offset=5)


def test_of_edges_of_which_nothing_is_known_only_what_is_above_the_floor_is_lacking() -> None:
    assert part(None, 60).lacks("north/x", 61)
    assert not part(None, 60).lacks("north/x", 60)


def test_a_part_is_sure_of_its_own_site_and_of_what_it_was_given_here() -> None:
    assert part().is_sure_of("north/x", 1)
    assert part().is_sure_of("south/a", 30)
    assert not part().is_sure_of("south/a", 29)
    assert not part().is_sure_of("south/x", 99)


def test_a_subscription_asked_before_what_was_said_later_or_was_read_later() -> None:
    assert part().asked_before("t/#", "north/b", 11, None)
    assert not part().asked_before("t/#", "north/b", 10, None)
    assert not part().asked_before("t/#", "north/x", 50, None)
    assert part().asked_before("t/#", "north/x", 50, 3)
    assert not part().asked_before("t/#", "north/x", 50, 2)


def test_records_of_a_site_wait_while_something_is_to_be_read_again_or_the_centre_has_more() -> None:
    young = Young(0, [], {"south"}, {"west": 9})
    assert [site for site in ("north", "south", "west") if young.is_served(site)] == ["north"]
    young.late = {EVERY}
    assert not young.is_served("north")
