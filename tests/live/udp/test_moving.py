"""Endpoints that change their address in mid-stream (M13): the session continues, and no reliable message is lost."""

import asyncio
from pathlib import Path

from live.client.deadline import run
from live.udp.edges import MakeUdpEdge
from live.udp.exchanges import exchange
from live.udp.networks import MakeNetwork, Network, join
from live.udp.relays import Relay

COUNT = 150
ANY_RATE = "messages_per_s = 0\nreporting_interval_s = 0.5"
EDGE_ADDRESS = "10.77.2.1"


async def rounds(relay: Relay) -> None:
    """Move all clients to new addresses, again and again."""
    while True:
        await asyncio.sleep(0.7)
        relay.rebind()


def test_an_endpoint_that_changes_its_address_keeps_its_session_and_loses_nothing(make_edge: MakeUdpEdge, name: str) -> None:
    # M13
    edge = make_edge(udp=ANY_RATE)

    async def work() -> None:
        async with Relay(edge.udp) as relay:
            one, other = (edge.client(f"{name}-{which}", port=relay.port) for which in "ab")
            async with one, other, edge.mqtt_client(f"{name}-m") as mqtt:
                opened = (await asyncio.to_thread(edge.metrics))["milepost_sessions_opened_total"]
                moving = asyncio.create_task(rounds(relay))
                for number in range(4):
                    await exchange(edge, f"{name}/{number}", [one, other, mqtt], COUNT // 4)
                    relay.rebind()
                moving.cancel()
                assert relay.rebound >= 4
                assert (await asyncio.to_thread(edge.metrics))["milepost_sessions_opened_total"] == opened

    run(work())
    assert "address changed" in edge.log()


def nat(make_network: MakeNetwork) -> tuple[Network, Network, Network, str]:
    """Return a home network, a NAT router and the edge's network, with the router's outer interface.

    home 10.77.1.2 ── 10.77.1.1 router 10.77.2.2 ── 10.77.2.1 edge
    """
    home, router, far = make_network(), make_network(), make_network()
    join(home, "10.77.1.2/24", router, "10.77.1.1/24")
    outer, _ = join(router, "10.77.2.2/24", far, f"{EDGE_ADDRESS}/24")
    home.ip("route", "add", "default", "via", "10.77.1.1")
    router.nft("add table ip nat")
    router.nft("add chain ip nat leaving { type nat hook postrouting priority 100; }")
    router.nft(f'add rule ip nat leaving oifname "{outer}" masquerade random')
    with router.inside(), Path("/proc/sys/net/ipv4/ip_forward").open("w") as switch:
        switch.write("1")
    return home, router, far, outer


def test_sessions_survive_an_address_change_of_a_nat_router(make_edge: MakeUdpEdge, make_network: MakeNetwork, name: str) -> None:
    home, router, far, outer = nat(make_network)
    edge = make_edge(udp=ANY_RATE, host=EDGE_ADDRESS, is_started=False)
    with far.inside():
        edge.start()

    async def work() -> None:
        one, other = (edge.client(f"{name}-{which}", host=EDGE_ADDRESS) for which in "ab")
        async with one, other, one.subscribe(name) as ones, other.subscribe(name) as others:
            for number in range(3):
                sending = [
                    asyncio.create_task(each.publish(name, f"{number}", qos=1)) for each in (one, other) for _ in range(20)
                ]
                router.ip("addr", "flush", "dev", outer)  # which clears its NAT table
                router.ip("addr", "add", f"10.77.2.{10 + number}/24", "dev", outer)
                await asyncio.gather(*sending)
                for inbox in (ones, others):
                    assert {(await inbox.receive()).body for _ in range(40)} == {b"%d" % number}
            assert (one.counters.connections, other.counters.connections) == (1, 1)

    with home.inside():
        run(work())
    with far.inside():
        assert edge.metrics()["milepost_sessions_opened_total"] == 3  # and the connection that waited for the start
        edge.kill()
    assert "address changed" in edge.log()
