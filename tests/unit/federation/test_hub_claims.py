"""Claims across sites: notices and answers to edges about endpoints that connect elsewhere."""

from central_hub_in_memory import START, Sites, ref
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS
from milepost.model.site_records import (
    VEHICLE_INFO,
    ClaimNotice,
    EdgeRef,
    EndpointClaim,
    Epoch,
    PriorEdge,
    SiteRecord,
    inbox_topic,
)

CAR = EndpointId("car")


def inbox(sites: Sites, edge: str) -> list[SiteRecord]:
    return sites.values(ref(edge).site, inbox_topic(ref(edge)))


def claim(edge: str, epoch: int, *, clean_start_epoch: int = 0) -> EndpointClaim:
    return EndpointClaim(CAR, ref(edge), Epoch(epoch), Epoch(clean_start_epoch))


def test_the_edge_with_the_lower_claim_gets_one_notice_of_the_higher_one() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.claim("north/1", "car", 5)
    sites.claim("south/1", "car", 7, clean_start_epoch=7)
    sites.run_until_idle()
    sites.claim("south/1", "car", 7, clean_start_epoch=7)
    sites.run_until_idle()
    assert inbox(sites, "north/1") == [ClaimNotice(claim("south/1", 7, clean_start_epoch=7))]
    assert inbox(sites, "south/1") == []


def test_an_edge_that_repeats_its_lower_claim_gets_another_notice() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.claim("north/2", "car", 4)
    sites.claim("north/1", "car", 5)
    sites.claim("south/1", "car", 7)
    sites.run_until_idle()
    sites.withdraw_claim("north/1", "car")
    sites.claim("north/1", "car", 5)
    sites.run_until_idle()
    sites.claim("north/1", "car", 5)
    sites.run_until_idle()
    assert inbox(sites, "north/1") == [ClaimNotice(claim("south/1", 7))] * 3


def test_an_edge_whose_lower_claim_is_read_late_gets_a_notice() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.claim("south/1", "car", 7)
    sites.run_until_idle()
    sites.claim("north/1", "car", 5)
    sites.run_until_idle()
    assert inbox(sites, "north/1") == [ClaimNotice(claim("south/1", 7))]


def test_a_notice_to_another_user_says_since_when_the_winner_has_the_endpoint_at_any_edge() -> None:
    """The user moves from north to west; mallory was admitted in the south meanwhile, before the claim in the west."""
    sites = Sites("north", "south", "west")
    sites.start_hub()
    sites.claim("north/1", "car", 5, proof=1, owner="user ada", kept_since=Epoch(5))
    sites.claim("west/1", "car", 9, proof=1, owner="user ada", kept_since=Epoch(9))
    sites.claim("south/1", "car", 7, proof=1, owner="user mallory", kept_since=Epoch(7))
    sites.run_until_idle()
    notices = inbox(sites, "south/1")
    winner = EndpointClaim(CAR, ref("west/1"), Epoch(9), proof=1, owner="user ada", kept_since=Epoch(5))
    assert notices
    assert notices[-1] == ClaimNotice(winner)


def test_a_newer_claim_causes_another_notice() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.claim("north/1", "car", 5)
    sites.claim("south/1", "car", 7)
    sites.run_until_idle()
    sites.claim("south/2", "car", 9)
    sites.run_until_idle()
    assert inbox(sites, "north/1") == [ClaimNotice(claim("south/1", 7)), ClaimNotice(claim("south/2", 9))]


def test_a_move_within_a_site_causes_no_notice() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.claim("north/1", "car", 5)
    sites.claim("north/2", "car", 7)
    sites.run_until_idle()
    assert inbox(sites, "north/1") == inbox(sites, "north/2") == []


def test_the_next_hub_process_repeats_the_notice_until_the_lower_claim_is_withdrawn() -> None:
    sites = Sites("north", "south")
    sites.start_hub().kill()
    sites.claim("north/1", "car", 5)
    sites.claim("south/1", "car", 7)
    sites.start_hub().kill()
    assert len(inbox(sites, "north/1")) == 1
    sites.start_hub().kill()
    assert len(inbox(sites, "north/1")) == 2
    sites.withdraw_claim("north/1", "car")
    sites.start_hub()
    assert len(inbox(sites, "north/1")) == 2


def test_an_edge_that_asks_gets_the_previous_edge_of_the_endpoint() -> None:
    sites = Sites("north", "south", "east")
    sites.start_hub()
    sites.claim("north/1", "car", 5)
    sites.claim("east/1", "car", 6)
    sites.run_until_idle()
    sites.claim("south/1", "car", 7, asks_prior_edge=True)
    sites.run_until_idle()
    assert inbox(sites, "south/1") == [PriorEdge(CAR, Epoch(7), EdgeRef("east", "1"))]


def test_an_edge_that_asks_about_an_unknown_endpoint_gets_that_answer() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.claim("north/1", "car", 5)
    sites.withdraw_claim("north/1", "car")
    sites.claim("south/2", "car", 6)
    sites.run_until_idle()
    sites.claim("south/1", "car", 7, asks_prior_edge=True)
    sites.run_until_idle()
    assert inbox(sites, "south/1") == [PriorEdge(CAR, Epoch(7), None)]


def test_an_edge_with_a_higher_claim_is_not_the_previous_edge() -> None:
    sites = Sites("north", "south")
    sites.start_hub()
    sites.claim("north/1", "car", 9)
    sites.run_until_idle()
    sites.claim("south/1", "car", 7, asks_prior_edge=True)
    sites.run_until_idle()
    assert PriorEdge(CAR, Epoch(7), None) in inbox(sites, "south/1")
    assert ClaimNotice(claim("north/1", 9)) in inbox(sites, "south/1")


def test_an_unanswered_question_is_answered_later_if_it_is_recent() -> None:
    sites = Sites("north", "south")
    sites.claim("south/1", "car", START + 1, asks_prior_edge=True)
    sites.claim("south/1", "old", START - 40 * SECOND_NS, asks_prior_edge=True)
    sites.claim("north/1", "car", START)
    sites.run_until_idle()
    sites.pass_s(20)
    sites.start_hub()
    assert inbox(sites, "south/1") == [PriorEdge(CAR, Epoch(START + 1), EdgeRef("north", "1"))]


def test_a_claim_for_another_site_is_rejected() -> None:
    sites = Sites("north", "south")
    process = sites.start_hub()
    sites.append("north", VEHICLE_INFO, "car\nsouth/1", claim("south/1", 9))
    sites.append("north", VEHICLE_INFO, "nonsense", b"{}")
    sites.append("north", VEHICLE_INFO, "nonsense", None)
    sites.run_until_idle()
    assert len(process.hub.registry) == 0
    assert sum(process.hub.counts.dropped.values()) == 2
