"""Endpoints that move between edges and sites, seed by seed: nothing is lost, duplicated or left over.

`PYTHONPATH=tests python -m simulation.roaming FIRST COUNT [SITES] [HUBS]` runs more seeds.
"""

import pytest

from effort import seeds
from milepost.model.instants import Instant
from simulation.roaming.ledger import Account, Ledger, Message, Receipt
from simulation.roaming.scenario import Scenario

IN_A_SITE = range(80)
BETWEEN_SITES = range(24)
WITH_TWO_HUBS = range(12)
WITH_ATTACKERS = range(12)
WITH_ATTACKERS_ABROAD = range(5)

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
    50044,
    9181810620,
    21775017,
]
FAILED_ONCE_WITH_TWO_HUBS = [461]
FAILED_ONCE_BETWEEN_THREE_SITES = [754]
ATTACKED_IN_A_SITE: list[int] = []
ATTACKED_BETWEEN_SITES = [5005, 5026, 5044]
"""Seeds that have found a fault; they are always run."""


@pytest.mark.parametrize("seed", seeds(IN_A_SITE, FAILED_ONCE_IN_A_SITE, block=80))
def test_guarantees_hold_while_endpoints_move_within_a_site(seed: int) -> None:
    assert Scenario(seed).run() == []


@pytest.mark.parametrize("seed", seeds(BETWEEN_SITES, FAILED_ONCE_BETWEEN_SITES, block=24))
def test_guarantees_hold_while_endpoints_move_between_sites(seed: int) -> None:
    assert Scenario(seed, sites=2, hubs=1).run() == []


@pytest.mark.parametrize("seed", seeds(WITH_TWO_HUBS, FAILED_ONCE_WITH_TWO_HUBS, block=12))
def test_guarantees_hold_with_two_processes_of_the_central_hub(seed: int) -> None:
    assert Scenario(seed, sites=2, hubs=2).run() == []


@pytest.mark.parametrize("seed", FAILED_ONCE_BETWEEN_THREE_SITES)
def test_guarantees_hold_while_endpoints_move_between_three_sites(seed: int) -> None:
    assert Scenario(seed, sites=3, hubs=2).run() == []


@pytest.mark.parametrize("seed", seeds(WITH_ATTACKERS, ATTACKED_IN_A_SITE, block=12))
def test_attackers_in_a_site_get_nothing_and_their_victims_lose_nothing(seed: int) -> None:
    assert Scenario(seed, has_attackers=True).run() == []


@pytest.mark.parametrize("seed", seeds(WITH_ATTACKERS_ABROAD, ATTACKED_BETWEEN_SITES, block=5))
def test_attackers_at_several_sites_get_nothing_and_their_victims_lose_nothing(seed: int) -> None:
    assert Scenario(seed, sites=2, hubs=1, has_attackers=True).run() == []


def test_a_victim_keeps_the_session_that_reaches_a_site_where_an_attacker_was_admitted() -> None:
    assert Scenario(2013, sites=2, hubs=2, has_attackers=True).run() == []


def test_an_attacker_at_a_third_site_loses_to_a_victim_that_moves() -> None:
    assert Scenario(7019, sites=3, hubs=1, has_attackers=True).run() == []


def test_attackers_are_refused_and_sometimes_admitted_until_the_claims_are_read() -> None:
    attackers = []
    for seed in range(4):
        scenario = Scenario(seed, sites=2, hubs=1, has_attackers=True)
        scenario.run()
        attackers += scenario.world.attackers
    assert sum(one.refused for one in attackers) > sum(one.admitted for one in attackers) > 0


@pytest.mark.parametrize("writes", range(1, 25))
def test_the_hub_may_be_killed_after_any_of_its_appends_during_a_move_between_sites(writes: int) -> None:
    assert Scenario(writes, sites=2, hubs=1).move_once(writes) == []


@pytest.mark.parametrize("seed", range(10))
def test_without_faults_no_message_of_any_qos_is_lost_to_stationary_endpoints(seed: int) -> None:
    scenario = Scenario(seed, is_stationary=True)
    assert scenario.run() == []
    ledger = scenario.world.ledger
    assert any(message.qos == 0 for message in ledger.messages.values())
    for account in ledger.accounts.values():
        seen = {receipt.body for receipt in account.receipts}
        promised = [
            one.body
            for one in ledger.messages.values()
            if any(subscription.promises(one) for subscription in account.subscriptions)
        ]
        assert [body for body in promised if body not in seen] == []


def test_a_publication_repeated_in_another_session_may_be_delivered_twice() -> None:
    assert Scenario(2357).run() == []


@pytest.mark.parametrize(("merge", "is_duplicate"), [(None, True), (2, False), (3, True)])
@pytest.mark.parametrize("is_clean_start", [False, True])
def test_only_a_merge_before_a_repetition_excuses_a_duplicate(
    merge: int | None, is_duplicate: bool, is_clean_start: bool
) -> None:
    ledger = Ledger()
    publisher = ledger.accounts["pub"] = Account("pub", merges={merge: Instant(11)} if merge else {})
    car = ledger.accounts["car"] = Account("car")
    message = Message(b"pub:1:", "t", 2, "pub", 0, "s0", Instant(10), publisher.merges, sends=2, connections=[1, 2])
    ledger.messages[message.body] = message
    car.receipts = [Receipt(message.body, number, False, 1, is_confirmed=True) for number in (1, 2)]
    if is_clean_start:
        publisher.start_clean(Instant(20))
        publisher.merges[2] = Instant(21)  # does not apply to earlier messages
    assert bool(ledger.check()) == is_duplicate


@pytest.mark.parametrize(
    ("site", "sent_at", "is_duplicate"),
    [("s1", 10, False), ("s0", 10, True), ("s1", 12, True)],
    ids=["late from another site", "late from the same site", "published after the new session was opened"],
)
def test_after_a_merge_a_late_message_of_another_site_may_come_once_with_each_session(
    site: str, sent_at: int, is_duplicate: bool
) -> None:
    ledger = Ledger()
    ledger.has_several_sites = True
    car = ledger.accounts["car"] = Account("car", merges={3: Instant(11)}, merge_sites={3: "s0"})
    message = Message(b"pub:1:", "t", 1, "pub", 0, site, Instant(sent_at), {}, connections=[1])
    ledger.messages[message.body] = message
    car.receipts = [Receipt(message.body, connection, False, connection, is_confirmed=True) for connection in (3, 4)]
    assert bool(ledger.check()) == is_duplicate
    car.receipts.append(Receipt(message.body, 5, False, 5, is_confirmed=True))
    assert ledger.check()


def test_the_same_seed_gives_the_same_run() -> None:
    def notes() -> list[str]:
        scenario = Scenario(7, sites=2, hubs=1, is_noting=True)
        scenario.run()
        return scenario.world.notes

    assert notes() == notes()
