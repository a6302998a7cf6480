"""Claims of one endpoint: the winner depends on the claims alone, and a stronger proof always wins."""

from itertools import permutations

import pytest

from milepost.federation.claims import claim_for, kept_since, ranked
from milepost.model.endpoints import EndpointId
from milepost.model.site_records import NO_EPOCH, EdgeRef, EndpointClaim, Epoch
from milepost.vetting.access import ClientIdentity
from milepost.vetting.ownership import OtherUserPolicy

CAR = EndpointId("car")
ANONYMOUS, ADA, MALLORY = ClientIdentity(CAR), ClientIdentity(CAR, "ada"), ClientIdentity(CAR, "mallory")
CERTIFIED = ClientIdentity(CAR, None, "vehicle")


def claim(edge: str, epoch: int, identity: ClientIdentity, since: int = 0) -> EndpointClaim:
    return claim_for(CAR, EdgeRef("north", edge), Epoch(epoch), identity, Epoch(since))


@pytest.mark.parametrize(
    ("winner", "loser"),
    [
        (claim("b", 2, ANONYMOUS), claim("a", 1, ANONYMOUS)),
        (claim("b", 1, ANONYMOUS), claim("a", 1, ANONYMOUS)),
        (claim("a", 1, CERTIFIED), claim("b", 9, ANONYMOUS)),
        (claim("a", 1, CERTIFIED), claim("b", 9, ADA, 9)),
        (claim("a", 9, CERTIFIED), claim("b", 1, ADA, 1)),
        (claim("a", 1, ADA), claim("b", 9, ANONYMOUS)),
        (claim("a", 1, ADA, 1), claim("b", 9, MALLORY, 9)),
        (claim("a", 9, ADA, 1), claim("b", 5, MALLORY, 5)),
        (claim("a", 9, ADA, 9), claim("b", 1, MALLORY)),
        (claim("a", 9, ADA), claim("b", 1, MALLORY)),
    ],
)
def test_the_winner_of_two_claims_is_the_same_in_both_orders(winner: EndpointClaim, loser: EndpointClaim) -> None:
    assert ranked([winner, loser]) == ranked([loser, winner]) == [winner, loser]


def test_a_user_that_moves_does_not_lose_to_an_intruder_that_came_before_the_move() -> None:
    home, intruder, moved = claim("a", 1, ADA, 1), claim("b", 5, MALLORY, 5), claim("c", 9, ADA, 9)
    for claims in permutations([home, intruder, moved]):
        assert ranked(claims) == [moved, home, intruder]
    assert kept_since(ADA, Epoch(9), OtherUserPolicy.REFUSE, [home, intruder]) == 1


def test_only_the_sessions_of_users_are_kept_and_only_with_the_policy_refuse() -> None:
    assert kept_since(ADA, Epoch(9), OtherUserPolicy.REFUSE, []) == 9
    assert kept_since(ADA, Epoch(9), OtherUserPolicy.NEW, [claim("a", 1, ADA, 1)]) == NO_EPOCH
    assert kept_since(CERTIFIED, Epoch(9), OtherUserPolicy.REFUSE, []) == NO_EPOCH
    assert kept_since(ANONYMOUS, Epoch(9), OtherUserPolicy.REFUSE, []) == NO_EPOCH
