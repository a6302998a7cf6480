"""Edges and the centre that are killed, paused and started again while endpoints move: nothing acknowledged is lost (D15).

Who does not find its session in time is let in without it, and gets what it left behind when whoever has it is back: then what is
old comes after what is new, and only lost and doubled count.
"""

import os
import time
from functools import partial
from random import Random

import pytest

from live.federation.crowds import Crowd
from live.federation.records import Found, Watch
from live.federation.town import Town, wait_until
from live.federation.travellers import Leave, Traveller
from milepost.model.sites import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    Claim,
    ClaimNotice,
    EdgeRef,
    Handover,
    HandoverTaken,
    Interest,
    MissedMessages,
    SiteRecord,
    inbox_of,
)

EVERYWHERE = ("n1", "n2", "s1")
SEED = int(os.environ.get("HUB_SEED", "7"))


def senders_everywhere(town: Town, crowd: Crowd, name: str, *, rate: float, qos: int = 2) -> tuple[str, ...]:
    for edge in EVERYWHERE:
        crowd.sender(f"{name}-{edge}", town.edges[edge], topic=f"{name}/{edge}", qos=qos, rate=rate)
    return tuple(f"{name}-{edge}" for edge in EVERYWHERE)


def wait_all_seen(crowd: Crowd, taker: Traveller, senders: tuple[str, ...], more: int) -> None:
    for sender in senders:
        crowd.wait_seen(taker.name, sender, more)


def go_away(crowd: Crowd, taker: Traveller, senders: tuple[str, ...], missed: int) -> None:
    """Let so many messages of each sender wait for somebody who is nowhere."""
    crowd.stay_away(taker.name)
    for sender in senders:
        sent = crowd.ledger.count_acknowledged(sender)
        crowd.burst(missed, sender)
        crowd.wait(lambda: crowd.ledger.count_acknowledged(sender) >= sent + missed, f"{sender} is heard")  # noqa: B023


@pytest.mark.parametrize("new", ["n2", "s1"])
def test_what_waits_at_a_dead_edge_arrives_elsewhere_when_it_is_back(town: Town, crowd: Crowd, name: str, new: str) -> None:
    senders = senders_everywhere(town, crowd, name, rate=50)
    taker = crowd.taker(f"{name}-taker", town.edges["n1"], f"{name}/#", of=senders)
    crowd.ledger.expect_any_order(taker.name)
    go_away(crowd, taker, senders, 30)
    town.edges["n1"].kill()
    assert not crowd.arrive(taker.name, town.edges[new])
    wait_all_seen(crowd, taker, tuple(one for one in senders if not one.endswith("n1")), 20)
    town.edges["n1"].start()
    wait_all_seen(crowd, taker, senders, 20)
    crowd.finish()
    crowd.check()
    assert taker.presents == [False, False]


def test_who_moves_between_sites_while_the_centre_is_away_gets_what_it_left_when_the_centre_is_back(
    town: Town, crowd: Crowd, name: str
) -> None:
    assert town.centre is not None
    senders = senders_everywhere(town, crowd, name, rate=50)
    taker = crowd.taker(f"{name}-taker", town.edges["n1"], f"{name}/#", of=senders)
    crowd.ledger.expect_any_order(taker.name)
    go_away(crowd, taker, senders, 30)
    town.centre.kill()
    killed_at = time.monotonic()
    assert not crowd.arrive(taker.name, town.edges["s1"])
    crowd.wait_seen(taker.name, f"{name}-s1", 50)
    assert crowd.arrive(taker.name, town.edges["s1"]), "in a site sessions are found without a centre"
    time.sleep(max(0.0, killed_at + 10 - time.monotonic()))
    town.centre.start()
    wait_all_seen(crowd, taker, senders, 50)
    crowd.finish()
    crowd.check()


def test_endpoints_move_in_their_site_while_the_centre_is_away(town: Town, crowd: Crowd, name: str) -> None:
    assert town.centre is not None
    senders = senders_everywhere(town, crowd, name, rate=50)
    taker = crowd.taker(f"{name}-taker", town.edges["n1"], f"{name}/#", of=senders)
    town.centre.kill()
    for edge in ("n2", "n1", "n2"):
        assert crowd.arrive(taker.name, town.edges[edge])
        crowd.wait_seen(taker.name, f"{name}-n1", 20)
    town.centre.start()
    wait_all_seen(crowd, taker, senders, 20)
    crowd.finish()
    crowd.check()


@pytest.mark.parametrize(("new", "pause_s"), [("n2", 10.0), ("s1", 4.0)])
def test_an_edge_that_was_paused_while_its_endpoint_left_hands_over_what_it_has_and_takes_nothing_back(
    town: Town, crowd: Crowd, name: str, new: str, pause_s: float
) -> None:
    """What it wrote late changes nothing: it knows of the endpoint's former stay only."""
    old = town.edges["n1"]
    senders = senders_everywhere(town, crowd, name, rate=50)
    taker = crowd.taker(f"{name}-taker", old, f"{name}/#", of=senders)
    crowd.ledger.expect_any_order(taker.name)
    with old.paused():
        paused_at = time.monotonic()
        assert not crowd.arrive(taker.name, town.edges[new], Leave.UNSEEN)
        crowd.wait_seen(taker.name, f"{name}-{new}", 50)
        time.sleep(max(0.0, paused_at + pause_s - time.monotonic()))
    wait_all_seen(crowd, taker, senders, 50)
    crowd.finish()
    crowd.check()
    assert taker.presents == [False, False], "it stays where it is"


def test_an_edge_that_finds_an_old_knock_when_it_goes_on_gives_the_endpoint_back(town: Town, crowd: Crowd, name: str) -> None:
    """Its CONNECT lies at the paused edge, the endpoint has gone on: whoever serves it in the end serves all of it."""
    senders = senders_everywhere(town, crowd, name, rate=50)
    taker = crowd.taker(f"{name}-taker", town.edges["n2"], f"{name}/#", of=senders)
    crowd.ledger.expect_any_order(taker.name)
    with town.edges["n1"].paused():
        crowd.move(taker.name, town.edges["n1"])
        crowd.wait(lambda: taker.line is not None, "it knocks")
        assert crowd.arrive(taker.name, town.edges["n2"]), "nobody else has claimed it yet"
        wait_all_seen(crowd, taker, (f"{name}-n2", f"{name}-s1"), 20)
    wait_all_seen(crowd, taker, senders, 50)
    crowd.finish()
    crowd.check()


def test_whoever_is_killed_while_endpoints_and_senders_move_everything_acknowledged_arrives(
    town: Town, crowd: Crowd, name: str
) -> None:
    """Senders stay with their edge, which comes back: one that must begin anew elsewhere could not know what was let in."""
    # D15
    assert town.centre is not None
    random = Random(SEED)
    senders = senders_everywhere(town, crowd, name, rate=50)
    takers = [crowd.taker(f"{name}-at-{edge}", town.edges[edge], f"{name}/#", of=senders) for edge in EVERYWHERE]
    for taker in takers:
        crowd.ledger.expect_any_order(taker.name)
    for victim in random.sample([*EVERYWHERE, "n1", "centre", "centre"], 6):
        for taker in takers:
            crowd.move(taker.name, town.edges[random.choice(EVERYWHERE)], random.choice(list(Leave)))
        time.sleep(random.uniform(0.0, 0.2))
        process = town.centre if victim == "centre" else town.edges[victim]
        process.kill()
        process.start()
    for taker in takers:
        crowd.wait(lambda: taker.is_listening, "it is let in")  # noqa: B023
        wait_all_seen(crowd, taker, senders, 20)
    crowd.finish()
    crowd.check()


def is_of(found: Found, kind: type[SiteRecord], endpoint: str) -> bool:
    """Whether a record is a step of the move of an endpoint."""
    value = found.value
    if isinstance(value, Interest):
        return kind is Interest and f"\n{endpoint}\n" in found.key
    claim = value.claim if isinstance(value, ClaimNotice) else value
    return isinstance(value, kind) and getattr(claim, "endpoint", "") == endpoint


STEPS: list[tuple[str, type[SiteRecord], str]] = [
    ("south", Claim, VEHICLE_INFO),
    ("north", ClaimNotice, inbox_of(EdgeRef("north", "n1"))),
    ("north", Handover, CROSS_HUB),
    ("south", Handover, CROSS_HUB),
    ("south", MissedMessages, CROSS_HUB),
    ("south", Interest, SUBSCRIPTION_INFO),
    ("south", HandoverTaken, CROSS_HUB),
    ("north", HandoverTaken, CROSS_HUB),
]


def test_a_centre_that_is_killed_at_any_step_of_a_move_is_followed_by_one_that_finishes_it(
    town: Town, crowd: Crowd, name: str
) -> None:
    """Each step is a record: the centre is killed the moment it stands in the log."""
    centre = town.centre
    assert centre is not None
    senders = senders_everywhere(town, crowd, name, rate=50)
    for number, (site, kind, topic) in enumerate(STEPS):
        taker = crowd.taker(f"{name}-{number}", town.edges["n1"], f"{name}/#", of=senders)
        crowd.ledger.expect_any_order(taker.name)
        watch = Watch(town.log(site), topic)
        watch.alarm(partial(is_of, kind=kind, endpoint=taker.name), centre.running.kill)
        crowd.move(taker.name, town.edges["s1"])
        wait_until(lambda: not centre.is_alive(), f"{kind.__name__} stands in the log of {site}")
        watch.close()
        centre.wait_ended()
        centre.start()
        crowd.wait(lambda: taker.is_listening, "it is let in")  # noqa: B023
        wait_all_seen(crowd, taker, senders, 5)
    crowd.finish()
    crowd.check()
