"""Endpoints that move between edges under way lose nothing, get nothing twice, and do nothing for it (D8)."""

from live.hub.town import Town
from live.hub.travellers import Crowd, Leave


def test_who_bounces_between_two_edges_of_a_site_loses_nothing(town: Town, crowd: Crowd, name: str) -> None:
    n1, n2 = town.edges["n1"], town.edges["n2"]
    near, far = f"{name}-near", f"{name}-far"
    crowd.sender(near, n1, topic=f"{name}/near", rate=200)
    crowd.sender(far, n2, topic=f"{name}/far", qos=2, rate=200)
    taker = crowd.taker(f"{name}-taker", n1, f"{name}/#", of=(near, far))
    for _ in range(6):
        for edge in (n2, n1):
            assert crowd.arrive(taker.name, edge)
            crowd.wait_seen(taker.name, near, 10)
            crowd.wait_seen(taker.name, far, 10)
    crowd.finish()
    crowd.check()
