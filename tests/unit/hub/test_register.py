"""The register: who is where."""

from milepost.hub.register import Register
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.sites import Claim, EdgeRef, Epoch, Places, Whereabouts

CAR = EndpointId("car")
NORTH, NORTH_2, SOUTH = EdgeRef("north", "1"), EdgeRef("north", "2"), EdgeRef("south", "1")


def claim(edge: EdgeRef, epoch: int, endpoint: EndpointId = CAR) -> Claim:
    return Claim(endpoint, edge, Epoch(epoch))


def test_an_endpoint_is_where_it_was_claimed_with_the_highest_epoch() -> None:
    register = Register()
    for one in (claim(NORTH, 5), claim(SOUTH, 7), claim(NORTH_2, 6)):
        register.put(one)
    assert register.latest(CAR) == claim(SOUTH, 7)
    assert register.stands(CAR) == [claim(SOUTH, 7), claim(NORTH_2, 6)]
    assert register.sites_of(CAR) == {"north", "south"}


def test_an_endpoint_at_two_edges_of_one_site_is_not_split() -> None:
    register = Register()
    register.put(claim(NORTH, 5))
    register.put(claim(NORTH_2, 6))
    assert list(register.split) == []
    register.put(claim(SOUTH, 4))
    assert list(register.split) == [CAR]


def test_of_one_edge_the_highest_claim_counts_whichever_is_read_last() -> None:
    register = Register()
    for epoch in (5, 7, 6):
        register.put(claim(NORTH, epoch))
    assert register.stands(CAR) == [claim(NORTH, 7)]


def test_an_endpoint_comes_back_to_an_edge_that_has_taken_its_claim_back() -> None:
    register = Register()
    register.put(claim(NORTH, 7))
    register.clear(CAR, NORTH)
    assert register.latest(CAR) is None
    register.put(claim(NORTH, 8))
    assert register.latest(CAR) == claim(NORTH, 8)


def test_the_last_stay_that_ends_removes_the_endpoint() -> None:
    register = Register()
    register.put(claim(NORTH, 5))
    register.put(claim(SOUTH, 7))
    register.clear(CAR, NORTH)
    assert list(register.split) == []
    assert register.stands(CAR) == [claim(SOUTH, 7)]
    register.clear(CAR, SOUTH)
    assert len(register) == 0
    assert register.stands(CAR) == []


def test_claims_beyond_the_limit_are_not_taken_and_known_endpoints_still_move() -> None:
    register = Register(endpoints_max=1)
    assert register.put(claim(NORTH, 5))
    assert not register.put(claim(NORTH, 5, EndpointId("bus")))
    assert register.put(claim(SOUTH, 6))
    assert len(register) == 1


def test_the_place_seen_last_counts_whatever_is_read_last() -> None:
    register = Register()
    register.put(claim(NORTH, 5))
    newer = Whereabouts(CAR, Place(51.0, 7.0), None, None, Instant(20))
    older = Whereabouts(CAR, Place(52.0, 8.0), None, None, Instant(10))
    register.see(Places(NORTH, (newer,)))
    register.see(Places(NORTH, (older, Whereabouts(EndpointId("nobody"), Place(0.0, 0.0), None, None, Instant(30)))))
    assert register.seen(CAR) == newer
    assert register.seen(EndpointId("nobody")) is None
