"""Claims across sites: who is told what about endpoints that appear elsewhere."""

from central_hub_in_memory import START, Sites, ref
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS
from milepost.model.sites import VEHICLE_INFO, Claim, ClaimNotice, EdgeRef, Epoch, PriorEdge, SiteRecord, inbox_of

CAR = EndpointId("car")


def inbox(sites: Sites, edge: str) -> list[SiteRecord]:
    return sites.values(ref(edge).site, inbox_of(ref(edge)))


def claim(edge: str, epoch: int, *, anew: int = 0) -> Claim:
    return Claim(CAR, ref(edge), Epoch(epoch), Epoch(anew))


def test_the_edge_with_the_lower_claim_is_told_of_the_higher_one_once() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.claims("north/1", "car", 5)
    sites.claims("south/1", "car", 7, anew=7)
    sites.settle()
    sites.claims("south/1", "car", 7, anew=7)
    sites.settle()
    assert inbox(sites, "north/1") == [ClaimNotice(claim("south/1", 7, anew=7))]
    assert inbox(sites, "south/1") == []


def test_an_edge_that_says_its_lower_claim_again_is_told_again() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.claims("north/2", "car", 4)
    sites.claims("north/1", "car", 5)
    sites.claims("south/1", "car", 7)
    sites.settle()
    sites.goes("north/1", "car")
    sites.claims("north/1", "car", 5)
    sites.settle()
    sites.claims("north/1", "car", 5)
    sites.settle()
    assert inbox(sites, "north/1") == [ClaimNotice(claim("south/1", 7))] * 3


def test_an_edge_whose_claim_comes_late_is_told_that_it_is_lower() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.claims("south/1", "car", 7)
    sites.settle()
    sites.claims("north/1", "car", 5)
    sites.settle()
    assert inbox(sites, "north/1") == [ClaimNotice(claim("south/1", 7))]


def test_a_newer_claim_is_told_again() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.claims("north/1", "car", 5)
    sites.claims("south/1", "car", 7)
    sites.settle()
    sites.claims("south/2", "car", 9)
    sites.settle()
    assert inbox(sites, "north/1") == [ClaimNotice(claim("south/1", 7)), ClaimNotice(claim("south/2", 9))]


def test_an_endpoint_that_moves_within_its_site_concerns_no_centre() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.claims("north/1", "car", 5)
    sites.claims("north/2", "car", 7)
    sites.settle()
    assert inbox(sites, "north/1") == inbox(sites, "north/2") == []


def test_who_is_still_lower_is_told_again_by_the_next_process_until_it_is_gone() -> None:
    sites = Sites("north", "south")
    sites.start_centre().kill()
    sites.claims("north/1", "car", 5)
    sites.claims("south/1", "car", 7)
    sites.start_centre().kill()
    assert len(inbox(sites, "north/1")) == 1
    sites.start_centre().kill()
    assert len(inbox(sites, "north/1")) == 2
    sites.goes("north/1", "car")
    sites.start_centre()
    assert len(inbox(sites, "north/1")) == 2


def test_who_asks_hears_where_the_endpoint_was_before() -> None:
    sites = Sites("north", "south", "east")
    sites.start_centre()
    sites.claims("north/1", "car", 5)
    sites.claims("east/1", "car", 6)
    sites.settle()
    sites.claims("south/1", "car", 7, asks=True)
    sites.settle()
    assert inbox(sites, "south/1") == [PriorEdge(CAR, Epoch(7), EdgeRef("east", "1"))]


def test_who_asks_for_an_endpoint_that_was_nowhere_hears_that() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.claims("north/1", "car", 5)
    sites.goes("north/1", "car")
    sites.claims("south/2", "car", 6)
    sites.settle()
    sites.claims("south/1", "car", 7, asks=True)
    sites.settle()
    assert inbox(sites, "south/1") == [PriorEdge(CAR, Epoch(7), None)]


def test_a_higher_claim_elsewhere_is_no_earlier_stay() -> None:
    sites = Sites("north", "south")
    sites.start_centre()
    sites.claims("north/1", "car", 9)
    sites.settle()
    sites.claims("south/1", "car", 7, asks=True)
    sites.settle()
    assert PriorEdge(CAR, Epoch(7), None) in inbox(sites, "south/1")
    assert ClaimNotice(claim("north/1", 9)) in inbox(sites, "south/1")


def test_a_question_that_nobody_answered_is_answered_later_if_it_is_young() -> None:
    sites = Sites("north", "south")
    sites.claims("south/1", "car", START + 1, asks=True)
    sites.claims("south/1", "old", START - 40 * SECOND_NS, asks=True)
    sites.claims("north/1", "car", START)
    sites.settle()
    sites.pass_s(20)
    sites.start_centre()
    assert inbox(sites, "south/1") == [PriorEdge(CAR, Epoch(START + 1), EdgeRef("north", "1"))]


def test_a_claim_for_another_site_is_a_lie() -> None:
    sites = Sites("north", "south")
    process = sites.start_centre()
    sites.append("north", VEHICLE_INFO, "car\nsouth/1", claim("south/1", 9))
    sites.append("north", VEHICLE_INFO, "nonsense", b"{}")
    sites.append("north", VEHICLE_INFO, "nonsense", None)
    sites.settle()
    assert len(process.centre.registry) == 0
    assert sum(process.centre.counts.dropped.values()) == 2
