"""Endpoints that move between edges and sites, seed by seed: nothing is lost, nothing comes twice, nothing is left over.

`PYTHONPATH=tests python -m simulation.roaming FIRST COUNT [SITES] [CENTRES]` runs as many more as one likes.
"""

import pytest

from effort import seeds
from milepost.model.instants import Instant
from simulation.roaming.ledger import Account, Ledger, Message, Receipt
from simulation.roaming.story import Story

IN_A_SITE = range(80)
BETWEEN_SITES = range(24)
WITH_TWO_CENTRES = range(12)

FAILED_ONCE_IN_A_SITE = [
    266,
    706,
    874,
    2281,
    3061,
    3068,
    4175,
    6039,
    6045,
    6046,
    7008,
    7066,
    7141,
    7493,
    8230,
    8496,
    8567,
    20138,
    20724,
]
FAILED_ONCE_BETWEEN_SITES = [
    60,
    66,
    101,
    279,
    289,
    351,
    1015,
    1040,
    1047,
    1169,
    1198,
    2045,
    3043,
    4123,
    4139,
    4145,
    4297,
    4350,
    5011,
    5028,
    6227,
    6674,
]
FAILED_ONCE_WITH_TWO_CENTRES = [461]
FAILED_ONCE_BETWEEN_THREE_SITES = [754]
"""Seeds that have found a fault: run for good."""


@pytest.mark.parametrize("seed", seeds(IN_A_SITE, FAILED_ONCE_IN_A_SITE, block=80))
def test_what_is_promised_is_kept_while_endpoints_move_in_a_site(seed: int) -> None:
    assert Story(seed).play() == []


@pytest.mark.parametrize("seed", seeds(BETWEEN_SITES, FAILED_ONCE_BETWEEN_SITES, block=24))
def test_what_is_promised_is_kept_while_endpoints_move_between_sites(seed: int) -> None:
    assert Story(seed, sites=2, centres=1).play() == []


@pytest.mark.parametrize("seed", seeds(WITH_TWO_CENTRES, FAILED_ONCE_WITH_TWO_CENTRES, block=12))
def test_what_is_promised_is_kept_while_two_processes_of_the_centre_take_turns(seed: int) -> None:
    assert Story(seed, sites=2, centres=2).play() == []


@pytest.mark.parametrize("seed", FAILED_ONCE_BETWEEN_THREE_SITES)
def test_what_is_promised_is_kept_while_endpoints_move_between_three_sites(seed: int) -> None:
    assert Story(seed, sites=3, centres=2).play() == []


@pytest.mark.parametrize("writes", range(1, 25))
def test_a_centre_may_be_killed_after_any_of_its_appends_while_an_endpoint_moves_between_sites(writes: int) -> None:
    assert Story(writes, sites=2, centres=1).move_once(writes) == []


@pytest.mark.parametrize("seed", range(10))
def test_where_nothing_fails_no_message_of_any_quality_is_lost_to_who_stays(seed: int) -> None:
    story = Story(seed, is_still=True)
    assert story.play() == []
    ledger = story.world.ledger
    assert any(message.qos == 0 for message in ledger.messages.values())
    for account in ledger.accounts.values():
        seen = {receipt.body for receipt in account.receipts}
        promised = [one.body for one in ledger.messages.values() if any(wish.promises(one) for wish in account.wishes)]
        assert [body for body in promised if body not in seen] == []


def test_what_is_said_again_in_another_session_may_come_twice_also_if_its_publisher_begins_anew_later() -> None:
    assert Story(2357).play() == []


@pytest.mark.parametrize(("merge", "is_double"), [(None, True), (2, False), (3, True)])
@pytest.mark.parametrize("is_anew", [False, True])
def test_only_a_merge_before_a_repetition_excuses_a_double(merge: int | None, is_double: bool, is_anew: bool) -> None:
    ledger = Ledger()
    publisher = ledger.accounts["pub"] = Account("pub", merges={merge: Instant(11)} if merge else {})
    car = ledger.accounts["car"] = Account("car")
    said = Message(b"pub:1:", "t", 2, "pub", 0, "s0", Instant(10), publisher.merges, sends=2, connections=[1, 2])
    ledger.messages[said.body] = said
    car.receipts = [Receipt(said.body, number, False, 1, is_confirmed=True) for number in (1, 2)]
    if is_anew:
        publisher.begin_anew(Instant(20))
        publisher.merges[2] = Instant(21)  # says nothing about what was said before
    assert bool(ledger.check()) == is_double


def test_the_same_seed_gives_the_same_run() -> None:
    def notes() -> list[str]:
        story = Story(7, sites=2, centres=1, is_noting=True)
        story.play()
        return story.world.notes

    assert notes() == notes()
