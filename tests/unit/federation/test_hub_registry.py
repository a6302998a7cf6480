"""The registry: the claims of endpoints."""

from milepost.federation.hub_registry import HubRegistry
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.site_records import EdgeRef, EndpointClaim, EndpointPosition, EndpointPositions, Epoch

CAR = EndpointId("car")
NORTH, NORTH_2, SOUTH = EdgeRef("north", "1"), EdgeRef("north", "2"), EdgeRef("south", "1")


def claim(edge: EdgeRef, epoch: int, endpoint: EndpointId = CAR) -> EndpointClaim:
    return EndpointClaim(endpoint, edge, Epoch(epoch))


def test_an_endpoint_is_at_the_edge_of_its_highest_claim() -> None:
    registry = HubRegistry()
    for one in (claim(NORTH, 5), claim(SOUTH, 7), claim(NORTH_2, 6)):
        registry.put(one)
    assert registry.winner(CAR) == claim(SOUTH, 7)
    assert registry.claims_by_site(CAR) == [claim(SOUTH, 7), claim(NORTH_2, 6)]
    assert registry.sites_of(CAR) == {"north", "south"}


def test_an_endpoint_at_two_edges_of_one_site_is_not_split() -> None:
    registry = HubRegistry()
    registry.put(claim(NORTH, 5))
    registry.put(claim(NORTH_2, 6))
    assert list(registry.split) == []
    registry.put(claim(SOUTH, 4))
    assert list(registry.split) == [CAR]


def test_of_one_edge_the_highest_claim_counts_whichever_is_read_last() -> None:
    registry = HubRegistry()
    for epoch in (5, 7, 6):
        registry.put(claim(NORTH, epoch))
    assert registry.claims_by_site(CAR) == [claim(NORTH, 7)]


def test_an_endpoint_can_return_to_an_edge_that_has_withdrawn_its_claim() -> None:
    registry = HubRegistry()
    registry.put(claim(NORTH, 7))
    registry.remove(CAR, NORTH)
    assert registry.winner(CAR) is None
    registry.put(claim(NORTH, 8))
    assert registry.winner(CAR) == claim(NORTH, 8)


def test_withdrawing_the_last_claim_removes_the_endpoint() -> None:
    registry = HubRegistry()
    registry.put(claim(NORTH, 5))
    registry.put(claim(SOUTH, 7))
    registry.remove(CAR, NORTH)
    assert list(registry.split) == []
    assert registry.claims_by_site(CAR) == [claim(SOUTH, 7)]
    registry.remove(CAR, SOUTH)
    assert len(registry) == 0
    assert registry.claims_by_site(CAR) == []


def test_claims_beyond_the_limit_are_rejected_and_known_endpoints_still_move() -> None:
    registry = HubRegistry(endpoints_max=1)
    assert registry.put(claim(NORTH, 5))
    assert not registry.put(claim(NORTH, 5, EndpointId("bus")))
    assert registry.put(claim(SOUTH, 6))
    assert len(registry) == 1


def test_the_position_with_the_latest_time_wins_in_any_order() -> None:
    registry = HubRegistry()
    registry.put(claim(NORTH, 5))
    newer = EndpointPosition(CAR, Place(51.0, 7.0), None, None, Instant(20))
    older = EndpointPosition(CAR, Place(52.0, 8.0), None, None, Instant(10))
    registry.note_positions(EndpointPositions(NORTH, (newer,)))
    registry.note_positions(
        EndpointPositions(NORTH, (older, EndpointPosition(EndpointId("nobody"), Place(0.0, 0.0), None, None, Instant(30))))
    )
    assert registry.position_of(CAR) == newer
    assert registry.position_of(EndpointId("nobody")) is None
