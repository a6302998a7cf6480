"""Endpoints that move between edges under way lose nothing, get nothing twice, and do nothing for it (D8)."""

import pytest

from live.federation.crowds import Crowd
from live.federation.town import Town
from live.federation.travellers import Leave
from live.mqtt.raw import Raw

ROUND = ("n2", "s1", "n1")


@pytest.mark.parametrize("edges", [("n2", "n1"), ("s1", "n1"), ROUND], ids=["in a site", "between sites", "round"])
def test_who_bounces_between_edges_loses_nothing_and_finds_its_session_each_time(
    town: Town, crowd: Crowd, name: str, edges: tuple[str, ...]
) -> None:
    # D8
    senders = {f"{name}-{edge}-{qos}": (town.edges[edge], qos) for edge in ("n1", "n2", "s1") for qos in (1, 2)}
    for sender, (edge, qos) in senders.items():
        crowd.sender(sender, edge, topic=f"{name}/{sender}", qos=qos, rate=50)
    taker = crowd.taker(f"{name}-taker", town.edges["n1"], f"{name}/#", of=tuple(senders))
    for leave in Leave:
        for there in edges:
            assert crowd.arrive(taker.name, town.edges[there], leave), f"to {there}, {leave.value}"
            for sender in senders:
                crowd.wait_seen(taker.name, sender, 2)
    crowd.finish()
    crowd.check()


def test_who_moves_again_before_it_is_let_in_loses_nothing(town: Town, crowd: Crowd, name: str) -> None:
    senders = tuple(f"{name}-{edge}" for edge in ("n1", "n2", "s1"))
    for sender in senders:
        crowd.sender(sender, town.edges[sender.rpartition("-")[2]], topic=f"{name}/{sender}", rate=100)
    taker = crowd.taker(f"{name}-taker", town.edges["n1"], f"{name}/#", of=senders)
    for number in range(20):
        crowd.move(taker.name, town.edges[ROUND[number % 3]], list(Leave)[number % 2])
        crowd.wait(lambda: taker.line is not None, "it knocks")
    assert crowd.arrive(taker.name, town.edges["n1"])
    crowd.ledger.expect_any_order(taker.name)
    crowd.finish()
    crowd.check()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("senders_go", [("n1", "n2"), ROUND], ids=["senders stay in their site", "senders move between sites"])
def test_a_burst_survives_that_its_takers_and_its_senders_move(
    town: Town, crowd: Crowd, name: str, qos: int, senders_go: tuple[str, ...]
) -> None:
    # D15
    senders = [f"{name}-{at}" for at in ("this", "that")]
    for sender in senders:
        crowd.sender(sender, town.edges["n2"], topic=f"{name}/{sender}", qos=qos)
    takers = [crowd.taker(f"{name}-{at}", town.edges["n1"], f"{name}/#", of=tuple(senders)).name for at in range(3)]
    for number, edge in enumerate(ROUND * 2):
        crowd.burst(200, *senders)
        crowd.wait_seen(takers[0], senders[number % 2], 30)
        for taker in takers:
            crowd.move(taker, town.edges[edge])
        crowd.say_and_go(senders[number % 2], town.edges[senders_go[number % len(senders_go)]], 10)
    for one in (*senders, *takers):
        crowd.wait(lambda: crowd.travellers[one].is_listening, "it is let in")  # noqa: B023
        assert all(crowd.travellers[one].presents[1:])
    crowd.wait(lambda: all(crowd.ledger.count_sent(sender) > 1_200 for sender in senders), "all is sent")
    if senders_go == ROUND:
        for taker in takers:
            crowd.ledger.expect_any_order(taker)  # the order of a sender is kept while it stays at its site
    crowd.finish()
    crowd.check()


def test_what_waited_for_who_was_away_is_there_at_another_edge(town: Town, crowd: Crowd, name: str) -> None:
    """Nobody is at either end: the session is fetched by the next CONNECT, with all that came meanwhile."""
    # O4
    sender = crowd.sender(f"{name}-sender", town.edges["n2"], topic=f"{name}/x", qos=2)
    taker = crowd.taker(f"{name}-taker", town.edges["n1"], f"{name}/#", of=(sender.name,))
    for edge in ("s1", "n2", "n1"):
        crowd.stay_away(taker.name, Leave.POLITELY)
        sent = crowd.ledger.count_sent(sender.name)
        crowd.burst(200, sender.name)
        crowd.wait(lambda: crowd.ledger.count_acknowledged(sender.name) >= sent + 200, "all is acknowledged")  # noqa: B023
        assert crowd.arrive(taker.name, town.edges[edge])
        crowd.wait(crowd.ledger.is_complete, "all is there")
    crowd.finish()
    crowd.check()


def test_a_client_that_begins_anew_elsewhere_gets_nothing_of_its_old_session(town: Town, crowd: Crowd, name: str) -> None:
    sender = crowd.sender(f"{name}-sender", town.edges["n2"], topic=f"{name}/x")
    taker = crowd.taker(f"{name}-taker", town.edges["n1"], f"{name}/#")
    crowd.tune_in(taker.name, sender.name)
    crowd.stay_away(taker.name, Leave.POLITELY)
    crowd.burst(50, sender.name)
    for edge in ("n2", "s1"):
        with Raw(town.edges[edge].tcp) as anew:
            assert not anew.join(taker.name, clean=True).session_present
            assert anew.settle() == []
    assert crowd.arrive(taker.name, town.edges["n1"]) is False


def test_a_move_leaves_one_line_for_the_operator(town: Town, crowd: Crowd, name: str) -> None:
    sender = crowd.sender(f"{name}-sender", town.edges["n2"], topic=f"{name}/x", qos=1)
    taker = crowd.taker(f"{name}-taker", town.edges["n1"], f"{name}/#", of=(sender.name,))
    crowd.stay_away(taker.name, Leave.POLITELY)
    crowd.burst(5, sender.name)
    crowd.wait(lambda: crowd.ledger.count_acknowledged(sender.name) >= 5, "all is acknowledged")
    assert crowd.arrive(taker.name, town.edges["n2"])
    crowd.wait(crowd.ledger.is_complete, "all is there")

    def lines() -> list[str]:
        return [line for line in town.edges["n2"].log().splitlines() if "session moved" in line and taker.name in line]

    crowd.wait(lambda: bool(lines()), "the line is there")
    (line,) = lines()
    assert all(one in line for one in ("north/n1", "north/n2", "completed", "caught up")), line
    crowd.finish()
    crowd.check()
